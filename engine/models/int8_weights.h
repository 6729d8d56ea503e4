// int8 weights in model files. A file says {"quantization": "int8"} in its metadata. A matrix NAME
// that a model reads as int8 is then the codes, I8 [rows, columns], and NAME.scale F32 [rows];
// everything else is F32, as in a float file. backend/cpu/int8_matrix.h has the formula.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/models/model.h"

namespace trafo {

inline constexpr const char* kQuantizationKey = "quantization";

// Whether the file has int8 weights. CORRUPT_FILE if it has I8 tensors and does not say so.
// UNSUPPORTED for another quantization, of a later release.
bool has_int8_weights(const SafetensorsReader& reader);

// Fills a model that was made with int8 weights: the codes of an int8 file as they are, the values
// of a float32 file quantized, one matrix after the other. CORRUPT_FILE, naming what is missing,
// surplus, damaged, or of another shape or dtype. UNSUPPORTED for a matrix with rows that are too
// long for int8.
void read_int8_weights(Context& context, const SafetensorsReader& reader, Model& model);

// Adds the codes and scales of a model's int8 weights to the entries of its file, and the pair to
// the metadata. The entries point into `storage`.
void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata);

}  // namespace trafo
