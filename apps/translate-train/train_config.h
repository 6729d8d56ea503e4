// From settings by name to the library's options, and the defaults of each task.
#pragma once

#include <string>
#include <vector>

#include "settings.h"
#include "trafo_handles.h"

namespace translate_train {

struct TrainConfig {
  trafo_model_config model;  // vocabulary and precision still to be set
  trafo_trainer_options trainer;
  uint64_t seed = 1;
};

// The task of a corpus of so many pairs.
const char* task_for(int64_t pairs, bool decoder_lm);
// Everything that has not been set.
void fill_defaults(Settings& settings, int64_t pairs);
// The settings are complete. Throws usage errors.
TrainConfig resolve(const Settings& settings);
// "1000u", "2Mt", "10e"; no unit means updates.
trafo_period parse_period(const Settings& settings, const std::string& name,
                          const std::string& text);

}  // namespace translate_train
