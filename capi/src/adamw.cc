#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "capi/src/handles.h"
#include "engine/io/safetensors.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clip.h"

using namespace trafo;

// The parameters stay in the caller's memory. Their gradients are bound to one flat workspace, so
// that their norm is one reduction.
struct trafo::capi::AdamwObject {
  std::shared_ptr<Context> context;
  std::vector<Tensor> parameters;  // views that share the variables of the caller's tensors
  std::vector<std::unique_ptr<AdamW>>
      optimizers;  // one for each parameter and its part of the gradients
  Tensor gradients;
  double clip_norm = 0;
};

using namespace trafo::capi;

trafo_error* trafo_adamw_new(trafo_context* context, trafo_tensor* const* parameters, size_t count,
                             const trafo_adamw_options* options, trafo_adamw** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const trafo_adamw_options o = read_options(call, options);
    if (!(o.clip_norm >= 0))
      call.refuse_argument("clip_norm", " must be at least 0, got ", o.clip_norm);
    call.array(parameters, count, "parameters");
    if (count == 0) call.refuse("there are no parameters");

    AdamwObject result{call.owner(), {}, {}, {}, o.clip_norm};
    int64_t total = 0;
    for (size_t i = 0; i < count; ++i) {
      const Tensor& p = call.tensor(parameters[i], "parameters");
      if (!requires_grad(p) || !p.variable()->leaf)
        call.refuse("parameter ", i, " is not a leaf that wants a gradient");
      if (!p.is_contiguous()) call.refuse("parameter ", i, " is a strided view");
      if (p.dtype() != call.tensor(parameters[0], "parameters").dtype())
        call.refuse("parameter ", i, " has another dtype than parameter 0");
      for (const Tensor& earlier : result.parameters)
        if (earlier.variable() == p.variable()) call.refuse("parameter ", i, " is listed twice");
      total = checked_add(total, p.numel(), call.function());
      // Keeps its gradient if the caller turns it off for the handle.
      result.parameters.push_back(p.detach());
      result.parameters.back().set_variable(p.variable());
    }
    result.gradients = c.zeros({total}, result.parameters[0].dtype());
    const AdamWOptions settings{o.beta1, o.beta2, o.epsilon, o.weight_decay};
    int64_t offset = 0;
    for (const Tensor& p : result.parameters) {
      const Tensor grad =
          result.gradients.as_strided(p.shape(), contiguous_strides(p.shape()), offset);
      result.optimizers.push_back(
          std::make_unique<AdamW>(c, UpdateTarget{p.detach(), grad}, settings));
      offset += p.numel();
    }
    // No check can fail after this point: gradients are bound to the workspace from here on.
    offset = 0;
    for (const Tensor& p : result.parameters) {
      bind_grad(p, result.gradients.as_strided(p.shape(), contiguous_strides(p.shape()), offset));
      offset += p.numel();
    }
    *out = new_handle<trafo_adamw>(std::move(result));
  });
}

trafo_error* trafo_adamw_step(trafo_adamw* optimizer, double learning_rate, double* out_grad_norm) {
  return api(__func__, [&](const Call& call) {
    if (out_grad_norm) *out_grad_norm = 0;
    AdamwObject& o = call.handle(optimizer, "optimizer");
    if (!(learning_rate >= 0))
      call.refuse_argument("learning_rate", " must be at least 0, got ", learning_rate);
    call.use(o.context);
    Context& c = *o.context;
    for (size_t i = 0; i < o.parameters.size(); ++i)
      if (o.parameters[i].variable()->grad.storage() != o.gradients.storage())
        call.refuse("parameter ", i, " has been given to another optimizer since");
    // A parameter that no backward has reached adds nothing to the norm and is not updated.
    std::vector<bool> reached;
    for (size_t i = 0; i < o.parameters.size(); ++i) {
      const Tensor& p = o.parameters[i];
      reached.push_back(grad_of(p).defined());
      const Tensor& buffer = p.variable()->grad;
      if (!reached.back()) c.backend().fill_zero(buffer.raw(), buffer.bytes());
    }
    const GradientNorm norm = clip_global_norm(c, o.gradients, o.clip_norm);
    require(norm.finite, ErrorCode::non_finite, call.function(),
            "the gradient norm is not finite; nothing was updated");
    for (size_t i = 0; i < o.parameters.size(); ++i) {
      if (reached[i]) o.optimizers[i]->step(learning_rate, norm.scale);
      zero_grad(o.parameters[i]);
    }
    if (out_grad_norm) *out_grad_norm = norm.norm;
  });
}

