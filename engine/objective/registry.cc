#include "engine/objective/registry.h"

#include <algorithm>

#include "engine/core/argument_error.h"

namespace trafo {
namespace {

struct ObjectiveRow {
  ObjectiveKind kind;
  FrozenRole role;  // of its other model, which may be null; none: it is null
  bool preferences, answers_apart;
  std::unique_ptr<Objective> (*make)(const ObjectiveOptions& options,
                                     const std::shared_ptr<const FrozenModel>& frozen);
};

constexpr ObjectiveRow kObjectives[] = {
#define TRAFO_OBJECTIVE(name, role, preferences, answers_apart) \
  {ObjectiveKind::name, FrozenRole::role, preferences, answers_apart, make_##name},
#include "engine/objective/generated/objectives.def"
#undef TRAFO_OBJECTIVE
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

bool needs_preferences(ObjectiveKind kind) {
  return row_of(kind).preferences;
}

bool answers_apart(ObjectiveKind kind) {
  return row_of(kind).answers_apart;
}

std::string preference_objectives(bool labelled) {
  std::string names;
  for (const ObjectiveRow& row : kObjectives)
    if (labelled ? row.answers_apart : row.preferences)
      names += concat(names.empty() ? "" : ", ", enum_name(row.kind));
  return names;
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options,
                                          const std::shared_ptr<const FrozenModel>& frozen) {
  const ObjectiveRow& row = row_of(options.objective);
  require(!frozen || frozen->role == row.role, ErrorCode::invalid_argument, "objective",
          "the model has a ", role_name(frozen ? frozen->role : row.role), ", and the objective ",
          enum_name(options.objective), " has none");
  return row.make(options, frozen);
}

}  // namespace trafo
