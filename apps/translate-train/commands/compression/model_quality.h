// Measures how much quality a model has lost by compression.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commands/commands.h"

namespace translate_train {

struct Quality {
  double cross_entropy = 0;  // nats a target token
  double bleu = 0;
};

// Two lines: both models, and the differences of the second one.
std::string compared(const char* first_name, const Quality& first, const char* second_name,
                     const Quality& second);

// Measures models on validation pairs.
class ValidationPairs {
 public:
  // files: SRC TRG. A usage error: no pair.
  ValidationPairs(const std::vector<std::string>& files, const trafo_tokenizer* tokenizer);

  Quality quality(trafo_model* model) const { return {cross_entropy(model), bleu(model)}; }
  double cross_entropy(trafo_model* model) const;
  double bleu(trafo_model* model) const;

 private:
  const trafo_tokenizer* tokenizer_;
  std::vector<std::string> source_, target_;
};

// A matrix whose outputs differ from the outputs of the model before.
struct MeasuredMatrix {
  std::string name;
  int64_t rows, columns;
  double signal_to_noise;  // dB
};

// The matrices of a model that `wanted` says, the worst first.
std::vector<MeasuredMatrix> measured_matrices(
    const trafo_model* model, const std::function<bool(const trafo_parameter_info&)>& wanted);

// Pairs SRC TRG in memory.
Corpus load_corpus(const std::vector<std::string>& files);
// A sample of training data on disk: SRC TRG, or one text for a decoder-lm, of which `flag` gave
// the files. A usage error: an encoder-decoder without pairs.
Corpus open_sample(const char* flag, const std::vector<std::string>& files, bool encoder);

double megabytes(uintmax_t bytes);

}  // namespace translate_train
