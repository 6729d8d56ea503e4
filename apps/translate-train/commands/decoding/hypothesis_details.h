// The fields that --word-scores and --alignment add to a hypothesis, in the format of Marian.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "commands/trafo_handles.h"

namespace translate_train {

class HypothesisDetails {
 public:
  // Adds both flags to the group.
  void add_flags(CLI::App& app, const char* group);
  // Checks the flags and asks for what they want.
  void read(trafo_translate_options& options) const;
  // " ||| 0-0 1-1 ||| WordScores= -0.12345 -0.54321", the fields that are asked for; nothing
  // without the flags. Each field follows " ||| ", also an empty one, so that columns stay.
  std::string text(const trafo_translations* translations, size_t line, size_t rank) const;
  // The same fields without values, of a pair that was not scored.
  std::string empty_text() const;
  // The same as members `word_scores` and `alignment` of a JSON object.
  void write(const trafo_translations* translations, size_t line, size_t rank,
             nlohmann::ordered_json& object) const;

 private:
  bool wants_alignment() const {
    return alignment_flag_ != nullptr && alignment_flag_->count() > 0;
  }
  bool soft() const { return mode_ == "soft"; }
  // 1: the source token of largest weight; below: all with a larger weight.
  double threshold() const;

  bool word_scores_ = false;
  CLI::Option* alignment_flag_ = nullptr;
  std::string mode_;  // soft, hard (also empty) or a threshold
};

}  // namespace translate_train
