#include <vector>

#include "capi/src/handles.h"
#include "engine/core/function_ref.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/segment_mean/segment_mean.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// An op with one result. Not a template: this is compiled once.
trafo_error* run(const char* function, trafo_context* context, trafo_tensor** out,
                 FunctionRef<Tensor(const Call&, Context&)> op) {
  return api(function, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), op(call, c));
  });
}

std::vector<int> dimensions(const Call& call, const int32_t* dims, size_t count) {
  call.array(dims, count, "dims");
  if (count > kMaxRank)
    call.refuse_argument("dims", " are ", count, ", a tensor has at most ", kMaxRank);
  return std::vector<int>(dims, dims + count);
}

Comparison to_comparison(const Call& call, int32_t value) {
  if (value < TRAFO_EQUAL || value > TRAFO_GREATER_EQUAL)
    call.refuse_argument("comparison", " is unknown: ", value);
  return static_cast<Comparison>(value);
}

}  // namespace

#define TRAFO_UNARY(name)                                                                        \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* x,                    \
                               trafo_tensor** out) {                                             \
    return run(__func__, context, out,                                                           \
               [&](const Call& call, Context& c) { return ops::name(c, call.tensor(x, "x")); }); \
  }
TRAFO_UNARY(abs)
TRAFO_UNARY(sin)
TRAFO_UNARY(cos)
TRAFO_UNARY(erf)
TRAFO_UNARY(gelu_erf)
#undef TRAFO_UNARY

#define TRAFO_BINARY(name)                                                    \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* a, \
                               const trafo_tensor* b, trafo_tensor** out) {   \
    return run(__func__, context, out, [&](const Call& call, Context& c) {    \
      return ops::name(c, call.tensor(a, "a"), call.tensor(b, "b"));          \
    });                                                                       \
  }
TRAFO_BINARY(maximum)
TRAFO_BINARY(minimum)
TRAFO_BINARY(pow)
#undef TRAFO_BINARY

#define TRAFO_TRIANGLE(name)                                                                    \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* x, int64_t diagonal, \
                               trafo_tensor** out) {                                            \
    return run(__func__, context, out, [&](const Call& call, Context& c) {                      \
      return ops::name(c, call.tensor(x, "x"), diagonal);                                       \
    });                                                                                         \
  }
TRAFO_TRIANGLE(tril)
TRAFO_TRIANGLE(triu)
#undef TRAFO_TRIANGLE

#define TRAFO_REDUCE(name)                                                                 \
  trafo_error* trafo_op_##name##_dims(trafo_context* context, const trafo_tensor* x,       \
                                      const int32_t* dims, size_t count, int32_t keep_dim, \
                                      trafo_tensor** out) {                                \
    return run(__func__, context, out, [&](const Call& call, Context& c) {                 \
      return ops::name(c, call.tensor(x, "x"), dimensions(call, dims, count),              \
                       call.flag(keep_dim, "keep_dim"));                                   \
    });                                                                                    \
  }
TRAFO_REDUCE(sum)
TRAFO_REDUCE(mean)
TRAFO_REDUCE(max)
TRAFO_REDUCE(min)
#undef TRAFO_REDUCE

#define TRAFO_ARG(name)                                                                    \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* x, int32_t dim, \
                               int32_t keep_dim, trafo_tensor** out) {                     \
    return run(__func__, context, out, [&](const Call& call, Context& c) {                 \
      return ops::name(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));      \
    });                                                                                    \
  }
TRAFO_ARG(argmax)
TRAFO_ARG(argmin)
#undef TRAFO_ARG

#define TRAFO_SCATTER(name)                                                                \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* x, int32_t dim, \
                               const trafo_tensor* index, const trafo_tensor* src,         \
                               trafo_tensor** out) {                                       \
    return run(__func__, context, out, [&](const Call& call, Context& c) {                 \
      return ops::name(c, call.tensor(x, "x"), dim, call.tensor(index, "index"),           \
                       call.tensor(src, "src"));                                           \
    });                                                                                    \
  }
TRAFO_SCATTER(scatter)
TRAFO_SCATTER(scatter_add)
#undef TRAFO_SCATTER

trafo_error* trafo_op_segment_mean(trafo_context* context, const trafo_tensor* x,
                                   const trafo_tensor* cu_seqlens, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::segment_mean(c, call.tensor(x, "x"), call.tensor(cu_seqlens, "cu_seqlens"));
  });
}

trafo_error* trafo_op_power(trafo_context* context, const trafo_tensor* x, double exponent,
                            trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::power(c, call.tensor(x, "x"), exponent);
  });
}

trafo_error* trafo_op_clamp(trafo_context* context, const trafo_tensor* x, double low, double high,
                            trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::clamp(c, call.tensor(x, "x"), low, high);
  });
}

trafo_error* trafo_op_compare(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                              int32_t comparison, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::compare(c, call.tensor(a, "a"), call.tensor(b, "b"),
                        to_comparison(call, comparison));
  });
}

trafo_error* trafo_op_compare_number(trafo_context* context, const trafo_tensor* a, double number,
                                     int32_t comparison, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::compare(c, call.tensor(a, "a"), number, to_comparison(call, comparison));
  });
}

trafo_error* trafo_op_where(trafo_context* context, const trafo_tensor* mask, const trafo_tensor* a,
                            const trafo_tensor* b, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::where(c, call.tensor(mask, "mask"), call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_masked_fill(trafo_context* context, const trafo_tensor* x,
                                  const trafo_tensor* mask, double value, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::masked_fill(c, call.tensor(x, "x"), call.tensor(mask, "mask"), value);
  });
}

trafo_error* trafo_op_top_k(trafo_context* context, const trafo_tensor* x, int64_t k, int32_t dim,
                            trafo_tensor** out_values, trafo_tensor** out_ids) {
  return api(__func__, [&](const Call& call) {
    call.out(out_values, "out_values");
    call.out(out_ids, "out_ids");
    Context& c = call.context(context);
    const ops::Largest top = ops::top_k_of(c, call.tensor(x, "x"), k, dim);
    NewTensors results(call.owner(), {top.values, top.ids});
    results.hand_over({out_values, out_ids});
  });
}

trafo_error* trafo_op_cumsum(trafo_context* context, const trafo_tensor* x, int32_t dim,
                             trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::cumsum(c, call.tensor(x, "x"), dim);
  });
}

trafo_error* trafo_op_permute(trafo_context* context, const trafo_tensor* x, const int32_t* dims,
                              size_t count, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::permute(c, call.tensor(x, "x"), dimensions(call, dims, count));
  });
}

trafo_error* trafo_op_expand(trafo_context* context, const trafo_tensor* x, const int64_t* shape,
                             int32_t rank, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::expand(c, call.tensor(x, "x"), checked_shape(call, shape, rank));
  });
}

trafo_error* trafo_op_gather(trafo_context* context, const trafo_tensor* x, int32_t dim,
                             const trafo_tensor* index, trafo_tensor** out) {
  return run(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::gather(c, call.tensor(x, "x"), dim, call.tensor(index, "index"));
  });
}
