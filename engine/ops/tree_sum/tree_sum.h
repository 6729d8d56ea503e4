// out = the sum of several arrays, added in a tree that the caller gives: the tree decides the bits
// of a sum. For example ((t0 + t1) + (t2 + t3)). No gradient.
#pragma once

#include <span>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

// Type of a term's elements, and the value that is added.
enum class TermKind : int32_t {
  plain = 0,     // of the dtype of `out`
  rounded = 1,   // float32, rounded to bfloat16 (to nearest even) before they are added
  bfloat16 = 2,  // bfloat16; `out` is float32
};

struct TreeTerm {
  const void* x;  // device memory, contiguous; may be `out`
  TermKind kind;
  // How many additions follow this term. The terms are pushed on a stack in order. An addition
  // replaces the two sums on top by left + right. All additions leave one sum.
  int32_t additions;
  bool operator==(const TreeTerm&) const = default;
};

// float32 or float64. Sums are of this dtype.
struct TreeSumParams {
  DType dtype;
  int64_t count;
  const TreeTerm* terms;  // in the memory of the device
  int32_t term_count;
  int32_t depth;  // sums that are on the stack beside the topmost one, at most
  bool aligned;   // every array begins at a multiple of 16 bytes
  void* out;
};

namespace ops {

// A tree, with the table of its terms in the memory of the device. The table is copied there only
// if terms have changed since the last call.
class TreeSum {
 public:
  // The context must outlive it. Trees have at most `most` terms.
  TreeSum(Context& context, size_t most);

  // out[i] for `count` elements. INVALID_ARGUMENT: there are no terms or too many, the additions
  // do not leave one sum, or the dtype is not one of TreeSumParams.
  void run(std::span<const TreeTerm> terms, DType dtype, int64_t count, void* out);

 private:
  Context& context_;
  size_t most_;
  Tensor table_;
  std::vector<TreeTerm> copied_;
};

}  // namespace ops
}  // namespace trafo