namespace {

// The tensors of parameter i in a file, without the number of updates.
struct AdamwTensor {
  std::string name;
  Tensor tensor;
};

std::array<AdamwTensor, 3> saved_tensors(const AdamwObject& o, size_t i) {
  return {AdamwTensor{concat("parameter.", i), o.parameters[i]},
          AdamwTensor{concat("first_moment.", i), o.optimizers[i]->first_moment()},
          AdamwTensor{concat("second_moment.", i), o.optimizers[i]->second_moment()}};
}

std::string updates_name(size_t i) {
  return concat("updates.", i);
}

constexpr const char* kParameters = "parameters";  // of the metadata: how many there are

}  // namespace

trafo_error* trafo_adamw_save(const trafo_adamw* optimizer, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const AdamwObject& o = call.handle(optimizer, "optimizer");
    const auto file = path_argument(call, path, path_length, "path");
    call.use(o.context);
    std::vector<TensorEntry> entries;
    std::vector<std::vector<std::byte>> bytes(4 * o.parameters.size());
    for (size_t i = 0; i < o.parameters.size(); ++i) {
      for (const AdamwTensor& saved : saved_tensors(o, i)) {
        std::vector<std::byte>& data = bytes[entries.size()];
        data.resize(saved.tensor.bytes());
        o.context->to_host(saved.tensor, data.data(), data.size());
        const auto sizes = saved.tensor.shape().span();
        entries.push_back({saved.name, saved.tensor.dtype(),
                           std::vector<int64_t>(sizes.begin(), sizes.end()), data});
      }
      const auto updates = static_cast<int32_t>(
          std::min<int64_t>(o.optimizers[i]->steps(), std::numeric_limits<int32_t>::max()));
      std::vector<std::byte>& data = bytes[entries.size()];
      data.resize(sizeof updates);
      std::memcpy(data.data(), &updates, sizeof updates);
      entries.push_back({updates_name(i), DType::i32, {1}, data});
    }
    save_safetensors(file, entries, {{kParameters, std::to_string(o.parameters.size())}});
  });
}

trafo_error* trafo_adamw_load(trafo_adamw* optimizer, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    AdamwObject& o = call.handle(optimizer, "optimizer");
    const auto file = path_argument(call, path, path_length, "path");
    call.use(o.context);
    const SafetensorsReader reader = SafetensorsReader::open(file);
    const auto count = reader.metadata().find(kParameters);
    const size_t mine = o.parameters.size();
    require(count == reader.metadata().end() || count->second == std::to_string(mine),
            ErrorCode::shape_mismatch, call.function(), reader.label(), " is of ",
            count == reader.metadata().end() ? "" : count->second,
            " parameters, the optimizer has ", mine);
    // Everything is read before anything changes.
    std::vector<std::vector<std::byte>> bytes;
    std::vector<int64_t> updates;
    for (size_t i = 0; i < mine; ++i) {
      for (const AdamwTensor& saved : saved_tensors(o, i)) {
        const TensorInfo& info = reader.at(saved.name);
        const Shape shape{std::span<const int64_t>(info.shape)};
        require(info.foreign.empty() && info.dtype == saved.tensor.dtype() &&
                    shape == saved.tensor.shape(),
                ErrorCode::shape_mismatch, call.function(), reader.label(), ": ", saved.name,
                " is ", shape.str(), " ", dtype_name(info.dtype), ", the optimizer's is ",
                saved.tensor.shape().str(), " ", dtype_name(saved.tensor.dtype()));
        bytes.emplace_back(info.bytes);
        reader.read(info, bytes.back());
      }
      const TensorInfo& info = reader.at(updates_name(i));
      int32_t number = -1;
      if (info.dtype == DType::i32 && info.bytes == sizeof number)
        reader.read(info, std::as_writable_bytes(std::span(&number, 1)));
      require(number >= 0, ErrorCode::corrupt_file, call.function(), reader.label(), ": ",
              info.name, " is not a number of updates");
      updates.push_back(number);
    }
    auto from = bytes.begin();
    for (size_t i = 0; i < mine; ++i) {
      for (const AdamwTensor& saved : saved_tensors(o, i)) {
        o.context->backend().copy_from_host(saved.tensor.raw(), from->data(), from->size());
        ++from;
      }
      o.optimizers[i]->set_steps(updates[i]);
      o.parameters[i].mark_written();
      zero_grad(o.parameters[i]);
    }
  });
}

void trafo_adamw_free(trafo_adamw* optimizer) {
  free_handle(optimizer);
}
