// From settings to the library's options of a run, and the defaults of each task.
#pragma once

#include <string>

#include "commands/trafo_handles.h"
#include "settings/setting_types.h"

namespace translate_train {

// A model that training begins with instead of random weights.
struct Pretrained {
  std::string model, vocabulary;  // files
  trafo_model_config config{};
};
struct TrainConfig {
  trafo_model_config model;  // vocabulary and precision still to be set
  trafo_trainer_options trainer;
  uint64_t seed = 1;
};

// False: one sequence holds source and target.
bool has_encoder(const trafo_model_config& config);
// The task of a corpus of this many pairs.
const char* task_for(int64_t pairs, bool decoder_only);
// The objective that is set, or cross-entropy.
const ObjectiveSpec& objective_of(const Settings& settings);
// The objective is of an encoder.
bool trains_encoder(const Settings& settings);
// The training data are pairs of answers to a prompt.
bool has_preferences(const Settings& settings);
// --train-sets has one file: text without a source, unless it is JSON lines.
bool is_monolingual(const Settings& settings);
// Whether the data are files of token ids, each a corpus of text without a source.
bool has_token_files(const Settings& settings);
// Sets everything that has not been set: by the pretrained model, if there is one (null: none), the
// task and, where no task is set, the number of pairs.
void fill_defaults(Settings& settings, const Pretrained* pretrained, int64_t pairs);
// The settings are complete. Options that decide the shape of weights come from the pretrained
// model. Throws usage errors.
TrainConfig resolve(const Settings& settings, const Pretrained* pretrained);
// Throws what the library has against these values together, before there are a corpus, a
// vocabulary and a model: it plans an update of one pair.
void check_together(const TrainConfig& config);

}  // namespace translate_train
