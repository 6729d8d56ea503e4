#include "engine/ops/top_k/top_k.h"

#include <algorithm>
#include <limits>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {

TopK top_k(Context& context, const Tensor& logits, int64_t k, std::span<const int32_t> banned) {
  constexpr const char* kOp = "top_k";
  const OpRange range(context, kOp, logits);
  require(logits.defined() && logits.rank() == 2, ErrorCode::shape_mismatch, kOp,
          "logits must be [rows, classes]");
  check_compute_input(context, kOp, "logits", logits);
  const int64_t classes = logits.dim(1);
  require(classes <= std::numeric_limits<int32_t>::max(), ErrorCode::shape_mismatch, kOp,
          "class numbers are int32, there are ", classes, " classes");

  TopKParams params{};
  for (const int32_t id : banned) {
    int32_t* end = params.banned + params.banned_count;
    if (id < 0 || id >= classes || std::find(params.banned, end, id) != end) continue;
    require(params.banned_count < kMaxBannedClasses, ErrorCode::invalid_argument, kOp, "at most ",
            kMaxBannedClasses, " classes can be banned");
    params.banned[params.banned_count++] = id;
  }
  require_argument(k >= 1 && k <= classes - params.banned_count, kOp, "k", " must be 1 to ",
                   classes - params.banned_count, ", the classes that may be chosen; got ", k);

  const Tensor x = contiguous(context, logits);
  TopK out{context.empty({x.dim(0), k}, stat_dtype(x.dtype())),
           context.empty({x.dim(0), k}, DType::i32)};
  params.dtype = x.dtype();
  params.rows = x.dim(0);
  params.classes = classes;
  params.k = k;
  params.logits = x.raw();
  params.log_probabilities = out.log_probabilities.raw();
  params.ids = out.ids.data<int32_t>();
  launch(context, OpKernel::top_k, kOp, params);
  context.record(kOp, {x}, {&out.log_probabilities}, {}, nullptr);
  return out;
}

}  // namespace trafo::ops
