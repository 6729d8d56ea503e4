// The int8 kernels of 64-bit ARM: the dot products of Armv8.2 and later, and NEON, which every such
// processor has.
//
// sdot adds four products of signed bytes to an int32 lane. NEON alone multiplies to 16 bits, which
// hold 127 * 128, and adds neighbours twice.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/os/processor.h"
#include "engine/quant/int8_kernel_list.h"
#include "hwy/base.h"

// Clang had the function only where every file may use the instruction, before version 16.
#if defined(__ARM_FEATURE_DOTPROD) || !defined(__clang__) || __clang_major__ >= 16
#define TRAFO_ARM_DOT_PRODUCT 1
#else
#define TRAFO_ARM_DOT_PRODUCT 0
#endif

namespace trafo {
namespace {

constexpr int64_t kPanelRows = Int8Matrix::kPanelRows;
constexpr int64_t kGroupColumns = Int8Matrix::kGroupColumns;
constexpr int64_t kGroupBytes = Int8Matrix::kGroupBytes;

bool has_neon() {
  return true;
}

float quantize(const float* x, int64_t count, uint8_t flip, uint8_t* codes) {
  // Magnitudes compare like their bits, and what is not finite is above the rest.
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t most4 = vdupq_n_u32(0);
  int64_t c = 0;
  for (; c + 4 <= count; c += 4)
    most4 = vmaxq_u32(most4, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + c)), magnitude));
  uint32_t largest = vmaxvq_u32(most4);
  for (; c < count; ++c) largest = std::max(largest, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
  const bool finite = largest < 0x7f800000u;
  const float most = std::bit_cast<float>(largest);
  if (!finite || most < 0x1p-100f) {
    std::memset(codes, flip, static_cast<size_t>(count));
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  // |x| / scale exceeds 127 by rounding errors at most, and rounds to 127 then.
  const auto [scale, factor] = group_scale(formats::kInt8, most);
  const auto words_at = [&](int64_t at) {
    return vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + at), factor)));
  };
  for (c = 0; c + 8 <= count; c += 8) {
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(words_at(c), words_at(c + 4)));
    vst1_u8(codes + c, veor_u8(vreinterpret_u8_s8(bytes), vdup_n_u8(flip)));
  }
  for (; c < count; ++c)
    codes[c] = static_cast<uint8_t>(static_cast<int8_t>(vcvtns_s32_f32(x[c] * factor))) ^ flip;
  return scale;
}

void dequantize(const int8_t* row, int64_t columns, float factor, const float* addend, float* y) {
  int64_t c = 0;
  for (; c + kGroupColumns <= columns; c += kGroupColumns, row += kGroupBytes) {
    const float32x4_t codes = {static_cast<float>(row[0]), static_cast<float>(row[1]),
                               static_cast<float>(row[2]), static_cast<float>(row[3])};
    vst1q_f32(y + c, addend ? vfmaq_n_f32(vld1q_f32(addend + c), codes, factor)
                            : vmulq_n_f32(codes, factor));
  }
  for (int64_t i = 0; c < columns; ++c, ++i) {
    const auto code = static_cast<float>(row[i]);
    y[c] = addend ? __builtin_fmaf(code, factor, addend[c]) : code * factor;
  }
}

