#include "engine/text/json_schema/token_trie.h"

#include <algorithm>
#include <utility>

namespace trafo {

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : vocabulary_(tokenizer.vocab_size()) {
  std::vector<std::pair<std::string, int32_t>> all;
  for (int32_t id = 0; id < vocabulary_; ++id)
    if (std::string bytes = tokenizer.token_bytes(id); !bytes.empty())
      all.emplace_back(std::move(bytes), id);
  std::ranges::sort(all);
  nodes_.push_back({0, 0, -1, 0});
  std::vector<int32_t> path{0};  // the nodes of the text before
  std::string_view before;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].past = static_cast<int32_t>(nodes_.size());
  };
  for (const auto& [bytes, id] : all) {
    const std::string_view text = bytes;
    const auto common =
        static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    leave(common);
    for (size_t i = common; i < text.size(); ++i) {
      const int32_t above = path.back();
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<int32_t>(tokens_.size()), above, static_cast<uint8_t>(text[i])});
    }
    tokens_.push_back(id);
    depth_ = std::max(depth_, text.size());
    before = text;
  }
  leave(0);
  nodes_[0].past = static_cast<int32_t>(nodes_.size());
}

}  // namespace trafo
