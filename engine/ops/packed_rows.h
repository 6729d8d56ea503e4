// Packed sequences: rows of several, one after the other, bounded by [B + 1] row numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/ops/checks.h"

namespace trafo {

// Throws unless `tensor` is a contiguous int32 vector on the context's device.
inline void check_row_numbers(const Context& context, std::string_view op, const Tensor& tensor,
                              const char* name) {
  check_input(context, op, name, tensor);
  require(tensor.dtype() == DType::i32, ErrorCode::dtype_mismatch, op, name, " must be int32, got ",
          dtype_name(tensor.dtype()));
  require(tensor.rank() == 1 && tensor.is_contiguous(), ErrorCode::shape_mismatch, op, name,
          " must be a contiguous vector, got ", tensor.shape());
}

// The rows of the longest of the sequences that `bounds` bound. INVALID_ARGUMENT unless they rise
// from 0 to `rows`.
inline int64_t longest_sequence_of(std::string_view op, std::span<const int32_t> bounds,
                                   const char* name, int64_t rows) {
  require(!bounds.empty() && bounds.front() == 0 && bounds.back() == rows,
          ErrorCode::invalid_argument, op, name, " must start with 0 and end with ", rows,
          ", the number of rows");
  int64_t longest = 0;
  for (size_t b = 0; b + 1 < bounds.size(); ++b) {
    require(bounds[b] <= bounds[b + 1], ErrorCode::invalid_argument, op, name,
            " must not fall, but goes from ", bounds[b], " to ", bounds[b + 1], " at entry ",
            b + 1);
    longest = std::max<int64_t>(longest, bounds[b + 1] - bounds[b]);
  }
  return longest;
}

}  // namespace trafo
