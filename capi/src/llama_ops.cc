#include "capi/src/handles.h"
#include "capi/src/op_arguments.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/rotary/rotary.h"
#include "engine/ops/swiglu/swiglu.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_op_rms_norm(trafo_context* context, const trafo_tensor* x,
                               const trafo_tensor* gamma, double epsilon, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(),
                       ops::rms_norm(c, call.tensor(x, "x"), call.tensor(gamma, "gamma"), epsilon));
  });
}

trafo_error* trafo_op_residual_rms_norm(trafo_context* context, const trafo_tensor* x,
                                        const trafo_tensor* residual, const trafo_tensor* gamma,
                                        double epsilon, const trafo_dropout* dropout,
                                        trafo_tensor** out_sum, trafo_tensor** out_normed) {
  return api(__func__, [&](const Call& call) {
    call.out(out_sum, "out_sum");
    call.out(out_normed, "out_normed");
    Context& c = call.context(context);
    const ops::ResidualRmsNorm result =
        ops::residual_rms_norm(c, call.tensor(x, "x"), call.tensor(residual, "residual"),
                               call.tensor(gamma, "gamma"), epsilon, to_dropout(call, dropout));
    NewTensors results(call.owner(), {result.sum, result.normed});
    results.hand_over({out_sum, out_normed});
  });
}

trafo_error* trafo_op_rotary(trafo_context* context, const trafo_tensor* x,
                             const trafo_tensor* positions, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, double theta, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    ops::RotaryOptions options;
    options.heads = heads;
    options.kv_heads = kv_heads;
    options.head_dim = head_dim;
    options.angles.theta = theta;
    *out = give_tensor(call.owner(), ops::rotary(c, call.tensor(x, "x"),
                                                 call.tensor(positions, "positions"), options));
  });
}

trafo_error* trafo_op_swiglu(trafo_context* context, const trafo_tensor* x, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), ops::swiglu(c, call.tensor(x, "x")));
  });
}
