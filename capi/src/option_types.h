// The kinds of options that are not one number: between the C ABI and the engine.
#pragma once

#include <string>
#include <vector>

#include "capi/include/trafo.h"
#include "capi/src/handles.h"
#include "engine/train/run/period.h"

namespace trafo::capi {

trafo_period to_c(const Period& period);
Period to_period(const Call& call, const trafo_period& period, const char* name);

// TRAFO_METRIC_* of the engine's names, and of the first of them alone.
int32_t metric_bits(const std::vector<std::string>& names);
int32_t first_bit(const std::vector<std::string>& names);
// `first`, which must be one of the bits, comes first; the others are in the order bleu, chrf,
// ce-mean-words.
std::vector<std::string> to_metrics(const Call& call, int32_t bits, int32_t first);

// A number for each layer, and 0 after the last.
void layers_to_c(const std::vector<int64_t>& layers, uint8_t (&out)[TRAFO_TIED_LAYERS]);
std::vector<int64_t> to_layers(const Call& call, const uint8_t (&layers)[TRAFO_TIED_LAYERS],
                               const char* name);

}  // namespace trafo::capi
