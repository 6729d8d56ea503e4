#include "engine/text/tokenizer/text_stream.h"

#include <string_view>
#include <utility>

namespace trafo {
namespace {

// The text of a token depends on the tokens before it: the first one of a text loses its space.
// The last ones are looked at, so that a long text does not take longer with each token.
constexpr size_t kMostBefore = 24, kKeptBefore = 8;

}  // namespace

TextStream::TextStream(Tokenizer tokenizer, std::span<const int32_t> before)
    : tokenizer_(std::move(tokenizer)), before_(before.begin(), before.end()) {
  shorten();
  before_text_ = tokenizer_.decode(before_);
}

std::string TextStream::push(int32_t id) {
  pending_.push_back(id);
  return take(pending_.size() - tokenizer_.open_tail(pending_));
}

std::string TextStream::finish() {
  return take(pending_.size());
}

// Tokenizer::continuation() whose first text is known.
std::string TextStream::take(size_t count) {
  if (count == 0) return {};
  const std::vector<int32_t> taken(pending_.begin(),
                                   pending_.begin() + static_cast<std::ptrdiff_t>(count));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
  before_.insert(before_.end(), taken.begin(), taken.end());
  std::string all = tokenizer_.decode(before_);
  std::string text =
      all.starts_with(before_text_) ? all.substr(before_text_.size()) : tokenizer_.decode(taken);
  before_text_ = std::move(all);
  shorten();
  return text;
}

// Forgets all but the last tokens where these stand for all: they are not a mere beginning of a
// text, and do not begin within a character.
void TextStream::shorten() {
  if (before_.size() <= kMostBefore || tokenizer_.open_tail(before_) > 0) return;
  const std::span<const int32_t> last = std::span<const int32_t>(before_).last(kKeptBefore);
  std::string text = tokenizer_.decode(last);
  constexpr std::string_view kUnknownCharacter = "\xef\xbf\xbd";
  if (text.starts_with(kUnknownCharacter) || text.find_first_not_of(" \t\r\n") == std::string::npos)
    return;
  before_.erase(before_.begin(), before_.end() - kKeptBefore);
  before_text_ = std::move(text);
}

}  // namespace trafo
