#include <vector>

#include "capi/src/handles.h"
#include "engine/autograd/checkpoint.h"
#include "engine/autograd/gradcheck.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// A caller's function over tensors, and the promise to free its user data once.
class Region {
 public:
  Region(trafo_region_fn fn, void* user_data, void (*user_data_free)(void*), size_t output_count,
         const char* function)
      : fn_(fn),
        user_data_(user_data),
        user_data_free_(user_data_free),
        output_count_(output_count),
        function_(function) {}
  ~Region() {
    if (user_data_free_) user_data_free_(user_data_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  void bind(const std::shared_ptr<Context>& context) { context_ = context; }

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    const std::shared_ptr<Context> context = context_.lock();
    require(context != nullptr, ErrorCode::invalid_argument, function_, "the context is gone");
    // Everything the callback sees is a handle of its own, gone when it returns.
    struct Handles {
      trafo_context* context = nullptr;
      std::vector<trafo_tensor*> inputs, outputs;
      ~Handles() {
        for (trafo_tensor* handle : inputs) free_handle(handle);
        for (trafo_tensor* handle : outputs) free_handle(handle);
        free_handle(context);
      }
    } handles;
    handles.context = new_handle<trafo_context>(context);
    handles.inputs.reserve(inputs.size());
    for (const Tensor& input : inputs) handles.inputs.push_back(give_tensor(context, input));
    std::vector<trafo_tensor*> outputs(output_count_, nullptr);
    const int32_t result = fn_(user_data_, handles.context, handles.inputs.data(), inputs.size(),
                               outputs.data(), outputs.size());
    require(result == 0, ErrorCode::cancelled, function_, "the region returned ", result);
    handles.outputs.swap(outputs);
    std::vector<Tensor> results;
    for (const trafo_tensor* output : handles.outputs) {
      require(output != nullptr && is_live(output, HandleKind::tensor), ErrorCode::invalid_argument,
              function_, "the region left an output that is not a live trafo_tensor");
      require(output->context == context, ErrorCode::invalid_argument, function_,
              "the region left an output of another context");
      results.push_back(output->tensor);
    }
    return results;
  }

 private:
  trafo_region_fn fn_;
  void* user_data_;
  void (*user_data_free_)(void*);
  std::weak_ptr<Context> context_;
  size_t output_count_;
  const char* function_;
};

std::vector<Tensor> collect(const Call& call, const trafo_context* context,
                            const trafo_tensor* const* inputs, size_t count) {
  call.array(inputs, count, "inputs");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(call.tensor(context, inputs[i], "inputs"));
  return tensors;
}

constexpr size_t kMostOutputs = 1024;

}  // namespace

trafo_error* trafo_backward(trafo_context* context, const trafo_tensor* root,
                            const trafo_tensor* upstream) {
  return api(__func__, [&](const Call& call) {
    // Regions run in here, and may free the very handles of this call.
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    const Tensor from = call.tensor(context, root, "root");
    owner->backward(from, call.optional_tensor(context, upstream, "upstream"));
  });
}

trafo_error* trafo_checkpoint(trafo_context* context, trafo_region_fn region, void* user_data,
                              void (*user_data_free)(void*), const trafo_tensor* const* inputs,
                              size_t input_count, trafo_tensor** outputs, size_t output_count) {
  return api(__func__, [&](const Call& call) {
    // From here on user_data is freed exactly once, also when the call is refused.
    auto body =
        std::make_shared<Region>(region, user_data, user_data_free, output_count, call.function());
    call.array(outputs, output_count, "outputs");
    if (output_count > kMostOutputs) call.refuse("output_count is over ", kMostOutputs);
    for (size_t i = 0; i < output_count; ++i) outputs[i] = nullptr;
    // The region may free the handle it was called with.
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    if (!region) call.refuse("region is NULL");
    const std::vector<Tensor> tensors = collect(call, context, inputs, input_count);
    body->bind(owner);
    NewTensors results(
        owner, checkpoint(*owner, tensors,
                          [body](Context&, const std::vector<Tensor>& in) { return (*body)(in); }));
    results.hand_over(outputs);
  });
}

trafo_error* trafo_gradcheck(trafo_context* context, trafo_region_fn region, void* user_data,
                             const trafo_tensor* const* inputs, size_t input_count,
                             size_t output_count, double eps, double atol, double rtol,
                             trafo_gradcheck_result* out, char** out_message) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    if (out_message) *out_message = nullptr;
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    if (!region) call.refuse("region is NULL");
    if (output_count > kMostOutputs) call.refuse("output_count is over ", kMostOutputs);
    if (!(eps > 0) || !(atol >= 0) || !(rtol >= 0))
      call.refuse("eps must be above 0, atol and rtol at least 0");
    const std::vector<Tensor> tensors = collect(call, context, inputs, input_count);
    Region body(region, user_data, nullptr, output_count, call.function());
    body.bind(owner);
    GradcheckOptions options;
    options.eps = eps;
    options.atol = atol;
    options.rtol = rtol;
    const GradcheckResult result = gradcheck(
        *owner, [&](Context&, const std::vector<Tensor>& in) { return body(in); }, tensors,
        options);
    if (out_message) *out_message = copy_string(result.message);
    *out = {result.ok ? 1 : 0, result.checked, result.worst_error};
  });
}
