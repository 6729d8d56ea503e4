#include <algorithm>
#include <span>
#include <vector>

#include "capi/src/handles.h"
#include "engine/autograd/checkpoint.h"
#include "engine/autograd/gradcheck.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// Whether a region may leave an output NULL.
enum class Outputs { all, some };

// A region: a function of the program over tensors.
class Region {
 public:
  Region(const std::shared_ptr<Context>& context, trafo_region_fn fn,
         std::shared_ptr<void> user_data, size_t output_count, const char* function,
         Outputs given = Outputs::all)
      : context_(context),
        fn_(fn),
        user_data_(std::move(user_data)),
        output_count_(output_count),
        function_(function),
        given_(given) {}

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
      if (!output && given_ == Outputs::some) {
        results.emplace_back();
        continue;
      }
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
  Outputs given_;
};

std::vector<Tensor> collect(const Call& call, const trafo_tensor* const* inputs, size_t count) {
  call.array(inputs, count, "inputs");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(call.tensor(inputs[i], "inputs"));
  return tensors;
}

constexpr size_t kMostOutputs = 1024;
constexpr const char* kCustomOp = "custom_op";

// A tensor that the backward function of a custom op reads, and the version of its memory.
struct KeptTensor {
  explicit KeptTensor(const Tensor& tensor)
      : value(tensor),
        storage(value.is_kept() ? tensor.storage() : nullptr),
        version(storage ? storage->version() : 0) {}
  SavedTensor value;
  std::shared_ptr<Storage> storage;  // null: computed again
  uint64_t version;
};

// The results of `forward`; `backward` gives gradients of the inputs.
std::vector<Tensor> custom_op(Context& context, const Region& forward, const Region& backward,
                              const std::vector<Tensor>& inputs) {
  const OpRange range(context, kCustomOp, std::span<const Tensor>(inputs));
  std::vector<Tensor> outputs, constants;
  for (const Tensor& input : inputs) constants.push_back(input.detach());
  {
    const NoGrad no_grad(context);
    outputs = forward(constants);
  }
  std::vector<Tensor*> recorded;
  for (Tensor& output : outputs) {
    require(is_floating(output.dtype()), ErrorCode::dtype_mismatch, kCustomOp, "an output is ",
            dtype_name(output.dtype()), ", and has no gradient");
    output = output.detach();  // it may be one of the inputs
    recorded.push_back(&output);
  }
  if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return requires_grad(t); }))
    return outputs;
  std::vector<KeptTensor> kept;
  for (const Tensor& input : inputs) kept.emplace_back(input);
  for (const Tensor& output : outputs) kept.emplace_back(output.detach());
  const auto differentiate = [kept = std::move(kept), backward,
                              count = inputs.size()](Backward& b) {
    Context& c = b.context();
    std::vector<Tensor> given;
    for (const KeptTensor& each : kept) {
      if (each.storage)
        check_version(kCustomOp, given.size() < count ? "an input" : kResult, *each.storage,
                      each.version);
      given.push_back(each.value.get(c).detach());
    }
    for (size_t i = 0; i < kept.size() - count; ++i) given.push_back(b.grad_output(i));
    const NoGrad no_grad(c);
    const std::vector<Tensor> gradients = backward(given);
    for (size_t i = 0; i < count; ++i) {
      if (!b.needs(i) || !gradients[i].defined()) continue;
      require(gradients[i].dtype() == given[i].dtype(), ErrorCode::dtype_mismatch, kCustomOp,
              "the gradient of input ", i, " is ", dtype_name(gradients[i].dtype()), ", the input ",
              dtype_name(given[i].dtype()));
      require(gradients[i].shape() == given[i].shape(), ErrorCode::shape_mismatch, kCustomOp,
              "the gradient of input ", i, " is ", gradients[i].shape().str(), ", the input ",
              given[i].shape().str());
      b.add(i, ops::contiguous(c, gradients[i].detach()));
    }
  };
  context.record(kCustomOp, inputs, recorded, {}, differentiate);
  return outputs;
}

void no_outputs(const Call& call, trafo_tensor** outputs, size_t count) {
  call.array(outputs, count, "outputs");
  if (count > kMostOutputs) call.refuse_argument("output_count", " is over ", kMostOutputs);
  for (size_t i = 0; i < count; ++i) outputs[i] = nullptr;
}

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
    no_outputs(call, outputs, output_count);
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

trafo_error* trafo_custom_op(trafo_context* context, trafo_region_fn forward,
                             trafo_region_fn backward, void* user_data,
                             void (*user_data_free)(void*), const trafo_tensor* const* inputs,
                             size_t input_count, trafo_tensor** outputs, size_t output_count) {
  return api(__func__, [&](const Call& call) {
    const auto keep = owned(user_data, user_data_free);
    no_outputs(call, outputs, output_count);
    const std::shared_ptr<Context> owner = call.handle(context, "context").context;
    call.use(owner, CallsBack::yes);
    if (!forward) call.refuse_argument("forward", " is NULL");
    if (!backward) call.refuse_argument("backward", " is NULL");
    const std::vector<Tensor> tensors = collect(call, inputs, input_count);
    const Region run(owner, forward, keep, output_count, call.function());
    const Region differentiate(owner, backward, keep, input_count, call.function(), Outputs::some);
    NewTensors results(owner, custom_op(*owner, run, differentiate, tensors));
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
