// CUDA kernels of coded_rows. Floor: the bytes of W.
//
// bfloat16: tensor cores, as backend/cuda/few_rows.cu. The rows of W are the rows of an mma, and
// those of x its columns, of which a step uses eight at a time. A block has some times 16 rows of
// W. Its warps share k: warp w takes every kWarps-th slab, and their sums are added in order at the
// end. Lane 4 g + q reads 16 bytes of codes of one row, the q-th such word of the slab, and the
// elements of x in the same columns: a sum does not mind the order of its terms. The codes become
// bfloat16 in registers, and have the bits that dequantize writes.
//
// float32, and rows of x that do not begin on 16 bytes: a warp has one row of W and multiplies and
// adds in float32.
#include "engine/backend/cuda/device/mma.cuh"
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/quantized_linear/coded_values.cuh"

namespace trafo {
namespace cuda {
namespace {

// Warps of a block and times 16 rows of W that it has, where the matrix fills the card with blocks
// of kManyTiles,
constexpr int kManyWarps = 8, kManyTiles = 2;
// and where it does not.
constexpr int kFewWarps = 16, kFewTiles = 1;
constexpr int kThreadsOnCard = 512;  // that a multiprocessor has at least, for the registers
constexpr int kSlabsInFlight = 2;    // of a warp, whose codes are being read
constexpr int kRowsOfFmaBlock = 8;   // of W, a warp each

__device__ const CodeTable<16> kCodedNormalFloat = code_table<16>(base_codes::kNormalFloat);
__device__ const CodeTable<256> kCodedDynamic = code_table<256>(base_codes::kDynamicCode);

// Codes in 16 bytes.
template <BasePrecision kPrecision>
constexpr int kCodes = kPrecision == BasePrecision::int8 ? 16 : 32;
// Columns that a warp takes at a time.
template <BasePrecision kPrecision>
constexpr int kCodedSlab = 4 * kCodes<kPrecision>;

struct CodedProduct {
  Coded w;
  const void *x, *bias;
  void* y;
  int64_t rows;  // of W
  int tokens;
  bool whole_term;  // its rows are whole pieces of 16 bytes
  CodedTerm term;
};

// From compute capability 9.0 on a kernel of tensor cores starts while the one before it runs: the
// codes are of a frozen matrix, which no kernel writes, and are read at once. x and the bias are
// read, and y is written, when the kernel before has ended: not with __ldg, whose loads a compiler
// may move ahead of the wait.
constexpr int kEarlyMajor = 9;
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Read once: it does not stay in the cache of the multiprocessor.
__device__ __forceinline__ uint4 load_codes(const uint8_t* at) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(at));
  return words;
}

__device__ __forceinline__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// (word & kMask) | bits, in one instruction: two immediate operands would make two of it.
template <uint32_t kMask>
__device__ __forceinline__ uint32_t masked_or(uint32_t word, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "n"(kMask), "r"(bits));
  return result;
}

// a b + c of two bfloat16 each, rounded once.
__device__ __forceinline__ uint32_t fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// An int4 scale as the sum of two bfloat16, each in both halves of a word: a float16 has 11 bits,
// of which the first has 8.
struct Int4Scale {
  uint32_t high, low;

  __device__ __forceinline__ explicit Int4Scale(float scale) {
    const uint32_t bits = __float_as_uint(scale) & 0xffff0000u;
    const float rest = __fsub_rn(scale, __uint_as_float(bits));
    high = __byte_perm(bits, 0, 0x3232);
    low = __byte_perm(__float_as_uint(rest), 0, 0x3232);
  }
};

