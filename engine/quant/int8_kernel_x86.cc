// The int8 kernels of x86-64: AVX-512 VNNI, AVX-VNNI and AVX2.
//
// VNNI multiplies unsigned by signed bytes: 128 is added to the codes of the activations, and 128
// times the sum of the weight's codes is subtracted from the result. vpdpbusd does not saturate.
//
// AVX2's vpmaddubsw adds two such products in 16 bits. It gets |x| and sign(x) w: both are at most
// 127, and 2 * 127 * 127 fits.
//
// The unsigned bytes of int4 products are the codes of the weight plus 8, and 8 times the sum of
// the codes of the activations is subtracted. 16 bits hold the sum of 16 products of 15 * 127.
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/quant/int8_kernel_list.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "hwy/base.h"

namespace trafo {
namespace {

constexpr int64_t kPanelRows = Int8Matrix::kPanelRows;
constexpr int64_t kGroupColumns = Int8Matrix::kGroupColumns;
constexpr int64_t kGroupBytes = Int8Matrix::kGroupBytes;

bool has_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;  // float16
}

bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!has_avx2() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

bool has_avx512_vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace
}  // namespace trafo

// ---- what all of them share: AVX2 is the least they have ----

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace trafo {
namespace {

float quantize(const float* x, int64_t count, uint8_t flip, uint8_t* codes) {
  // Magnitudes compare like their bits, and what is not finite is above the rest.
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most8 = _mm256_setzero_si256();
  int64_t c = 0;
  for (; c + 8 <= count; c += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + c));
    most8 = _mm256_max_epi32(most8, _mm256_and_si256(bits, magnitude));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most8);
  int32_t largest = *std::max_element(lanes, lanes + 8);
  for (; c < count; ++c) largest = std::max(largest, std::bit_cast<int32_t>(x[c]) & 0x7fffffff);
  const bool finite = largest < 0x7f800000;
  const float most = std::bit_cast<float>(largest);
  if (!finite || most < 0x1p-100f) {
    std::memset(codes, flip, static_cast<size_t>(count));
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  // |x| / scale exceeds 127 by rounding errors at most, and rounds to 127 then.
  const auto [scale, factor] = group_scale(formats::kInt8, most);
  const __m256 factor8 = _mm256_set1_ps(factor);
  const __m128i flip16 = _mm_set1_epi8(static_cast<char>(flip));
  for (c = 0; c + 8 <= count; c += 8) {
    const __m256i wide = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + c), factor8));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    const __m128i bytes = _mm_xor_si128(_mm_packs_epi16(words, words), flip16);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + c), bytes);
  }
  for (; c < count; ++c) {
    const int code = _mm_cvtss_si32(_mm_set_ss(x[c] * factor));
    codes[c] = static_cast<uint8_t>(static_cast<int8_t>(code)) ^ flip;
  }
  return scale;
}

void dequantize(const int8_t* row, int64_t columns, float factor, const float* addend, float* y) {
  const __m128 factor4 = _mm_set1_ps(factor);
  int64_t c = 0;
  for (; c + kGroupColumns <= columns; c += kGroupColumns, row += kGroupBytes) {
    int32_t packed;
    std::memcpy(&packed, row, sizeof packed);
    const __m128 codes = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(packed)));
    _mm_storeu_ps(y + c, addend ? _mm_fmadd_ps(codes, factor4, _mm_loadu_ps(addend + c))
                                : _mm_mul_ps(codes, factor4));
  }
  for (int64_t i = 0; c < columns; ++c, ++i) {
    const auto code = static_cast<float>(row[i]);
    y[c] = addend ? __builtin_fmaf(code, factor, addend[c]) : code * factor;
  }
}

int32_t load_group(const uint8_t* x) {
  int32_t group;
  std::memcpy(&group, x, sizeof group);
  return group;
}

}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES

