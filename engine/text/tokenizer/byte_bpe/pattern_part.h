// The pattern of a step: {"Regex": ...} or {"String": ...}.
#pragma once

#include "engine/text/pattern/pattern.h"
#include "engine/text/tokenizer/byte_bpe/json_part.h"

namespace trafo {

inline Pattern read_pattern(const JsonPart& part) {
  if (const auto regex = part.find("Regex")) return Pattern(regex->text(), regex->path());
  const JsonPart text = part.at("String");
  text.check(!text.text().empty(), "it is empty");
  return Pattern::of_text(text.text());
}

}  // namespace trafo