// Elements j and j + 4 of a word, for j < 4. Four bits below those of 128 are 128 + code + 8; code
// times `low` is exact in bfloat16, so that code times both is rounded once, as float32 would be.
__device__ __forceinline__ void eight_int4(uint32_t word, const Int4Scale& scale,
                                           uint32_t (&pairs)[4]) {
  constexpr uint32_t k128 = 0x43004300u, kMinus136 = 0xc308c308u, kOne = 0x3f803f80u,
                     kMinusZero = 0x80008000u;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t codes = fma_bf16(masked_or<0x000f000fu>(word >> (4 * j), k128), kOne, kMinus136);
    pairs[j] = fma_bf16(codes, scale.high, fma_bf16(codes, scale.low, kMinusZero));
  }
}

// A byte below the bits of 2^23 is an integer in float32, without a conversion.
__device__ __forceinline__ void four_int8(uint32_t word, float scale, float* values) {
  constexpr uint32_t kTwoTo23 = 0x4b000000u;
  const uint32_t unsigned_codes = word ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float code =
        __uint_as_float(__byte_perm(unsigned_codes, kTwoTo23, 0x7440u + static_cast<uint32_t>(i)));
    values[i] = __fmul_rn(__fsub_rn(code, 8388608.0f + 128.0f), scale);
  }
}

// Lane l has the value of code l % 16; a shuffle reads the low five bits of the number of a lane.
__device__ __forceinline__ void eight_nf4(uint32_t word, float absmax, float normal_float,
                                          float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    values[i] = __fmul_rn(
        __shfl_sync(0xffffffffu, normal_float, static_cast<int>(word >> (4 * (i ^ 1)))), absmax);
}

// The codes of a warp's slab, kRows rows of each lane, and their scales as they are stored.
template <BasePrecision kPrecision, int kRows>
struct CodedSlab {
  uint4 codes[kRows];
  uint32_t scale[kRows];  // int4: float16; nf4: the code of the absmax
  float nested[kRows];    // of nf4
};

// Where a lane reads next: rows `row`, row + 8, ... of W, every kStep columns.
template <BasePrecision kPrecision, int kRows, int kStep>
struct CodedReader {
  static constexpr bool kInt4 = kPrecision == BasePrecision::int4,
                        kNf4 = kPrecision == BasePrecision::nf4;
  static constexpr int kColumnsOfScale =
      static_cast<int>(kInt4 ? base_codes::kGroup : base_codes::kBlock);
  static constexpr int kColumnsOfByte = kPrecision == BasePrecision::int8 ? 1 : 2;
  const uint8_t* codes;
  const unsigned short* scales;  // of int4
  const uint8_t* absmax;         // of nf4, and nested
  const float* nested;
  uint32_t block;           // of nf4: the first one of the next slab
  uint32_t row_scales;      // of a row of W
  uint32_t bytes_of_eight;  // rows of W
  int columns_left, rows_left;

  __device__ __forceinline__ CodedReader(const Coded& m, int64_t row, int64_t rows, int column)
      : codes(m.bytes + code_byte<kPrecision>(m, row, column)),
        scales(reinterpret_cast<const unsigned short*>(m.scales())),
        absmax(m.scales()),
        nested(m.nested()),
        row_scales(static_cast<uint32_t>(m.columns) / kColumnsOfScale),
        bytes_of_eight(static_cast<uint32_t>(m.columns) * 8 / kColumnsOfByte),
        columns_left(static_cast<int>(m.columns) - column),
        rows_left(static_cast<int>(min(rows - row, int64_t{8 * kRows}))) {
    const int64_t first = row * row_scales + column / kColumnsOfScale;
    scales += first;
    block = static_cast<uint32_t>(first);
  }

  __device__ __forceinline__ void read(CodedSlab<kPrecision, kRows>& to) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool inside = 8 * i < rows_left && columns_left > 0;
      to.codes[i] = inside ? load_codes(codes + i * bytes_of_eight) : uint4{};
      if constexpr (kInt4) {
        to.scale[i] = inside ? __ldg(scales + 8 * i * row_scales) : 0;
      } else if constexpr (kNf4) {
        const uint32_t at = block + 8 * i * row_scales;
        to.scale[i] = inside ? __ldg(absmax + at) : 0;
        to.nested[i] = inside ? __ldg(nested + at / uint32_t{base_codes::kNestedBlock}) : 0;
      }
    }
    codes += kStep / kColumnsOfByte;
    scales += kStep / kColumnsOfScale;
    block += kStep / kColumnsOfScale;
    columns_left -= kStep;
  }
};

