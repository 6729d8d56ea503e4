#include "engine/text/tokenizer/text_stream.h"

#include <utility>

namespace trafo {
namespace {

// The text of a token depends on the tokens before it: the first one of a text loses its space.
// So many of them are looked at, so that a long text does not take longer with each token.
constexpr size_t kMostBefore = 64, kKeptBefore = 32;

}  // namespace

TextStream::TextStream(Tokenizer tokenizer, std::span<const int32_t> before)
    : tokenizer_(std::move(tokenizer)), before_(before.begin(), before.end()) {
  take(0);
}

std::string TextStream::push(int32_t id) {
  pending_.push_back(id);
  return take(pending_.size() - tokenizer_.open_tail(pending_));
}

std::string TextStream::finish() {
  return take(pending_.size());
}

std::string TextStream::take(size_t count) {
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(count);
  std::string text;
  if (count > 0) text = tokenizer_.continuation(before_, std::span(pending_).first(count));
  before_.insert(before_.end(), pending_.begin(), end);
  pending_.erase(pending_.begin(), end);
  if (before_.size() <= kMostBefore || tokenizer_.open_tail(before_) > 0) return text;
  // The last tokens stand for all, if they are not a mere beginning of a text.
  const auto last = std::span<const int32_t>(before_).last(kKeptBefore);
  if (tokenizer_.decode(last).find_first_not_of(" \t\r\n") != std::string::npos)
    before_.erase(before_.begin(), before_.end() - kKeptBefore);
  return text;
}

}  // namespace trafo
