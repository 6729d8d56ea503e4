// The teacher of a model: what word-level distillation (ops/distillation) learns from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "engine/models/model.h"

namespace trafo {

struct Teacher {
  std::unique_ptr<const Model> model;  // frozen, of the student's dtype
  std::string checksum;                // of its weights
};

// Reads a model file to be the teacher of `student`. The teacher computes in the student's dtype,
// and its adapter, if it has one, is merged. INVALID_ARGUMENT, naming what differs: another
// architecture, number of tokens or, where both models say which, vocabulary. UNSUPPORTED: a file
// with int8 weights. Other errors as of load_model().
std::shared_ptr<const Teacher> load_teacher(Context& context, const Model& student,
                                            const std::filesystem::path& file);

// INVALID_ARGUMENT, naming both, if the teacher was trained with another vocabulary than the one
// with this checksum. A teacher that does not say so fits each.
void require_teacher_vocabulary(const Teacher& teacher, std::string_view checksum);

// A teacher without a checksum: freezes the model.
std::shared_ptr<const Teacher> frozen_teacher(Context& context, std::unique_ptr<Model> model);

}  // namespace trafo