// Values of kRows rows of a lane, from the codes of a slab.
template <BasePrecision kPrecision, int kRows>
struct CodedValues {
  float row_scale[kRows] = {};     // of int8
  const float* dynamic = nullptr;  // of nf4, in shared memory
  float offset = 0, normal_float = 0;

  // `table` [256] in shared memory. By every thread of the block, of whom `row` is the first row.
  __device__ __forceinline__ void read_scales(const CodedProduct& p, int64_t row, float* table) {
    if constexpr (kPrecision == BasePrecision::nf4) {
      for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) table[i] = kCodedDynamic.at[i];
      dynamic = table;
      offset = p.w.offset();
      normal_float = kCodedNormalFloat.at[threadIdx.x % 16];
      __syncthreads();
    } else if constexpr (kPrecision == BasePrecision::int8) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (row + 8 * i < p.rows) row_scale[i] = scale_at<kPrecision>(p.w, row + 8 * i, 0, nullptr);
    }
  }

  __device__ __forceinline__ float absmax(const CodedSlab<kPrecision, kRows>& slab, int i) const {
    return absmax_of(dynamic[slab.scale[i]], slab.nested[i], offset);
  }
  // Elements 8 e to 8 e + 7 of row i in bfloat16, two in a word: neighbours, or of int4 j and j
  // + 4.
  __device__ __forceinline__ void eight(const CodedSlab<kPrecision, kRows>& slab, int i, int e,
                                        uint32_t (&pairs)[4]) const {
    if constexpr (kPrecision == BasePrecision::int4) {
      const float scale = half_value(static_cast<unsigned short>(slab.scale[i]));
      return eight_int4(word_of(slab.codes[i], e), Int4Scale(scale), pairs);
    }
    float values[8];
    if constexpr (kPrecision == BasePrecision::int8) {
      four_int8(word_of(slab.codes[i], 2 * e), row_scale[i], values);
      four_int8(word_of(slab.codes[i], 2 * e + 1), row_scale[i], values + 4);
    } else if constexpr (kPrecision == BasePrecision::nf4) {
      eight_nf4(word_of(slab.codes[i], e), absmax(slab, i), normal_float, values);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = bf16_word(values[2 * j], values[2 * j + 1]);
  }
};

// x in the columns of a lane's codes, of rows g and g + 8.
template <BasePrecision kPrecision, int kTiles>
struct RowsOfX {
  static constexpr int kEights = kCodes<kPrecision> / 8;
  uint4 at[kTiles][kEights];

  // The pairs of CodedValues::eight.
  __device__ __forceinline__ uint4 pairs(int t, int e) const {
    const uint4& x = at[t][e];
    if constexpr (kPrecision != BasePrecision::int4) return x;
    return {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
            __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632)};
  }
};

template <BasePrecision kPrecision, int kTiles, int kStep>
struct ReaderOfX {
  const bf16* x[kTiles];
  int columns_left, rows_left;

  __device__ __forceinline__ ReaderOfX(const CodedProduct& p, int g, int column)
      : columns_left(static_cast<int>(p.w.columns) - column), rows_left(p.tokens - g) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      x[t] = static_cast<const bf16*>(p.x) + (8 * t + g) * p.w.columns + column;
  }

  __device__ __forceinline__ void read(RowsOfX<kPrecision, kTiles>& to) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const bool inside = 8 * t < rows_left && columns_left > 0;
