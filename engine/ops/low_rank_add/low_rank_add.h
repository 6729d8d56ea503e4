// y = base + D U^T in ranges of columns: the second half of a low-rank adapter (LoRA, Hu et al.,
// arXiv 2106.09685). Range i of `ranges` gets the product of r columns of `down` and of its rows of
// `up`:
//
//   y[:, first_i : first_i + count_i] = base[...] + down[:, i r : (i + 1) r] up_i^T
//
// base [T, n], down [T, R r], up [sum of count_i, r], the rows of range 0 first; ranges must not
// overlap. Columns outside of them equal base. GEMMs that accumulate do the work. Backward: dbase =
// dy, ddown_i = dy_i up_i, dup_i = dy_i^T down_i; it reads `down` and `up`.
#pragma once

#include <span>

#include "engine/runtime/context.h"

namespace trafo {

struct ColumnRange {
  int64_t first = 0, count = 0;
  bool operator==(const ColumnRange&) const = default;
};

namespace ops {

// in_place: the result takes the memory of `base`, which nothing reads any more, not even the
// backward of the op that made it. Ignored for views.
Tensor low_rank_add(Context& context, const Tensor& base, const Tensor& down, const Tensor& up,
                    std::span<const ColumnRange> ranges, bool in_place = false);
Tensor low_rank_add_reference(Context& context, const Tensor& base, const Tensor& down,
                              const Tensor& up, std::span<const ColumnRange> ranges);

}  // namespace ops
}  // namespace trafo
