// The second model of an objective, which training does not change.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "engine/models/model.h"

namespace trafo {

enum class FrozenRole {
  teacher,    // word-level distillation (ops/distillation) learns from it
  reference,  // DPO compares with it
  none,       // the objective has no second model
};
const char* role_name(FrozenRole role);

struct FrozenModel {
  FrozenRole role;
  std::unique_ptr<const Model> model;  // frozen, of the dtype of the model that is trained
  std::string checksum;                // of its weights
};

// Reads a model file for objectives that train `trained`. The model computes in the dtype of
// `trained`, and its adapter, if it has one, is merged. INVALID_ARGUMENT, naming what differs:
// another architecture, number of tokens or, where both models say which, vocabulary. UNSUPPORTED:
// a file with int8 weights. Other errors as of load_model().
std::shared_ptr<const FrozenModel> load_frozen_model(Context& context, const Model& trained,
                                                     const std::filesystem::path& file,
                                                     FrozenRole role = FrozenRole::teacher);

// INVALID_ARGUMENT, naming both, if the model was trained with another vocabulary than the one with
// this checksum. A model that does not say so fits each.
void require_same_vocabulary(const FrozenModel& frozen, std::string_view checksum);

// Without a checksum: freezes the model.
std::shared_ptr<const FrozenModel> frozen_model(Context& context, std::unique_ptr<Model> model,
                                                FrozenRole role = FrozenRole::teacher);

}  // namespace trafo