#pragma unroll
      for (int e = 0; e < RowsOfX<kPrecision, kTiles>::kEights; ++e)
        to.at[t][e] = inside ? *reinterpret_cast<const uint4*>(x[t] + 8 * e) : uint4{};
      x[t] += kStep;
    }
    columns_left -= kStep;
  }
};

// sums [16 kRowTiles rows of W, 8 kTiles rows of x]
template <BasePrecision kPrecision, int kTiles, int kRowTiles>
__device__ __forceinline__ void add_coded_slab(float (&sums)[kRowTiles][kTiles][4],
                                               const CodedSlab<kPrecision, 2 * kRowTiles>& slab,
                                               const CodedValues<kPrecision, 2 * kRowTiles>& values,
                                               const RowsOfX<kPrecision, kTiles>& x) {
#pragma unroll
  for (int e = 0; e < RowsOfX<kPrecision, kTiles>::kEights; ++e) {
    uint4 columns[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) columns[t] = x.pairs(t, e);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      uint32_t upper[4], lower[4];
      values.eight(slab, 2 * r, e, upper);
      values.eight(slab, 2 * r + 1, e, lower);
      const uint32_t first[4] = {upper[0], lower[0], upper[1], lower[1]};
      const uint32_t second[4] = {upper[2], lower[2], upper[3], lower[3]};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_bf16(sums[r][t], first, columns[t].x, columns[t].y);
        mma_bf16(sums[r][t], second, columns[t].z, columns[t].w);
      }
    }
  }
}

