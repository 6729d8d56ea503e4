// The kinds of objectives: a row of [objective] in schema/enums.toml, and make_NAME in a folder.
#pragma once

#include <memory>
#include <string>

#include "engine/objective/frozen_model.h"
#include "engine/objective/objective.h"
#include "engine/objective/objective_options.h"

namespace trafo {

// The role of the other model of an objective, which may be none.
FrozenRole frozen_role(ObjectiveKind kind);
// Whether it learns from preference pairs, as Objective::needs_preferences() says.
bool needs_preferences(ObjectiveKind kind);
// Whether each answer is a row by itself, as TokenizedCorpusOptions::answers_apart says, so that
// answers may have labels instead of a second one.
bool answers_apart(ObjectiveKind kind);
// The names of the objectives that learn from pairs or, `labelled`, from labelled answers, for
// messages.
std::string preference_objectives(bool labelled);

// `frozen`: the other model of the objective, or null. INVALID_ARGUMENT: the objective has no model
// of this role.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options,
                                          const std::shared_ptr<const FrozenModel>& frozen);

// The factory of each objective; make_objective calls them.
#define TRAFO_OBJECTIVE(name, ...)                                \
  std::unique_ptr<Objective> make_##name(const ObjectiveOptions&, \
                                         const std::shared_ptr<const FrozenModel>& frozen);
#include "engine/objective/generated/objectives.def"
#undef TRAFO_OBJECTIVE

}  // namespace trafo
