// The int8 kernels of the CPU: one for each instruction set, all with the same bits.
//
// Products and sums of codes are exact in int32. Everything around them is a fixed sequence of
// IEEE-754 operations in float32, rounded to nearest, so the kernels agree in every bit:
//
//   quantize:  scale = group_scale(formats::kInt8, max_c |x[c]|), code[c] = rint(x[c] * (1 /
//   scale)) multiply:  y[i, r] = fma(float(sum_c code[i, c] codes[r, c]), x_scale[i] * scales[r],
//   bias[r])
//
// and with int4 codes, where G are the columns of a group (int4_panels.h), one group after another:
//
//   t[i, r] = fma(float(sum_{c in G} code[i, c] codes[r, c]), scales[r, G], t[i, r])
//   y[i, r] = fma(t[i, r], x_scale[i], bias[r])
//
// A row of activations is quantized when it is multiplied. If it has a value that is not finite,
// its scale is NaN and so is its result. A row whose largest magnitude is below 2^-100 counts as
// zeros.
#pragma once

#include <cstdint>
#include <span>

#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"

namespace trafo {

// Whole panels of a matrix times quantized rows.
struct Int8Block {
  const uint8_t* x;  // codes of the rows, each byte XOR Int8Kernel::flip
  int64_t x_stride;  // bytes from row to row; a row is padded to whole groups
  const float* x_scales;
  int64_t rows;
  const Int8Matrix* matrix;
  int64_t panel_begin, panel_end;
  const float* bias;  // [matrix->rows()] or null
  float* y;           // [rows, matrix->rows()], all columns of it
  int64_t y_stride;
};

// The same for int4 codes. A row is padded with zeros to whole groups of Int4Panels.
struct Int4Block {
  const uint8_t* x;  // codes of the rows as they are
  int64_t x_stride;
  const int32_t* x_offsets;  // [rows, groups]: 8 times the sum of the codes of each group
  const float* x_scales;
  int64_t rows;
  const Int4Panels* matrix;
  int64_t panel_begin, panel_end;
  const float* bias;
  float* y;
  int64_t y_stride;
};

struct Int8Kernel {
  const char* name;  // "avx512-vnni", "avx-vnni", "avx2", "neon-dot", "neon", "portable"
  bool (*supported)();
  // XOR mask that `multiply` expects on each code: 0x80 makes -127 .. 127 an unsigned 1 .. 255.
  uint8_t flip;
  // Writes `count` codes XOR `flip`; returns the scale.
  float (*quantize)(const float* x, int64_t count, uint8_t flip, uint8_t* codes);
  void (*multiply)(const Int8Block& block);
  // y[c] = fma(code[c], factor, addend[c]), or code[c] * factor if `addend` is null. `row` is
  // Int8Matrix::row.
  void (*dequantize)(const int8_t* row, int64_t columns, float factor, const float* addend,
                     float* y);
  void (*multiply_int4)(const Int4Block& block);
};

// Those that this processor runs, the best first; the portable one is always among them.
std::span<const Int8Kernel* const> int8_kernels();
const Int8Kernel& best_int8_kernel();

// y [m, n] = x [m, k] W^T + bias, with W [n, k] in `matrix`: quantizes the rows of x and
// multiplies. x and y have x_stride and y_stride elements from row to row. bias [n] or null. Any
// number of threads gives the same bits. OUT_OF_MEMORY.
void int8_gemm(ThreadPool& pool, const Int8Kernel& kernel, const Int8Matrix& matrix, const float* x,
               int64_t m, int64_t x_stride, const float* bias, float* y, int64_t y_stride);
void int4_gemm(ThreadPool& pool, const Int8Kernel& kernel, const Int4Panels& matrix, const float* x,
               int64_t m, int64_t x_stride, const float* bias, float* y, int64_t y_stride);

}  // namespace trafo
