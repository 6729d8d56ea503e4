// README.md of an exported directory: what the model is, and what its run measured.
#pragma once

#include <string>

#include "commands/trafo_handles.h"

namespace translate_train {

struct ModelCard {
  const trafo_model* model = nullptr;
  std::string
      model_path;       // of the file that was exported, perhaps RUN/ckpt/UPDATE/model.safetensors
  std::string format;   // "hf-llama", ...
  std::string weights;  // of --weights; empty: the format's usual ones
};

// Markdown with the metadata of the Hugging Face Hub in front. RUN/metrics.jsonl has the figures
// of the exported checkpoint. If the file is in no run directory, the card
// says that there are none.
std::string model_card(const ModelCard& card);

}  // namespace translate_train
