#include "engine/objective/registry.h"

namespace trafo {
namespace {

using TeacherPointer = std::shared_ptr<const Teacher>;

struct ObjectiveKind {
  bool (*is_wanted)(const ObjectiveOptions& options, const TeacherPointer& teacher);
  std::unique_ptr<Objective> (*make)(const ObjectiveOptions& options,
                                     const TeacherPointer& teacher);
};

// The first one that is wanted is made.
constexpr ObjectiveKind kObjectiveKinds[] = {
    {[](const ObjectiveOptions&, const TeacherPointer& teacher) { return teacher != nullptr; },
     [](const ObjectiveOptions& options,
        const TeacherPointer& teacher) -> std::unique_ptr<Objective> {
       return std::make_unique<Distillation>(options.label_smoothing, options.distillation,
                                             teacher);
     }},
    {[](const ObjectiveOptions&, const TeacherPointer&) { return true; },
     [](const ObjectiveOptions& options, const TeacherPointer&) -> std::unique_ptr<Objective> {
       return std::make_unique<LabelSmoothedCrossEntropy>(options.label_smoothing);
     }},
};

}  // namespace

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options,
                                          const std::shared_ptr<const Teacher>& teacher) {
  for (const ObjectiveKind& kind : kObjectiveKinds)
    if (kind.is_wanted(options, teacher)) return kind.make(options, teacher);
  fail(ErrorCode::internal, "objective", "no objective fits the options");
}

}  // namespace trafo
