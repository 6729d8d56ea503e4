// GPTQ (Frantar et al., ICLR 2023, arXiv 2210.17323): codes whose errors make up for each other in
// what a layer gives.
#pragma once

#include <span>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/quant/int4_matrix.h"

namespace trafo {

// weights [rows, columns] as int4 codes. Column after column is rounded to nearest, and its error
// is spread over the columns that follow so that the product with the inputs changes least. A group
// gets its scale when its first column is rounded. hessian [columns, columns]: sum over the inputs
// x of x x^T. Its diagonal gets 1 % of its mean added. Where all inputs are zero, the codes are the
// nearest ones. INVALID_ARGUMENT: a weight that is not finite. NON_FINITE: an input that is not.
Int4Matrix gptq_int4(ThreadPool& pool, std::span<const float> weights, int64_t rows,
                     int64_t columns, std::span<const double> hessian);

}  // namespace trafo
