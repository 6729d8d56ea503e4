// The tokens of a text that belong to parts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/text_span.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Appends to `marked`, for each token of `text`, whether it has a byte of one of the parts, which
// are of a text where `text` begins at `begin`. A token at a border of two parts, of which one is
// not marked, is marked.
void mark_tokens(const Tokenizer::Model& model, std::string_view text, size_t begin,
                 std::span<const TextSpan> parts, std::span<const int32_t> tokens,
                 std::vector<uint8_t>& marked);

}  // namespace trafo
