#include "engine/text/tokenizer/byte_bpe/fallback_decoder.h"

#include "engine/core/limits.h"
#include "engine/core/utf8.h"

namespace trafo {

int character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const int size = first >= 0xc2 && first <= 0xdf   ? 2
                   : (first & 0xf0) == 0xe0         ? 3
                   : first >= 0xf0 && first <= 0xf4 ? 4
                                                    : 1;
  if (size == 1) return -1;
  for (int i = 1; i < size; ++i) {
    if (at + static_cast<size_t>(i) == text.size()) return 0;
    unsigned low = 0x80, high = 0xbf;
    if (i == 1 && first == 0xe0) low = 0xa0;  // overlong forms, surrogates, beyond U+10FFFF
    if (i == 1 && first == 0xed) high = 0x9f;
    if (i == 1 && first == 0xf0) low = 0x90;
    if (i == 1 && first == 0xf4) high = 0x8f;
    if (const unsigned next = byte(static_cast<size_t>(i)); next < low || next > high) return -i;
  }
  return size;
}

FallbackDecoder::FallbackDecoder(const JsonPart& part) {
  bool has_bytes = false, is_fused = false;
  for (const JsonPart& step : part.steps("decoders")) {
    const std::string type = step.type();
    if (type == "Replace" && !has_bytes) {
      replacements_.add(step);
    } else if (type == "ByteFallback" && !has_bytes) {
      has_bytes = true;
    } else if (type == "Fuse") {
      step.check(has_bytes, "it is before ByteFallback");
      is_fused = true;
    } else if (type == "Strip" && is_fused) {
      const JsonPart content = step.at("content");
      size_t end = 0;
      if (!content.text().empty()) next_code_point(content.text(), end);
      content.check(end > 0 && end == content.text().size(), "it is not one character");
      strips_.push_back({content.text(), step.at("start").integer(0, limits::kVocabulary),
                         step.at("stop").integer(0, limits::kVocabulary)});
    } else {
      step.refuse("type ", quote(type),
                  " is not supported there; BPE with byte_fallback has Replace, ByteFallback, Fuse "
                  "and Strip, in this order");
    }
  }
  if (!has_bytes) part.refuse("it has no ByteFallback, and model: byte_fallback is true");
}

void FallbackDecoder::append_bytes(std::string_view bytes, bool is_end, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const int length = character_length(bytes, at);
    if (length <= 0) {
      if (length == 0 && is_end) break;
      for (size_t i = 0; i < bytes.size(); ++i) text += "\ufffd";
      return;
    }
    at += static_cast<size_t>(length);
  }
  text += bytes.substr(0, at);
}

void FallbackDecoder::strip(std::string& text) const {
  for (const Strip& step : strips_) {
    const size_t size = step.content.size();
    size_t begin = 0;
    for (int64_t i = 0; i < step.start && text.compare(begin, size, step.content) == 0; ++i)
      begin += size;
    text.erase(0, begin);
    for (int64_t i = 0; i < step.stop && text.ends_with(step.content); ++i)
      text.resize(text.size() - size);
  }
}

}  // namespace trafo
