// Low rank: matrices of a trained model's linear layers become products of two smaller ones.
//
// A layer multiplies its inputs X [T, columns] with W [rows, columns]. The factors u [rows, r] and
// v [r, columns] are those with the least || X W^T - X (u v)^T ||, the truncated singular value
// decomposition of W L for X^T X / T = L L^T (whitening; SVD-LLM, Wang et al., arXiv 2403.07378):
//
//   W L = U S V^T    u v = U_r S_r V_r^T L^-1 = U_r U_r^T W    error^2 = sum of S_i^2 over i > r
//
// u and v are scaled so that column i of u is as long as row i of v.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/models/model.h"

namespace trafo {

// Of `rank` and `ratio`, one is given.
struct FactorizeOptions {
  // Of all matrices; 0: ratio chooses.
  int64_t rank = 0;
  // Share of the weights of the wanted matrices that stays, above 0 and below 1; 0: rank says.
  // Ranks are multiples of 8, chosen so that the shares of output energy that the matrices lose
  // have a small sum: components are kept in the order of what they bring for each weight.
  double ratio = 0;
  std::vector<std::string> layers;  // patterns of names of matrices (matches_pattern); empty: all
  const TokenizedCorpus* calibration = nullptr;  // needed
  int32_t start_id = 0;  // what the decoder begins with, of the calibration pairs
};

// The model with factors in place of matrices, on the same context, in the dtype of the masters and
// with everything trainable. `model` is unchanged at the end. The matrices are the ones of
// ParameterStore::prunable. A matrix whose factors would be no smaller stays whole.
// ParameterStore::signal_to_noise of an outer factor is the ratio of the layer's outputs on the
// calibration data, which have 1 % of the mean of their diagonal added to X^T X / T, as in GPTQ.
//
// INVALID_ARGUMENT: an option, by name; no calibration data, or for another architecture; a ratio
// that ranks of 8 exceed; a rank with which no matrix is smaller; the model is factorized already,
// or has an adapter. NOT_FOUND: a pattern that matches no matrix. UNSUPPORTED: int8 weights.
// NON_FINITE: a weight or an input of a layer is not finite. CANCELLED: the token was set
// meanwhile.
std::unique_ptr<Model> factorize(Context& context, Model& model, const FactorizeOptions& options,
                                 const CancelToken* cancel = nullptr);

}  // namespace trafo
