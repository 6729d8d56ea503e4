// Models with quantized weights, made from float models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/compress/calibration.h"
#include "engine/core/cancel.h"
#include "engine/core/generated/option_enums.h"

namespace trafo {

enum class QuantizeMethod : int32_t {
  nearest = 0,  // each weight to the nearest code
  gptq = 1      // quant/gptq.h, of int4
};

struct QuantizeOptions {
  int64_t bits = 8;  // 8: a scale for each row; 4: a scale for each 32 columns of a row
  QuantizeMethod method = QuantizeMethod::nearest;
  std::vector<std::string> keep_float = {};  // patterns of names of matrices that stay float32
  // Pairs that show what the layers multiply; null: none. At most kCalibrationTokens target tokens
  // of them are read.
  const TokenizedCorpus* calibration = nullptr;
  int32_t start_id = 0;                 // what the decoder begins with
  const CancelToken* cancel = nullptr;  // CANCELLED between two layers or matrices
};

// A model with the same values, quantized; norms, biases and learned positions are rounded to
// bfloat16, an adapter stays float32. `model` is unchanged at the
// end. ParameterStore::signal_to_noise of a quantized matrix W, with calibration pairs: 10 log10
// (sum y^2 / sum (y - q)^2) of what its layer gives, y = x W^T, and of what the quantized one gives
// for the same x, q; where no layer has multiplied with W, and without pairs, the same of the
// weights. Matrices without any error have infinity.
//
// INVALID_ARGUMENT: options out of range, GPTQ without calibration pairs or without int4,
// calibration without a pair or for another architecture, a weight that is not finite. NOT_FOUND: a
// pattern that no matrix matches. UNSUPPORTED: a model that does not compute in float32 on the CPU,
// or has int8 weights.
std::unique_ptr<Model> quantize_model(Context& context, Model& model,
                                      const QuantizeOptions& options);

}  // namespace trafo
