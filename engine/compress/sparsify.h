// Unstructured pruning of a trained model: single weights of its linear layers become zero. The
// shape of the model does not change.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/core/cancel.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/models/model.h"

namespace trafo {

// Score of a weight; the weights with the lowest scores become zero.
enum class PruneScore : int32_t {
  // |W[i, j]|, compared with all weights of the matrix (Han et al., arXiv 1506.02626).
  magnitude = 0,
  // |W[i, j]| ||x[:, j]||_2, x the inputs of the layer over the calibration pairs; compared with
  // the
  // weights of the same row (Wanda, Sun et al., arXiv 2306.11695).
  wanda = 1
};

enum class SparsityPattern : int32_t {
  unstructured = 0,
  // Of each four neighbours of a row, the two with the highest scores stay (Mishra et al., arXiv
  // 2104.08378).
  two_of_four = 1
};

struct SparsifyOptions {
  double sparsity = 0.5;  // share of the weights that becomes zero, at least 0 and below 1
  PruneScore score = PruneScore::magnitude;
  SparsityPattern pattern = SparsityPattern::unstructured;  // two_of_four: sparsity is 0.5
  const TokenizedCorpus* calibration = nullptr;             // Wanda needs it; null: none
  int32_t start_id = 0;  // what the decoder begins with, of the calibration pairs
};

// The model with zeros, on the same context, in the dtype of the masters and with everything
// trainable. `model` is unchanged at the end. The matrices of ParameterStore::prunable are pruned.
// Of equal scores, the first weights become zero.
//
// INVALID_ARGUMENT: an option, by name; Wanda without calibration data; a row whose length is no
// multiple of four; the model has an adapter. UNSUPPORTED: int8 weights. NON_FINITE: a weight or an
// input of a layer is not finite. CANCELLED: the token was set meanwhile.
std::unique_ptr<Model> sparsify(Context& context, Model& model, const SparsifyOptions& options,
                                const CancelToken* cancel = nullptr);

// Elements of a parameter that are exactly zero; of int8 weights, codes.
int64_t count_zeros(const Context& context, const ParameterStore& parameters, ParamId id);

}  // namespace trafo
