#include <vector>

#include "capi/src/handles.h"
#include "engine/autograd/checkpoint.h"
#include "engine/autograd/gradcheck.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// A region: a function of the program over tensors.
class Region {
 public:
  Region(const std::shared_ptr<Context>& context, trafo_region_fn fn,
         std::shared_ptr<void> user_data, size_t output_count, const char* function)
      : context_(context),
        fn_(fn),
        user_data_(std::move(user_data)),
        output_count_(output_count),
        function_(function) {}

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    const std::shared_ptr<Context> context = context_.lock();
    require(context != nullptr, ErrorCode::invalid_argument, function_, "the context is gone");
    // The callback gets separate handles, which are freed when it returns.
    const OwnedHandle<trafo_context> own_context(new_handle<trafo_context>(context));
    std::vector<OwnedHandle<trafo_tensor>> own_inputs, own_outputs;
    std::vector<const trafo_tensor*> given;
    for (const Tensor& input : inputs)
      given.push_back(own_inputs.emplace_back(give_tensor(context, input)).get());
    own_outputs.reserve(output_count_);
    std::vector<trafo_tensor*> outputs(output_count_, nullptr);
    const int32_t result = call_host(fn_, user_data_.get(), own_context.get(), given.data(),
                                     given.size(), outputs.data(), outputs.size());
    require(result == 0, ErrorCode::cancelled, function_, "the region returned ", result);
    for (trafo_tensor* output : outputs) own_outputs.emplace_back(output);
    std::vector<Tensor> results;
    const Call checks(function_);
    for (const trafo_tensor* output : outputs) {
      const TensorObject* object = checks.find(output);
      if (!object) checks.refuse("the region left an output that is not a live trafo_tensor");
      if (object->context != context) checks.refuse("the region left an output of another context");
      results.push_back(object->tensor);
    }
    return results;
  }

 private:
  std::weak_ptr<Context> context_;
  trafo_region_fn fn_;
  std::shared_ptr<void> user_data_;
  size_t output_count_;
  const char* function_;
};

std::vector<Tensor> collect(const Call& call, const trafo_tensor* const* inputs, size_t count) {
  call.array(inputs, count, "inputs");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(call.tensor(inputs[i], "inputs"));
  return tensors;
}

constexpr size_t kMostOutputs = 1024;

}  // namespace

trafo_error* trafo_backward(trafo_context* context, const trafo_tensor* root,
                            const trafo_tensor* upstream) {
  return api(__func__, [&](const Call& call) {
    // Regions run here, and may free the handles that this call was given.
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    call.use(owner, CallsBack::yes);
    const Tensor from = call.tensor(root, "root");
    owner->backward(from, call.optional_tensor(upstream, "upstream"));
  });
}

trafo_error* trafo_checkpoint(trafo_context* context, trafo_region_fn region, void* user_data,
                              void (*user_data_free)(void*), const trafo_tensor* const* inputs,
                              size_t input_count, trafo_tensor** outputs, size_t output_count) {
  return api(__func__, [&](const Call& call) {
    // From here on user_data is freed exactly once, also if the call fails.
    const auto keep = owned(user_data, user_data_free);
    call.array(outputs, output_count, "outputs");
    if (output_count > kMostOutputs)
      call.refuse_argument("output_count", " is over ", kMostOutputs);
    for (size_t i = 0; i < output_count; ++i) outputs[i] = nullptr;
    // The region may free the handle it was called with.
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    call.use(owner, CallsBack::yes);
    if (!region) call.refuse_argument("region", " is NULL");
    const std::vector<Tensor> tensors = collect(call, inputs, input_count);
    const Region body(owner, region, keep, output_count, call.function());
    NewTensors results(
        owner, checkpoint(*owner, tensors,
                          [body](Context&, const std::vector<Tensor>& in) { return body(in); }));
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
    call.use(owner, CallsBack::yes);
    if (!region) call.refuse_argument("region", " is NULL");
    if (output_count > kMostOutputs)
      call.refuse_argument("output_count", " is over ", kMostOutputs);
    if (!(eps > 0) || !(atol >= 0) || !(rtol >= 0))
      call.refuse_argument("eps", " must be above 0, atol and rtol at least 0");
    const std::vector<Tensor> tensors = collect(call, inputs, input_count);
    const Region body(owner, region, owned(user_data, nullptr), output_count, call.function());
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
