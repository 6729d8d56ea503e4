// Memory that runs out on demand, for tests: the program that links allocation_faults.cc has its
// malloc suite and pthread_create replaced, for itself and for every library it loads. Nothing of
// it is in the engine.
#pragma once

#include <cstdint>
#include <vector>

namespace trafo::testing {

// From now on allocation number `nth` (from 1, of any thread) fails, and if `persistent` every one
// after it. Starting a thread counts as an allocation.
void arm_allocations(int64_t nth, bool persistent);
// Ends that. True if an allocation was refused.
bool disarm_allocations();
// Allocations asked for since it was armed.
int64_t allocations_seen();
// Blocks that are allocated now; always 0 under a sanitizer, whose leak checker looks instead.
int64_t live_blocks();

// Whether each allocation is noted, while it is armed, with the calls that led to it. Costs some
// microseconds each.
void record_paths(bool wanted);
// Of the first `count` since it was armed, in their order: equal numbers came by the same calls.
std::vector<uint64_t> recorded_paths(int64_t count);

}  // namespace trafo::testing
