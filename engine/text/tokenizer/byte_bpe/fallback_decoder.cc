#include "engine/text/tokenizer/byte_bpe/fallback_decoder.h"

#include "engine/core/limits.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/character_length.h"

namespace trafo {

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