template <class T, bool kAligned>
__device__ __forceinline__ void load_eight(const T* from, float (&x)[8]) {
  if constexpr (kAligned) {
    constexpr int V = kPackWidth<T>;
#pragma unroll
    for (int begin = 0; begin < 8; begin += V) {
      float pack[V];
      load_floats<T, V>(from + begin, pack);
#pragma unroll
      for (int i = 0; i < V; ++i) x[begin + i] = pack[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = to_float(from[i]);
  }
}

// kWhole: eight elements at a time, each eight on 16 bytes.
template <class T, bool kWhole>
__device__ __forceinline__ float sum_of_term(const CodedTerm& term, int token, int64_t row) {
  const auto* up = static_cast<const T*>(term.up);
  const T* d = static_cast<const T*>(term.d) + token * term.ranges * term.rank;
  float sum = 0;
  for (int i = 0; i < term.ranges; ++i, d += term.rank) {
    const int64_t within = row - term.first[i];
    const T* const of_row = up + within * term.rank;
    up += term.count[i] * term.rank;
    if (within < 0 || within >= term.count[i]) continue;
    if constexpr (kWhole) {
      for (int64_t k = 0; k < term.rank; k += 8) {
        float of_d[8], of_up[8];
        load_eight<T, true>(d + k, of_d);
        load_eight<T, true>(of_row + k, of_up);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum = __fmaf_rn(of_d[e], of_up[e], sum);
      }
    } else {
      for (int64_t k = 0; k < term.rank; ++k)
        sum = __fmaf_rn(to_float(d[k]), to_float(of_row[k]), sum);
    }
  }
  return __fmul_rn(term.scale, sum);
}

// Adds the bias and the term to the sum of an element of y, and writes it.
template <class T>
__device__ __forceinline__ void write_sum(const CodedProduct& p, int token, int64_t row,
                                          float sum) {
  if (p.bias) sum += to_float(static_cast<const T*>(p.bias)[row]);
  if (p.term.d)
    sum += p.whole_term ? sum_of_term<T, true>(p.term, token, row)
                        : sum_of_term<T, false>(p.term, token, row);
  static_cast<T*>(p.y)[token * p.rows + row] = from_float<T>(sum);
}

// y of a block's rows of W: the sums of its warps, in order, and what is added to them.
template <int kWarps, int kTokens, int kPitch>
__device__ __forceinline__ void write_sums(const CodedProduct& p, int64_t first_row,
                                           const float (&parts)[kWarps][kTokens][kPitch]) {
  constexpr int kRowsOfBlock = kPitch - 1;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kRowsOfBlock; i += 32 * kWarps) {
    const int token = i / kRowsOfBlock, of_block = i % kRowsOfBlock;
    const int64_t row = first_row + of_block;
    if (token >= p.tokens || row >= p.rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w][token][of_block];
    write_sum<bf16>(p, token, row, sum);
  }
}

template <BasePrecision kPrecision, int kTiles, int kRowTiles, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, kThreadsOnCard / (32 * kWarps))
    coded_rows_kernel(const __grid_constant__ CodedProduct p) {
  constexpr int kRows = 2 * kRowTiles, kRowsOfBlock = 16 * kRowTiles;
  __shared__ float parts[kWarps][8 * kTiles][kRowsOfBlock + 1];
  __shared__ float dynamic[kPrecision == BasePrecision::nf4 ? 256 : 1];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // From lane 0, so that the compiler knows it to be one number for the warp.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int g = lane / 4, q = lane % 4;
  const int64_t first_row = int64_t{blockIdx.x} * kRowsOfBlock;
  constexpr int kStep = kCodedSlab<kPrecision> * kWarps;
  const int first = kCodedSlab<kPrecision> * warp, column = first + kCodes<kPrecision> * q;
  CodedReader<kPrecision, kRows, kStep> reader(p.w, first_row + g, p.rows, column);
  ReaderOfX<kPrecision, kTiles, kStep> reader_of_x(p, g, column);
  CodedSlab<kPrecision, kRows> slabs[kSlabsInFlight];
#pragma unroll
  for (int s = 0; s < kSlabsInFlight; ++s) reader.read(slabs[s]);
  let_next_kernel_start();

  CodedValues<kPrecision, kRows> values;
  values.read_scales(p, first_row + g, dynamic);
  float sums[kRowTiles][kTiles][4] = {};
  wait_for_previous_kernel();
  // Slabs that the warp has left.
  int left = (static_cast<int>(p.w.columns) - first + kStep - 1) / kStep;
  while (left > 0)
#pragma unroll
    for (int s = 0; s < kSlabsInFlight; ++s) {
      if (left-- <= 0) break;
      RowsOfX<kPrecision, kTiles> x;
      reader_of_x.read(x);
      add_coded_slab<kPrecision, kTiles, kRowTiles>(sums, slabs[s], values, x);
      reader.read(slabs[s]);
    }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        parts[warp][8 * t + 2 * q + j % 2][16 * r + g + 8 * (j / 2)] = sums[r][t][j];
  __syncthreads();
  write_sums(p, first_row, parts);
}

// A warp has a row of W. Its lanes share k, 8 columns at a time.
template <BasePrecision kPrecision, class T, int kTokens, bool kAligned>
__global__ void __launch_bounds__(32 * kRowsOfFmaBlock)
    coded_rows_fma_kernel(const __grid_constant__ CodedProduct p) {
  using Word = std::conditional_t<kPrecision == BasePrecision::int8, unsigned long long, uint32_t>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kRowsOfFmaBlock + threadIdx.x / 32;
  if (row >= p.rows) return;
  const auto* x = static_cast<const T*>(p.x);
  float sums[kTokens] = {};
  for (int64_t column = 8 * lane; column < p.w.columns; column += 8 * 32) {
    const Word word =
        __ldg(reinterpret_cast<const Word*>(p.w.bytes + code_byte<kPrecision>(p.w, row, column)));
    const float scale = scale_at<kPrecision>(p.w, row, column, kCodedDynamic.at);
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i] = to_float(
          from_float<T>(__fmul_rn(code_in<kPrecision>(word, i, kCodedNormalFloat.at), scale)));
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= p.tokens) break;
      float of_x[8];
      load_eight<T, kAligned>(x + t * p.w.columns + column, of_x);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[t] = __fmaf_rn(values[i], of_x[i], sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= p.tokens) break;
    const float sum = warp_reduce<Add>(sums[t]);
    if (lane == 0) write_sum<T>(p, t, row, sum);
  }
}

