// Element types. The CPU computes in f32 and f64 and stores bf16. CUDA computes in f32 and bf16.
// i32 is for token ids, positions and boundaries.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace trafo {

// Values are part of the C ABI and of checkpoint files: never renumber, only append.
enum class DType : int32_t { f32 = 0, f64 = 1, bf16 = 2, i32 = 3 };

inline constexpr int32_t kDTypeCount = 4;

constexpr size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
  }
  return 0;
}

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::i32:
      return "int32";
  }
  return "unknown";
}

constexpr bool is_floating(DType dtype) {
  return dtype != DType::i32;
}
constexpr bool is_compute(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64;
}

// The dtype of values for which bf16 has too few digits: row statistics, losses and their weights,
// gradients of parameters and the master weights.
constexpr DType stat_dtype(DType dtype) {
  return dtype == DType::bf16 ? DType::f32 : dtype;
}

// bfloat16: the upper half of a float32, rounded to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits;

  static BFloat16 from_float(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
    u += 0x7fffu + ((u >> 16) & 1u);
    return {static_cast<uint16_t>(u >> 16)};
  }
  float to_float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;

}  // namespace trafo
