// The messages between the ranks of a group at the beginning of a run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/models/model.h"
#include "engine/train/checkpoint/run_directory.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/training_data.h"

namespace trafo {

// Collective. INVALID_ARGUMENT names the first rank that has another release, device, model,
// corpus, tokenizer or option than rank 0, and what differs. UNSUPPORTED: the group does not work
// with this device, or GEMMs would be autotuned, on each rank with another result.
void compare_ranks(const Context& context, const TrainingData& data, const Model& model,
                   const TrainOptions& options, bool has_directory, const TrainingGroup& group);

// The text of rank 0 on all ranks. Collective.
std::string from_root(const std::string& text, const TrainingGroup& group);

// saved_sizes() as rank 0 reads them. Collective with peers.
std::optional<SavedSizes> sizes_of_root(const std::optional<std::filesystem::path>& run_directory,
                                        const TrainingGroup& group);

// The least of the ranks' values. Collective.
int64_t least_of_all(int64_t value, const TrainingGroup& group);

// Inside a catch block. The other ranks learn of the exception that is handled, unless all ranks
// throw it or the group has ended already. `group` may be null. False: all ranks throw it, and the
// group remains usable.
bool leave_unless_agreed(Communicator* group) noexcept;

}  // namespace trafo
