#include "tests/fuzz/targets.h"

namespace trafo::fuzz {

std::span<const Target> all_targets() {
  static constexpr Target kTargets[] = {
      {"safetensors", run_safetensors, safetensors_seeds},
      {"checkpoint", run_checkpoint, checkpoint_seeds},
      {"config", run_config, config_seeds},
      {"corpus", run_corpus, corpus_seeds},
      {"sentencepiece", run_sentencepiece, sentencepiece_seeds},
      {"training", run_training, training_seeds},
      {"vocabulary", run_vocabulary, vocabulary_seeds},
      {"token_files", run_token_files, token_files_seeds},
      {"chat", run_chat, chat_seeds},
      {"json_schema", run_json_schema, json_schema_seeds},
      {"importer", run_importer, importer_seeds},
      {"torch", run_torch, torch_seeds},
#ifdef TRAFO_FUZZ_PROGRAM  // of builds that have translate-train
      {"arguments", run_arguments, arguments_seeds},
#endif
      {"c_api", run_c_api, c_api_seeds},
  };
  return kTargets;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : all_targets())
    if (name == target.name) return &target;
  return nullptr;
}

}  // namespace trafo::fuzz
