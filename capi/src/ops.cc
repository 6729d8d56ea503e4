#include <vector>

#include "capi/src/handles.h"
#include "capi/src/op_arguments.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

template <class Op>
trafo_error* unary(const char* function, trafo_context* context, const trafo_tensor* x,
                   trafo_tensor** out, Op&& op) {
  return api(function, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), op(call, c, call.tensor(x, "x")));
  });
}

template <class Op>
trafo_error* binary(const char* function, trafo_context* context, const trafo_tensor* a,
                    const trafo_tensor* b, trafo_tensor** out, Op&& op) {
  return api(function, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), op(c, call.tensor(a, "a"), call.tensor(b, "b")));
  });
}

}  // namespace

trafo_error* trafo_op_add(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                          trafo_tensor** out) {
  return binary(__func__, context, a, b, out, ops::add);
}

trafo_error* trafo_op_subtract(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                               trafo_tensor** out) {
  return binary(__func__, context, a, b, out, ops::subtract);
}

trafo_error* trafo_op_multiply(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                               trafo_tensor** out) {
  return binary(__func__, context, a, b, out, ops::multiply);
}

trafo_error* trafo_op_divide(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                             trafo_tensor** out) {
  return binary(__func__, context, a, b, out, ops::divide);
}

trafo_error* trafo_op_matmul(trafo_context* context, const trafo_tensor* a, const trafo_tensor* b,
                             int32_t transpose_a, int32_t transpose_b, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const ops::MatmulOptions options{call.flag(transpose_a, "transpose_a"),
                                     call.flag(transpose_b, "transpose_b")};
    *out = give_tensor(call.owner(),
                       ops::matmul(c, call.tensor(a, "a"), call.tensor(b, "b"), options));
  });
}

#define TRAFO_UNARY(name)                                                                   \
  trafo_error* trafo_op_##name(trafo_context* context, const trafo_tensor* x,               \
                               trafo_tensor** out) {                                        \
    return unary(__func__, context, x, out,                                                 \
                 [](const Call&, Context& c, const Tensor& t) { return ops::name(c, t); }); \
  }
TRAFO_UNARY(exp)
TRAFO_UNARY(log)
TRAFO_UNARY(sqrt)
TRAFO_UNARY(tanh)
TRAFO_UNARY(sigmoid)
TRAFO_UNARY(sum)
TRAFO_UNARY(mean)
#undef TRAFO_UNARY

#define TRAFO_REDUCE(name)                                                                       \
  trafo_error* trafo_op_##name##_dim(trafo_context* context, const trafo_tensor* x, int32_t dim, \
                                     int32_t keep_dim, trafo_tensor** out) {                     \
    return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) { \
      return ops::name(c, t, dim, call.flag(keep_dim, "keep_dim"));                              \
    });                                                                                          \
  }
TRAFO_REDUCE(sum)
TRAFO_REDUCE(mean)
TRAFO_REDUCE(max)
#undef TRAFO_REDUCE

trafo_error* trafo_op_scale(trafo_context* context, const trafo_tensor* x, double factor,
                            trafo_tensor** out) {
  return unary(__func__, context, x, out,
               [&](const Call&, Context& c, const Tensor& t) { return ops::scale(c, t, factor); });
}

trafo_error* trafo_op_shift(trafo_context* context, const trafo_tensor* x, double amount,
                            trafo_tensor** out) {
  return unary(__func__, context, x, out,
               [&](const Call&, Context& c, const Tensor& t) { return ops::shift(c, t, amount); });
}

trafo_error* trafo_op_reshape(trafo_context* context, const trafo_tensor* x, const int64_t* shape,
                              int32_t rank, trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) {
    return ops::reshape(c, t, checked_shape(call, shape, rank));
  });
}

trafo_error* trafo_op_transpose(trafo_context* context, const trafo_tensor* x, int32_t dim0,
                                int32_t dim1, trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call&, Context& c, const Tensor& t) {
    return ops::transpose(c, t, dim0, dim1);
  });
}

trafo_error* trafo_op_slice(trafo_context* context, const trafo_tensor* x, int32_t dim,
                            int64_t start, int64_t stop, trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call&, Context& c, const Tensor& t) {
    return ops::slice(c, t, dim, start, stop);
  });
}

trafo_error* trafo_op_concat(trafo_context* context, const trafo_tensor* const* tensors,
                             size_t count, int32_t dim, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    call.array(tensors, count, "tensors");
    std::vector<Tensor> parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(call.tensor(tensors[i], "tensors"));
    *out = give_tensor(call.owner(), ops::concat(c, parts, dim));
  });
}

trafo_error* trafo_op_cast(trafo_context* context, const trafo_tensor* x, int32_t dtype,
                           trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) {
    return ops::cast(c, t, checked_dtype(call, dtype));
  });
}

trafo_error* trafo_op_linear(trafo_context* context, const trafo_tensor* x,
                             const trafo_tensor* weight, const trafo_tensor* bias,
                             trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) {
    return ops::linear(c, t, call.tensor(weight, "weight"), call.optional_tensor(bias, "bias"));
  });
}

trafo_error* trafo_op_dropout(trafo_context* context, const trafo_tensor* x,
                              const trafo_dropout* dropout, trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) {
    return ops::dropout(c, t, to_dropout(call, dropout));
  });
}

trafo_error* trafo_op_activation(trafo_context* context, const trafo_tensor* x, int32_t activation,
                                 trafo_tensor** out) {
  return unary(__func__, context, x, out, [&](const Call& call, Context& c, const Tensor& t) {
    return ops::activation(c, t, to_activation(call, activation));
  });
}
