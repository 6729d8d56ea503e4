// The teacher of a model: what word-level distillation (ops/distillation) learns from.
#pragma once

#include <filesystem>
#include <string_view>

#include "engine/models/model.h"

namespace trafo {

// Reads a model file to be the teacher of `student`, in place of another one it may have. The
// teacher computes in the student's dtype, and its adapter, if it has one, is merged.
// INVALID_ARGUMENT, naming what differs: another architecture, number of tokens or, where both
// models say which, vocabulary. UNSUPPORTED: a file with int8 weights. Other errors as of
// load_model(). After an error the student keeps its earlier teacher.
void load_teacher(Context& context, Model& student, const std::filesystem::path& file);

// INVALID_ARGUMENT, naming both, if the teacher was trained with another vocabulary than the one
// with this checksum. A teacher that does not say so fits each, and so does a model without one.
void require_teacher_vocabulary(const Model& student, std::string_view checksum);

// Freezes a model for a dry run with a teacher.
Model::Teacher planned_teacher(Context& context, std::unique_ptr<Model> model);

}  // namespace trafo
