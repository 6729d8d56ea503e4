// Codes of frozen matrices beside which an adapter is trained (QLoRA, Dettmers et al., arXiv
// 2305.14314). A matrix is one block of bytes, the same on every device, which computes with its
// values by dequantizing a part of it at a time (ops/quantized_linear).
//
//   nf4    value = kNormalFloat[code] * absmax, for blocks of 64 elements of the matrix, counted
//          row by row. Double quantization: the absmax of a block is a code as well,
//          absmax = kDynamicCode[c] * nested_absmax + offset, with a nested_absmax for 256 blocks
//          and one offset for the matrix. Codes, blocks and their order are those of bitsandbytes:
//          the first element of a byte is in its high bits.
//   int8   formats::kInt8: value = code * scale, a scale for each row
//   int4   formats::kInt4: the same for each 32 columns of a row; codes as in Int4Matrix
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/generated/option_enums.h"

namespace trafo {

namespace base_codes {

inline constexpr int64_t kBlock = 64;         // elements of nf4 that share an absmax
inline constexpr int64_t kNestedBlock = 256;  // blocks that share a nested_absmax
inline constexpr int64_t kGroup = 32;         // columns of int4 that share a scale
inline constexpr int64_t kAlignment = 16;     // bytes, of each section

// The NF4 data type (QLoRA, appendix E): 16 quantiles of the normal distribution, scaled to
// [-1, 1], of which one is zero.
inline constexpr std::array<float, 16> kNormalFloat = {-1.0f,
                                                       -0.6961928009986877f,
                                                       -0.5250730514526367f,
                                                       -0.39491748809814453f,
                                                       -0.28444138169288635f,
                                                       -0.18477343022823334f,
                                                       -0.09105003625154495f,
                                                       0.0f,
                                                       0.07958029955625534f,
                                                       0.16093020141124725f,
                                                       0.24611230194568634f,
                                                       0.33791524171829224f,
                                                       0.44070982933044434f,
                                                       0.5626170039176941f,
                                                       0.7229568362236023f,
                                                       1.0f};

// The dynamic tree data type with a sign (Dettmers, arXiv 1511.04561): for e = 0 .. 6 the centres
// of 2^e equal parts of 0.1 .. 1, times 10^(e - 6), with both signs; 0 and 1. Ascending.
constexpr std::array<float, 256> make_dynamic_code() {
  constexpr std::array<float, 7> kPowers = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::array<float, 256> code{};
  size_t next = 128;  // the first positive code
  for (size_t e = 0; e < kPowers.size(); ++e) {
    const int parts = 1 << e;
    const float step = 0.9f / static_cast<float>(parts);
    // As torch.linspace: from the nearer end, rounded once.
    const auto boundary = [&](int i) {
      const double from_end = i < (parts + 1) / 2 ? i : i - parts;
      const double end = i < (parts + 1) / 2 ? 0.1f : 1.0f;
      return static_cast<float>(end + static_cast<double>(step) * from_end);
    };
    for (int i = 0; i < parts; ++i, ++next) {
      code[next] = kPowers[e] * ((boundary(i) + boundary(i + 1)) / 2.0f);
      code[254 - next] = -code[next];
    }
  }
  code[255] = 1.0f;
  return code;
}
inline constexpr std::array<float, 256> kDynamicCode = make_dynamic_code();

constexpr int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// Offsets in the bytes of a matrix.
struct Places {
  int64_t codes;   // 0
  int64_t scales;  // of nf4: the codes of absmax, uint8; else float32 (int8) or float16 (int4)
  int64_t nested;  // of nf4: nested_absmax, float32
  int64_t offset;  // of nf4: float32
  int64_t bytes;   // of all
};

constexpr Places places_of(BasePrecision precision, int64_t rows, int64_t columns) {
  const auto aligned = [](int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; };
  Places places{};
  switch (precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4: {
      const int64_t blocks = ceil_div(rows * columns, kBlock);
      places.scales = aligned(ceil_div(rows * columns, 2));
      places.nested = places.scales + aligned(blocks);
      places.offset = places.nested + aligned(4 * ceil_div(blocks, kNestedBlock));
      places.bytes = places.offset + aligned(4);
      break;
    }
    case BasePrecision::int8:
      places.scales = aligned(rows * columns);
      places.bytes = places.scales + aligned(4 * rows);
      break;
    case BasePrecision::int4:
      places.scales = aligned(rows * ceil_div(columns, 2));
      places.bytes = places.scales + aligned(2 * rows * ceil_div(columns, kGroup));
      break;
  }
  return places;
}

}  // namespace base_codes

// A part of a matrix: rows and columns from the first ones on.
struct MatrixTile {
  int64_t row, column, rows, columns;
};

// Writes the codes of values [rows, columns] into `bytes` (Places::bytes of them).
// INVALID_ARGUMENT, naming its row and column: a value that is not finite.
void encode_base(BasePrecision precision, std::span<const float> values, int64_t rows,
                 int64_t columns, std::span<std::byte> bytes);
// Writes the values of a part, contiguous.
void decode_base(BasePrecision precision, const std::byte* bytes, int64_t rows, int64_t columns,
                 const MatrixTile& part, float* values);
void decode_base(BasePrecision precision, const std::byte* bytes, int64_t rows, int64_t columns,
                 const MatrixTile& part, double* values);

// The tensors of a model file that hold a matrix NAME: the sections of its bytes.
struct BaseSection {
  std::string suffix;  // after NAME
  const char* type;    // of safetensors
  std::vector<int64_t> shape;
  size_t offset, bytes;
};
std::vector<BaseSection> base_sections(BasePrecision precision, int64_t rows, int64_t columns);
// INVALID_ARGUMENT: codes or scales that encode_base does not write, such as a scale that is
// negative or not finite.
void check_base_codes(BasePrecision precision, std::span<const std::byte> bytes, int64_t rows,
                      int64_t columns);

}  // namespace trafo
