// Written by scripts/generate_options.py from schema/evaluation.toml: change that.
// clang-format off
#pragma once

#include "engine/core/option_field.h"
#include "engine/metrics/evaluation.h"

namespace trafo {

// visit(OptionField, member) for every member of EvaluationOptions.
template <class Options, class Visit>
void for_each_field_of_evaluation(Options& o, Visit visit) {
  visit(OptionField{.name = "tokenize"}, o.tokenize);
  visit(OptionField{.name = "lowercase"}, o.lowercase);
  visit(OptionField{.name = "confidence"}, o.confidence);
  visit(OptionField{.name = "resamples", .low = 1, .high = 1048576}, o.resamples);
  visit(OptionField{.name = "seed"}, o.seed);
}

}  // namespace trafo
