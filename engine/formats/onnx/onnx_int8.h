// Matrices of an ONNX model in int8, with codes of 7 bits.
//
// Processors without VNNI add two products of an 8-bit activation (0 to 255) and an 8-bit weight in
// 16 bits, which overflow with codes up to 127 (the instruction then gives its limit). With codes
// of at most 64 the sum is at most 2 * 255 * 64 = 32640, so that all processors compute the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trafo::interop {

inline constexpr int kOnnxCodes = 64;  // codes are -64 .. 64

// value = code * scale, with a scale for each output of the matrix. Codes are integers in float32.
struct OnnxCodes {
  std::vector<float> codes, scales;
};

// `values` is a matrix of `columns` columns. Its outputs are the columns if `by_column`, else the
// rows. A scale is max|w| / 64 of its values, at least the smallest normal float32, and 1 for
// zeros.
OnnxCodes to_onnx_codes(std::span<const float> values, int64_t columns, bool by_column);
std::vector<float> from_onnx_codes(const OnnxCodes& stored, int64_t columns, bool by_column);

// CORRUPT_FILE naming `label` unless every value that was read is within half a step of the scale
// that the original has.
void check_onnx_codes(const std::string& label, std::span<const float> original,
                      std::span<const float> read, int64_t columns, bool by_column);

}  // namespace trafo::interop
