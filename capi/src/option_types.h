// The kinds of options that are not one number: between the C ABI and the engine.
#pragma once

#include <string>
#include <vector>

#include "capi/include/trafo.h"
#include "capi/src/handles.h"
#include "engine/train/period.h"

namespace trafo::capi {

trafo_period to_c(const Period& period);
Period to_period(const Call& call, const trafo_period& period, const char* name);

// TRAFO_METRIC_* of the engine's names, and of the first of them alone.
int32_t metric_bits(const std::vector<std::string>& names);
int32_t first_bit(const std::vector<std::string>& names);
// `first`, which must be one of the bits, comes first; the others are in the order bleu, chrf,
// ce-mean-words.
std::vector<std::string> to_metrics(const Call& call, int32_t bits, int32_t first);

}  // namespace trafo::capi
