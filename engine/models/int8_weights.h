// Quantized weights in model files. The metadata say which matrices have codes, of those that a
// model reads as int8:
//
//   {"quantization": "int8"}    all of them: NAME is I8 [rows, columns], NAME.scale BF16 [rows],
//                               or F32 [rows] if bfloat16 does not hold the scales
//   {"quantization": "mixed"}   each has int8 codes as above, or int4 codes, NAME U8 [rows,
//   (columns
//                               + 1) / 2] with NAME.scale F16 [rows, (columns + 31) / 32], or is
//                               F32 [rows, columns]
//
// Everything else is F32, as in a float file. backend/cpu/int8_matrix.h and int4_matrix.h have the
// formulas.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/models/model.h"

namespace trafo {

inline constexpr const char* kQuantizationKey = "quantization";

enum class StoredWeights { floats, int8, mixed };

// What the file has. CORRUPT_FILE if it has codes and does not say so. UNSUPPORTED for another
// quantization, of a later release.
StoredWeights stored_weights(const SafetensorsReader& reader);

// Fills a model that was made with int8 weights: the codes and matrices of a quantized file as they
// are, the values of a float32 file quantized, one matrix after the other. CORRUPT_FILE, naming
// what is missing, surplus, damaged, or of another shape or dtype. UNSUPPORTED for a matrix with
// rows that are too long for int8.
void read_int8_weights(Context& context, const SafetensorsReader& reader, Model& model);

// Adds the codes and scales of a model's quantized weights to the entries of its file, and the pair
// to the metadata. The entries point into `storage`.
void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata);

}  // namespace trafo
