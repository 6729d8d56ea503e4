// Room and order of the rows of a DecodeState; see Model::start_decoding.
#pragma once

#include "engine/models/model.h"

namespace trafo {

// Makes room for `capacity` tokens a row (at least what the rows have seen), so that a decoder need
// not start with room for the longest translation it would ever allow. Moves the cache.
void grow_cache(Context& context, DecodeState& state, int64_t capacity);

// The logits of the steps to come are those of these tokens alone, in their order: [rows, tokens].
void restrict_output(Context& context, const Model& model, DecodeState& state,
                     const std::vector<int32_t>& tokens);

}  // namespace trafo
