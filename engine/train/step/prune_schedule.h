// When a run prunes weights, and how many of them.
#pragma once

#include <cstdint>

#include "engine/train/run/options.h"

namespace trafo {

// Whether weights are pruned before update `update`, counted from 1: every prune_every updates from
// prune_start on, and at prune_end, the last time.
bool prunes_before(const TrainOptions& options, int64_t update);

// The share of the weights of a matrix that is zero then (Zhu & Gupta, arXiv 1710.01878, equation
// 1, from an initial sparsity of zero):
//
//   prune_sparsity (1 - (1 - (update - prune_start) / (prune_end - prune_start))^3)
double scheduled_sparsity(const TrainOptions& options, int64_t update);

// Whether weights will be pruned after update `update`: the model that the run is for is sparser.
bool prunes_after(const TrainOptions& options, int64_t update);

}  // namespace trafo