namespace neon {

struct Isa {
  static constexpr int kRows = 4, kPanels = 1, kInt4Rows = 4;
  static constexpr bool kCorrects = false;
  using Sums = int32x4_t;
  using Floats = float32x4_t;
  using Factors = int8x16_t;
  static HWY_INLINE Sums zero() { return vdupq_n_s32(0); }
  static HWY_INLINE int8x16_t load(const int8_t* p) { return vld1q_s8(p); }
  static HWY_INLINE Sums load(const int32_t* p) { return vld1q_s32(p); }
  static HWY_INLINE Factors broadcast(const uint8_t* x) {
    int32_t group;
    std::memcpy(&group, x, sizeof group);
    return vreinterpretq_s8_s32(vdupq_n_s32(group));
  }
  static HWY_INLINE Sums add_products(Sums sums, Factors x, int8x16_t w) {
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(w)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(x, w));
    return vaddq_s32(sums, vpaddq_s32(low, high));
  }
  static HWY_INLINE Sums subtract(Sums a, Sums b) { return vsubq_s32(a, b); }
  static HWY_INLINE Floats to_float(Sums sums) { return vcvtq_f32_s32(sums); }
  static HWY_INLINE Floats load_floats(const float* p) { return vld1q_f32(p); }
  static HWY_INLINE Floats times(float a, Floats b) { return vmulq_n_f32(b, a); }
  static HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static HWY_INLINE void store(float* p, Floats v) { vst1q_f32(p, v); }
  // Of int4 codes, which are plus 8: 16-bit sums of 8 products of at most 15 * 127.
  struct Partial {
    int16x8_t low, high;
  };
  static HWY_INLINE uint8x16_t load_codes(const uint8_t* p) { return vld1q_u8(p); }
  static HWY_INLINE int8x16_t low(uint8x16_t codes) {
    return vreinterpretq_s8_u8(vandq_u8(codes, vdupq_n_u8(0x0f)));
  }
  static HWY_INLINE int8x16_t high(uint8x16_t codes) {
    return vreinterpretq_s8_u8(vshrq_n_u8(codes, 4));
  }
  static HWY_INLINE Partial start(int32_t) { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  static HWY_INLINE Partial add_codes(Partial sums, int8x16_t codes, const uint8_t* x) {
    const int8x16_t factors = broadcast(x);
    return {vmlal_s8(sums.low, vget_low_s8(codes), vget_low_s8(factors)),
            vmlal_high_s8(sums.high, codes, factors)};
  }
  static HWY_INLINE Sums finish(Partial sums, int32_t offset) {
    return subtract(vpaddq_s32(vpaddlq_s16(sums.low), vpaddlq_s16(sums.high)), vdupq_n_s32(offset));
  }
  static HWY_INLINE Floats splat(float value) { return vdupq_n_f32(value); }
  static HWY_INLINE Floats load_halves(const uint16_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
  }
};

#include "engine/quant/int8_multiply-inl.h"
#include "engine/quant/int8_multiply_int4-inl.h"

}  // namespace neon
constexpr Int8Kernel kNeon = {"neon",      &has_neon,           0, &quantize, &neon::multiply,
                              &dequantize, &neon::multiply_int4};
}  // namespace
}  // namespace trafo

#if TRAFO_ARM_DOT_PRODUCT
#if defined(__clang__)
HWY_PUSH_ATTRIBUTES("dotprod")
#else
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
#endif
namespace trafo {
namespace {
namespace neon_dot {

struct Isa : neon::Isa {
  static constexpr int kRows = 6;
  static HWY_INLINE Sums add_products(Sums sums, Factors x, int8x16_t w) {
    return vdotq_s32(sums, w, x);
  }
  using Partial = Sums;
  static HWY_INLINE Partial start(int32_t offset) { return vdupq_n_s32(-offset); }
  static HWY_INLINE Partial add_codes(Partial sums, int8x16_t codes, const uint8_t* x) {
    return vdotq_s32(sums, codes, broadcast(x));
  }
  static HWY_INLINE Sums finish(Partial sums, int32_t) { return sums; }
};

#include "engine/quant/int8_multiply-inl.h"
#include "engine/quant/int8_multiply_int4-inl.h"

}  // namespace neon_dot

constexpr Int8Kernel kNeonDot = {
    "neon-dot",  &os::has_arm_dot_product, 0, &quantize, &neon_dot::multiply,
    &dequantize, &neon_dot::multiply_int4};

}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES
#endif

namespace trafo {

std::span<const Int8Kernel* const> all_int8_kernels() {
  static constexpr const Int8Kernel* kKernels[] = {
#if TRAFO_ARM_DOT_PRODUCT
    &kNeonDot,
#endif
    &kNeon,
    &kPortableInt8Kernel
  };
  return kKernels;
}

}  // namespace trafo
#endif
