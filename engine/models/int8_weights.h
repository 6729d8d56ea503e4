// Quantized weights in model files. The metadata say which matrices have codes, of those that a
// model reads as int8:
//
//   {"quantization": "int8"}    all of them: NAME is I8 [rows, columns]
//   {"quantization": "mixed"}   each has int8 codes as above, or int4 codes, NAME U8 [rows,
//                               (columns + 1) / 2] with NAME.scale F16 [rows, (columns + 31) / 32],
//                               or is F32 [rows, columns]
//   {"quantization": "base"}    the matrices of linear layers have codes of the base_precision of
//                               the configuration (base_sections() of quant/base_codes.h), and all
//                               else is as in a file of floats. The model is trained. What follows
//                               is not about such files.
//
// Two tensors hold what many small ones would, in the order of their names, one after another:
//
//   scales    BF16, the scales of the rows of every matrix with int8 codes
//   vectors   BF16, every parameter of one dimension: norms and biases
//
// Learned positions are BF16, adapters F32. Quantization rounds norms, biases and positions to
// bfloat16, and the model computes with the rounded values.
//
// quant/int8_matrix.h and int4_matrix.h have the formulas.
#pragma once

#include <vector>

#include "engine/io/safetensors.h"
#include "engine/models/model.h"

namespace trafo {

inline constexpr const char* kQuantizationKey = "quantization";
inline constexpr const char* kScalesName = "scales";
inline constexpr const char* kVectorsName = "vectors";
inline constexpr const char* kInt4Type = "U8";

inline constexpr const char* kBaseQuantization = "base";

enum class StoredWeights { floats, int8, mixed };

// Contents of the file: floats also beside frozen matrices in few bits. CORRUPT_FILE if it has
// codes and does not say so. UNSUPPORTED for another quantization, of a later release.
StoredWeights stored_weights(const SafetensorsReader& reader);

// Fills a model that was made with int8 weights: the codes and matrices of a quantized file as they
// are, the values of a float32 file quantized, one matrix after the other. CORRUPT_FILE, naming
// what is missing, surplus, damaged, or of another shape or dtype. UNSUPPORTED for a matrix with
// rows that are too long for int8.
void read_int8_weights(Context& context, const SafetensorsReader& reader, Model& model);

// Sets a norm, a bias or positions of a quantized model: rounded to bfloat16. INVALID_ARGUMENT,
// naming the parameter: a finite value that is too large for bfloat16.
void set_rounded(Context& context, ParameterStore& parameters, ParamId id,
                 std::vector<float> values);

// Turns `entries`, the float32 parameters of a model with quantized weights, into the entries of
// its file: adds codes and scales, and rounds the others to bfloat16. Adds the pair to the
// metadata. The entries point into `storage`. INVALID_ARGUMENT, naming it: a norm, a bias or
// positions that bfloat16 does not represent.
void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata);

}  // namespace trafo
