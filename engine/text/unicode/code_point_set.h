// Sets of Unicode code points.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace trafo {

// Sorted ranges that neither overlap nor touch.
class CodePointSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10ffff;

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges)
      : CodePointSet(std::span<const Range>(ranges.begin(), ranges.size())) {}
  explicit CodePointSet(std::span<const Range> ranges);  // in any order

  const std::vector<Range>& ranges() const { return ranges_; }
  bool is_ascii() const { return ranges_.empty() || ranges_.back().last < 0x80; }
  CodePointSet complement() const;
  CodePointSet united(const CodePointSet& other) const;
  CodePointSet intersected(const CodePointSet& other) const;
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// The same as a table: membership in constant time. Blocks of 256 code points that are alike are
// stored once.
class CodePointTable {
 public:
  explicit CodePointTable(const CodePointSet& set);
  bool has(char32_t code_point) const {
    return blocks_[block_[code_point >> 8]].bits[code_point >> 6 & 3] >> (code_point & 63) & 1;
  }

 private:
  struct Block {
    uint64_t bits[4] = {};
    bool operator==(const Block&) const = default;
  };
  std::vector<uint16_t> block_;  // of each 256 code points
  std::vector<Block> blocks_;
};

}  // namespace trafo
