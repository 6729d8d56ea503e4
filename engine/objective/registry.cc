#include "engine/objective/registry.h"

#include <algorithm>

#include "engine/core/argument_error.h"

namespace trafo {
namespace {

using FrozenPointer = std::shared_ptr<const FrozenModel>;
using ObjectivePointer = std::unique_ptr<Objective>;

struct ObjectiveRow {
  ObjectiveKind kind;
  FrozenRole role;  // of its other model, which may be null
  ObjectivePointer (*make)(const ObjectiveOptions& options, const FrozenPointer& frozen);
};

constexpr ObjectiveRow kObjectives[] = {
    {ObjectiveKind::cross_entropy, FrozenRole::teacher,
     [](const ObjectiveOptions& options, const FrozenPointer& teacher) -> ObjectivePointer {
       if (teacher)
         return std::make_unique<Distillation>(options.label_smoothing, options.distillation,
                                               teacher);
       return std::make_unique<LabelSmoothedCrossEntropy>(options.label_smoothing);
     }},
    {ObjectiveKind::dpo, FrozenRole::reference,
     [](const ObjectiveOptions& options, const FrozenPointer& reference) -> ObjectivePointer {
       return std::make_unique<Dpo>(options.dpo, reference);
     }},
};

const ObjectiveRow& row_of(ObjectiveKind kind) {
  const auto* const row = std::ranges::find(kObjectives, kind, &ObjectiveRow::kind);
  require_argument(row != std::end(kObjectives), "trainer", "objective", " has the unknown kind ",
                   static_cast<int>(kind));
  return *row;
}

}  // namespace

FrozenRole frozen_role(ObjectiveKind kind) {
  return row_of(kind).role;
}

ObjectivePointer make_objective(const ObjectiveOptions& options, const FrozenPointer& frozen) {
  const ObjectiveRow& row = row_of(options.kind);
  require(!frozen || frozen->role == row.role, ErrorCode::invalid_argument, "objective",
          "the model has a ", role_name(frozen ? frozen->role : row.role), ", and the objective ",
          enum_name(options.kind), " has none");
  return row.make(options, frozen);
}

}  // namespace trafo
