// The fuzzing targets: what reads files and calls of strangers, each as a function of bytes.
//
// A target returns when the input was taken or refused with an error that a user may see; anything
// else (another exception, INTERNAL, a sanitizer's report) ends the process, which is the finding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trafo::fuzz {

using Bytes = std::string_view;
// An input of the first corpus: a name, and bytes made by the library's own writers.
struct Seed {
  std::string name;
  std::string bytes;
};

struct Target {
  const char* name;
  void (*run)(Bytes input);
  std::vector<Seed> (*seeds)();
};

std::span<const Target> all_targets();
const Target* find_target(std::string_view name);

void run_safetensors(Bytes input);
void run_checkpoint(Bytes input);
void run_config(Bytes input);
void run_corpus(Bytes input);
void run_sentencepiece(Bytes input);
void run_training(Bytes input);
void run_vocabulary(Bytes input);
void run_chat(Bytes input);
void run_json_schema(Bytes input);
void run_token_files(Bytes input);
void run_importer(Bytes input);
void run_torch(Bytes input);
void run_arguments(Bytes input);
void run_c_api(Bytes input);

std::vector<Seed> safetensors_seeds();
std::vector<Seed> checkpoint_seeds();
std::vector<Seed> config_seeds();
std::vector<Seed> corpus_seeds();
std::vector<Seed> sentencepiece_seeds();
std::vector<Seed> training_seeds();
std::vector<Seed> vocabulary_seeds();
std::vector<Seed> chat_seeds();
std::vector<Seed> json_schema_seeds();
std::vector<Seed> token_files_seeds();
std::vector<Seed> importer_seeds();
std::vector<Seed> torch_seeds();
std::vector<Seed> arguments_seeds();
std::vector<Seed> c_api_seeds();

}  // namespace trafo::fuzz
