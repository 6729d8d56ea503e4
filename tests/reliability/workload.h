// A small training run over the C ABI: what the suites about memory, threads and long runs work
// on. Every call hands its error on, so that a caller can make it fail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capi/include/trafo.h"

namespace trafo::testing {

struct WorkloadOptions {
  int32_t device = TRAFO_DEVICE_CPU;
  int32_t threads = 1;
  uint64_t seed = 1;
  int64_t width = 16;
  int32_t gradient_accumulation = 1;
  double smoothing = 0;
  size_t pairs = 12;          // of the corpus, at most source_lines().size()
  std::string run_directory;  // empty: nothing is saved
};

class Workload {
 public:
  explicit Workload(WorkloadOptions options);
  ~Workload() { free_all(); }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // Each leaves its handle null if it fails.
  trafo_error* make_context();
  trafo_error* make_corpus();
  trafo_error* make_tokenizer();
  trafo_error* make_model();
  trafo_error* make_trainer();
  void make_all();  // ends the process with a message if one fails

  trafo_error* step(trafo_step_result* out) { return trafo_trainer_step(trainer, nullptr, out); }
  trafo_error* translate(int32_t beam, trafo_translations** out);
  static std::string text_of(const trafo_translations* translations);

  void free_trainer();
  void free_all();

  // Every byte of the parameters.
  std::string weights() const;
  trafo_memory_stats memory() const;

  WorkloadOptions options;
  trafo_context* context = nullptr;
  trafo_corpus* corpus = nullptr;
  trafo_tokenizer* tokenizer = nullptr;
  trafo_model* model = nullptr;
  trafo_trainer* trainer = nullptr;
};

// Ends the process with the error's message.
void must(trafo_error* error);
// The pairs that every workload trains on.
const std::vector<trafo_string_view>& source_lines();
const std::vector<trafo_string_view>& target_lines();

}  // namespace trafo::testing
