#include "engine/text/unicode/code_point_set.h"

#include <algorithm>

namespace trafo {

CodePointSet::CodePointSet(std::span<const Range> ranges) {
  std::vector<Range> sorted(ranges.begin(), ranges.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : sorted)
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.ranges_.push_back({next, kLast});
  return result;
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::span<const Range>(all));
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  return complement().united(other.complement()).complement();
}

CodePointTable::CodePointTable(const CodePointSet& set) : block_((CodePointSet::kLast + 1) >> 8) {
  blocks_.resize(2);  // empty and full
  blocks_[1] = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
  auto range = set.ranges().begin();
  const auto end = set.ranges().end();
  for (size_t i = 0; i < block_.size(); ++i) {
    const auto first = static_cast<char32_t>(i << 8);
    const char32_t last = first + 0xff;
    while (range != end && range->last < first) ++range;
    if (range == end || range->first > last) continue;
    if (range->first <= first && range->last >= last) {
      block_[i] = 1;
      continue;
    }
    Block block;
    for (auto each = range; each != end && each->first <= last; ++each)
      for (char32_t c = std::max(each->first, first); c <= std::min(each->last, last); ++c)
        block.bits[c >> 6 & 3] |= uint64_t{1} << (c & 63);
    const auto found = std::find(blocks_.begin(), blocks_.end(), block);
    block_[i] = static_cast<uint16_t>(found - blocks_.begin());
    if (found == blocks_.end()) blocks_.push_back(block);
  }
}

}  // namespace trafo