// ---- one instruction set after the other ----

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace trafo {
namespace {
namespace avx2 {

struct Isa {
  static constexpr int kRows = 2, kPanels = 2, kInt4Rows = 4;
  static constexpr bool kCorrects = false;
  using Sums = __m256i;
  using Floats = __m256;
  struct Factors {
    __m256i codes, magnitudes;
  };
  static HWY_INLINE Sums zero() { return _mm256_setzero_si256(); }
  static HWY_INLINE Sums load(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static HWY_INLINE Factors broadcast(const uint8_t* x) {
    const __m256i codes = _mm256_set1_epi32(load_group(x));
    return {codes, _mm256_abs_epi8(codes)};
  }
  static HWY_INLINE Sums add_products(Sums sums, const Factors& x, __m256i w) {
    const __m256i pairs = _mm256_maddubs_epi16(x.magnitudes, _mm256_sign_epi8(w, x.codes));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static HWY_INLINE Sums subtract(Sums a, Sums b) { return _mm256_sub_epi32(a, b); }
  static HWY_INLINE Floats to_float(Sums sums) { return _mm256_cvtepi32_ps(sums); }
  static HWY_INLINE Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
  static HWY_INLINE Floats times(float a, Floats b) { return _mm256_mul_ps(_mm256_set1_ps(a), b); }
  static HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static HWY_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  // Of int4 codes: 16-bit sums of pairs of products.
  using Partial = __m256i;
  static HWY_INLINE __m256i load_codes(const uint8_t* p) { return load(p); }
  static HWY_INLINE __m256i low(__m256i codes) {
    return _mm256_and_si256(codes, _mm256_set1_epi8(0x0f));
  }
  static HWY_INLINE __m256i high(__m256i codes) { return low(_mm256_srli_epi16(codes, 4)); }
  static HWY_INLINE Partial start(int32_t) { return zero(); }
  static HWY_INLINE Partial add_codes(Partial sums, __m256i codes, const uint8_t* x) {
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(load_group(x))));
  }
  static HWY_INLINE Sums finish(Partial sums, int32_t offset) {
    return subtract(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)), _mm256_set1_epi32(offset));
  }
  static HWY_INLINE Floats splat(float value) { return _mm256_set1_ps(value); }
  static HWY_INLINE Floats load_halves(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

#include "engine/quant/int8_multiply-inl.h"
#include "engine/quant/int8_multiply_int4-inl.h"

}  // namespace avx2
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
namespace trafo {
namespace {
namespace avx_vnni {

struct Isa : avx2::Isa {
  static constexpr int kRows = 3;
  static constexpr bool kCorrects = true;
  using Factors = __m256i;
  static HWY_INLINE Factors broadcast(const uint8_t* x) { return _mm256_set1_epi32(load_group(x)); }
  static HWY_INLINE Sums add_products(Sums sums, const Factors& x, __m256i w) {
    return _mm256_dpbusd_avx_epi32(sums, x, w);
  }
};

#include "engine/quant/int8_multiply-inl.h"

}  // namespace avx_vnni
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vnni")
namespace trafo {
namespace {
namespace avx512_vnni {

struct Isa {
  static constexpr int kRows = 6, kPanels = 4, kInt4Rows = 8;
  static constexpr bool kCorrects = true;
  using Sums = __m512i;
  using Floats = __m512;
  using Factors = __m512i;
  static HWY_INLINE Sums zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE Sums load(const void* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Factors broadcast(const uint8_t* x) { return _mm512_set1_epi32(load_group(x)); }
  static HWY_INLINE Sums add_products(Sums sums, const Factors& x, __m512i w) {
    return _mm512_dpbusd_epi32(sums, x, w);
  }
  static HWY_INLINE Sums subtract(Sums a, Sums b) { return _mm512_sub_epi32(a, b); }
  static HWY_INLINE Floats to_float(Sums sums) {
    // Without a mask, GCC 12 warns of an uninitialised value inside the intrinsic.
    return _mm512_maskz_cvtepi32_ps(0xffff, sums);
  }
  static HWY_INLINE Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
  static HWY_INLINE Floats times(float a, Floats b) { return _mm512_mul_ps(_mm512_set1_ps(a), b); }
  static HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static HWY_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  using Partial = __m512i;
  static HWY_INLINE __m512i load_codes(const uint8_t* p) { return load(p); }
  static HWY_INLINE __m512i low(__m512i codes) {
    return _mm512_and_si512(codes, _mm512_set1_epi8(0x0f));
  }
  static HWY_INLINE __m512i high(__m512i codes) { return low(_mm512_srli_epi16(codes, 4)); }
  static HWY_INLINE Partial start(int32_t offset) { return _mm512_set1_epi32(-offset); }
  static HWY_INLINE Partial add_codes(Partial sums, __m512i codes, const uint8_t* x) {
    return _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(load_group(x)));
  }
  static HWY_INLINE Sums finish(Partial sums, int32_t) { return sums; }
  static HWY_INLINE Floats splat(float value) { return _mm512_set1_ps(value); }
  static HWY_INLINE Floats load_halves(const uint16_t* p) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

#include "engine/quant/int8_multiply-inl.h"
#include "engine/quant/int8_multiply_int4-inl.h"

}  // namespace avx512_vnni
}  // namespace
}  // namespace trafo
HWY_POP_ATTRIBUTES

namespace trafo {
namespace {

constexpr Int8Kernel kAvx2 = {"avx2",      &has_avx2,           0, &quantize, &avx2::multiply,
                              &dequantize, &avx2::multiply_int4};
constexpr Int8Kernel kAvxVnni = {"avx-vnni",          &has_avx_vnni,       0x80,
                                 &quantize,           &avx_vnni::multiply, &dequantize,
                                 &avx2::multiply_int4};
constexpr Int8Kernel kAvx512Vnni = {
    "avx512-vnni", &has_avx512_vnni,           0x80, &quantize, &avx512_vnni::multiply,
    &dequantize,   &avx512_vnni::multiply_int4};
constexpr const Int8Kernel* kKernels[] = {&kAvx512Vnni, &kAvxVnni, &kAvx2, &kPortableInt8Kernel};

}  // namespace

std::span<const Int8Kernel* const> all_int8_kernels() {
  return kKernels;
}

}  // namespace trafo
#endif