template <BasePrecision kPrecision, class T, bool kAligned>
void launch_fma(const DeviceState& device, const CodedProduct& p) {
  const auto blocks = static_cast<unsigned>(base_codes::ceil_div(p.rows, kRowsOfFmaBlock));
  constexpr int kThreads = 32 * kRowsOfFmaBlock;
  if (p.tokens == 1)
    coded_rows_fma_kernel<kPrecision, T, 1, kAligned><<<blocks, kThreads, 0, device.stream>>>(p);
  else
    coded_rows_fma_kernel<kPrecision, T, kMostCodedRows, kAligned>
        <<<blocks, kThreads, 0, device.stream>>>(p);
}

// Whether the kernels have the wait in them: code of an older architecture, which the driver has
// compiled for this card, has not.
template <class Kernel>
bool waits_for_previous(const DeviceState& device, Kernel* kernel) {
  static const bool compiled = [&] {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
           attributes.ptxVersion >= 10 * kEarlyMajor;
  }();
  return compiled && device.compute_major >= kEarlyMajor;
}

template <BasePrecision kPrecision, int kRowTiles, int kWarps>
void launch_mma(const DeviceState& device, const CodedProduct& p) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(base_codes::ceil_div(p.rows, 16 * kRowTiles)));
  config.blockDim = dim3(32 * kWarps);
  config.stream = device.stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  auto* const kernel = p.tokens <= 8 ? coded_rows_kernel<kPrecision, 1, kRowTiles, kWarps>
                                     : coded_rows_kernel<kPrecision, 2, kRowTiles, kWarps>;
  config.attrs = &early;
  config.numAttrs = waits_for_previous(device, kernel) ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, p);
}

template <BasePrecision kPrecision>
int32_t multiply(DeviceState& device, const CodedRowsParams& params) {
  const CodedProduct p{
      coded_of(kPrecision, params.bytes, params.rows, params.columns),
      params.x,
      params.bias,
      params.y,
      params.rows,
      static_cast<int>(params.tokens),
      params.term.rank % 8 == 0 && aligned16(params.term.d) && aligned16(params.term.up),
      params.term};
  const bool aligned = aligned16(p.x);
  // The order of the sums depends on the size of W, not on the number of tokens.
  const bool many = base_codes::ceil_div(p.rows, 16 * kManyTiles) >= device.multiprocessors;
  if (params.dtype == DType::f32 && aligned)
    launch_fma<kPrecision, float, true>(device, p);
  else if (params.dtype == DType::f32)
    launch_fma<kPrecision, float, false>(device, p);
  else if (!aligned)
    launch_fma<kPrecision, bf16, false>(device, p);
  else if (many)
    launch_mma<kPrecision, kManyTiles, kManyWarps>(device, p);
  else
    launch_mma<kPrecision, kFewTiles, kFewWarps>(device, p);
  return launched(device, "coded_rows");
}

}  // namespace
}  // namespace cuda

int32_t coded_rows_cuda(cuda::DeviceState& device, const CodedRowsParams& p) {
  if (!takes_coded_rows(DeviceKind::cuda, p.dtype, p.tokens, p.columns) ||
      !cuda::aligned16(p.bytes))
    return cuda::unsupported(device, "coded_rows: these rows and columns have no kernel");
  if (p.rows == 0) return cuda::kSuccess;
  switch (p.precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4:
      return cuda::multiply<BasePrecision::nf4>(device, p);
    case BasePrecision::int8:
      return cuda::multiply<BasePrecision::int8>(device, p);
    case BasePrecision::int4:
      return cuda::multiply<BasePrecision::int4>(device, p);
  }
  return cuda::unsupported(device, "coded_rows: the matrix has no codes");
}

}  // namespace trafo
