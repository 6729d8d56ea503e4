#include "engine/text/tokenizer/marked_tokens.h"

#include <algorithm>
#include <optional>
#include <string>

namespace trafo {
namespace {

// Where tokens end in the text that they were made of.
class TokenEnds {
 public:
  TokenEnds(const Tokenizer::Model& model, std::string_view text, std::span<const int32_t> tokens)
      : model_(model), text_(text), tokens_(tokens) {
    const std::string whole = model.decode(tokens);
    // A decoder may leave spaces in front out. It leaves out special tokens anywhere.
    is_decoded_ =
        text.ends_with(whole) && text.find_first_not_of(' ') >= text.size() - whole.size();
    if (is_decoded_) lost_ = text.size() - whole.size();
  }

  // The least number of tokens whose text has `bytes` bytes or more, and whether it has just them.
  struct Count {
    size_t tokens;
    bool exact;
  };
  Count first_with(size_t bytes) const {
    return is_decoded_ ? by_decoding(bytes) : by_encoding(bytes);
  }

 private:
  Count by_decoding(size_t bytes) const {
    const auto size_of = [&](size_t count) {
      return count == 0 ? 0 : lost_ + model_.decode(tokens_.first(count)).size();
    };
    size_t low = 0, high = tokens_.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (size_of(middle) >= bytes)
        high = middle;
      else
        low = middle + 1;
    }
    return {low, size_of(low) == bytes};
  }

  // Of a text whose normal form has another size.
  Count by_encoding(size_t bytes) const {
    std::vector<int32_t> front;
    model_.encode_part(text_.substr(0, bytes), front);
    const auto differ = std::ranges::mismatch(front, tokens_);
    const auto same = static_cast<size_t>(differ.in1 - front.begin());
    const bool exact = same == front.size();
    return {exact ? same : std::min(same + 1, tokens_.size()), exact};
  }

  const Tokenizer::Model& model_;
  std::string_view text_;
  std::span<const int32_t> tokens_;
  bool is_decoded_ = false;  // whether decoding gives the text
  size_t lost_ = 0;          // bytes in front that decoding leaves out
};

}  // namespace

void mark_tokens(const Tokenizer::Model& model, std::string_view text, size_t begin,
                 std::span<const TextSpan> parts, std::span<const int32_t> tokens,
                 std::vector<uint8_t>& marked) {
  const size_t end = begin + text.size(), first = marked.size();
  marked.resize(first + tokens.size(), 0);
  std::optional<TokenEnds> ends;
  for (const TextSpan& part : parts) {
    if (part.end <= begin || part.begin >= end || part.begin == part.end) continue;
    size_t from = 0, past = tokens.size();
    if (tokens.size() > 1 && (part.begin > begin || part.end < end)) {
      if (!ends) ends.emplace(model, text, tokens);
      if (part.begin > begin) {
        const auto [count, exact] = ends->first_with(part.begin - begin);
        from = exact ? count : count - std::min<size_t>(count, 1);
      }
      if (part.end < end) past = ends->first_with(part.end - begin).tokens;
    }
    for (size_t i = from; i < past; ++i) marked[first + i] = 1;
  }
}

}  // namespace trafo
