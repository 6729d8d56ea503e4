// Written by scripts/generate_options.py from schema/decoding.toml: change that.
// clang-format off
#pragma once

#include "engine/core/option_field.h"
#include "engine/decode/options.h"

namespace trafo {

// visit(OptionField, member) for every member of DecodeOptions.
template <class Options, class Visit>
void for_each_field_of_decoding(Options& o, Visit visit) {
  visit(OptionField{.name = "beam", .low = 1, .high = 4096}, o.beam);
  visit(OptionField{.name = "n_best", .low = 1, .high = 4096}, o.n_best);
  visit(OptionField{.name = "length_penalty", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "no normalisation"}, o.length_penalty);
  visit(OptionField{.name = "min_length", .low = 0, .high = kNoLimit, .high_inside = false}, o.min_length);
  visit(OptionField{.name = "batch_tokens", .low = 1, .high = kNoLimit, .high_inside = false}, o.batch_tokens);
  visit(OptionField{.name = "repetition_penalty", .low = 0, .high = kNoLimit, .low_inside = false, .high_inside = false}, o.repetition_penalty);
  visit(OptionField{.name = "presence_penalty", .low = -2, .high = 2}, o.presence_penalty);
  visit(OptionField{.name = "frequency_penalty", .low = -2, .high = 2}, o.frequency_penalty);
  visit(OptionField{.name = "no_repeat_ngram_size", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "any may repeat"}, o.no_repeat_ngram_size);
  visit(OptionField{.name = "word_scores"}, o.word_scores);
  visit(OptionField{.name = "alignment"}, o.alignment);
  visit(OptionField{.name = "alignment_layer", .low = 0, .high = 1024, .zero = "the last but one"}, o.alignment_layer);
  visit(OptionField{.name = "sampling"}, o.sampling.on);
  visit(OptionField{.name = "temperature", .low = 0, .high = kNoLimit, .low_inside = false, .high_inside = false}, o.sampling.temperature);
  visit(OptionField{.name = "top_k", .low = 0, .high = kNoLimit, .high_inside = false, .zero = "all"}, o.sampling.top_k);
  visit(OptionField{.name = "top_p", .low = 0, .high = 1, .low_inside = false}, o.sampling.top_p);
  visit(OptionField{.name = "min_p", .low = 0, .high = 1, .zero = "all"}, o.sampling.min_p);
  visit(OptionField{.name = "seed"}, o.sampling.seed);
  visit(OptionField{.name = "first_line", .low = -kNoLimit, .high = kNoLimit}, o.sampling.first_line);
}

}  // namespace trafo
