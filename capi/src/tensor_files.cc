#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "capi/src/handles.h"
#include "engine/core/numeric/philox.h"
#include "engine/io/safetensors.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// Of the random numbers of trafo_tensor_random: models and dropout use others.
constexpr uint64_t kRandomStream = uint64_t{1} << 40;

std::string name_of(const Call& call, const trafo_string_view* names, size_t i) {
  return std::string(call.text(names[i].data, names[i].length, "a name"));
}

}  // namespace

trafo_error* trafo_tensor_random(trafo_context* context, int32_t dtype, const int64_t* shape,
                                 int32_t rank, int32_t distribution, double a, double b,
                                 uint64_t seed, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const DType type = checked_dtype(call, dtype);
    require(is_floating(type), ErrorCode::dtype_mismatch, call.function(),
            "random tensors are floating-point, not ", dtype_name(type));
    const Shape dims = checked_shape(call, shape, rank);
    if (distribution != TRAFO_UNIFORM && distribution != TRAFO_NORMAL)
      call.refuse_argument("distribution", " is unknown: ", distribution);
    const bool uniform = distribution == TRAFO_UNIFORM;
    if (!std::isfinite(a) || !std::isfinite(b) || (uniform ? a > b : b < 0))
      call.refuse(uniform ? "a uniform distribution needs low <= high, got "
                          : "a normal distribution needs a deviation of at least 0, got ",
                  a, " and ", b);
    std::vector<double> values(static_cast<size_t>(element_count(dims)));
    PhiloxStream random(seed, kRandomStream);
    for (double& value : values) value = uniform ? random.uniform(a, b) : a + b * random.normal();
    *out = give_tensor(call.owner(), c.from_doubles(values, dims, type));
  });
}

trafo_error* trafo_tensors_save(trafo_context* context, const char* path, size_t path_length,
                                const trafo_string_view* names, const trafo_tensor* const* tensors,
                                size_t count) {
  return api(__func__, [&](const Call& call) {
    Context& c = call.context(context);
    const auto file = path_argument(call, path, path_length, "path");
    call.array(names, count, "names");
    call.array(tensors, count, "tensors");
    NoGrad no_grad(c);
    std::vector<TensorEntry> entries;
    std::vector<std::vector<std::byte>> bytes(count);
    for (size_t i = 0; i < count; ++i) {
      const Tensor whole = ops::contiguous(c, call.tensor(tensors[i], "tensors").detach());
      bytes[i].resize(whole.bytes());
      c.to_host(whole, bytes[i].data(), bytes[i].size());
      const auto sizes = whole.shape().span();
      entries.push_back({name_of(call, names, i), whole.dtype(),
                         std::vector<int64_t>(sizes.begin(), sizes.end()), bytes[i]});
    }
    save_safetensors(file, entries);
  });
}

trafo_error* trafo_tensors_load(trafo_context* context, const char* path, size_t path_length,
                                const trafo_string_view* names, size_t count, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.array(out, count, "out");
    for (size_t i = 0; i < count; ++i) out[i] = nullptr;
    Context& c = call.context(context);
    const auto file = path_argument(call, path, path_length, "path");
    call.array(names, count, "names");
    const SafetensorsReader reader = SafetensorsReader::open(file);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < count; ++i) {
      const TensorInfo& info = reader.at(name_of(call, names, i));
      std::vector<std::byte> bytes(info.bytes);
      reader.read(info, bytes);
      tensors.push_back(c.from_host(bytes.data(), bytes.size(),
                                    Shape(std::span<const int64_t>(info.shape)), info.dtype));
    }
    NewTensors results(call.owner(), tensors);
    results.hand_over(out);
  });
}

trafo_error* trafo_tensors_list(const char* path, size_t path_length, char** out_names,
                                size_t* out_length) {
  return api(__func__, [&](const Call& call) {
    call.out(out_names, "out_names");
    call.out(out_length, "out_length");
    const SafetensorsReader reader =
        SafetensorsReader::open_foreign(path_argument(call, path, path_length, "path"));
    std::vector<std::string_view> names;
    for (const TensorInfo& tensor : reader.tensors()) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    std::string list;
    for (const std::string_view name : names) list.append(name).push_back('\0');
    *out_names = copy_string(list);
    *out_length = list.size();
  });
}

trafo_error* trafo_tensors_read(trafo_context* context, const char* path, size_t path_length,
                                const trafo_string_view* names, trafo_tensor* const* tensors,
                                size_t count) {
  return api(__func__, [&](const Call& call) {
    Context& c = call.context(context);
    const auto file = path_argument(call, path, path_length, "path");
    call.array(names, count, "names");
    call.array(tensors, count, "tensors");
    const SafetensorsReader reader = SafetensorsReader::open_foreign(file);
    // Everything is read before anything changes.
    std::vector<std::vector<std::byte>> bytes(count);
    for (size_t i = 0; i < count; ++i) {
      const Tensor& tensor = call.tensor(tensors[i], "tensors");
      check_writable(call, tensor);
      const TensorInfo& info = reader.at(name_of(call, names, i));
      const Shape shape{std::span<const int64_t>(info.shape)};
      require(info.foreign.empty() && info.dtype == tensor.dtype() && shape == tensor.shape(),
              ErrorCode::shape_mismatch, call.function(), reader.label(), ": ", info.name, " is ",
              shape.str(), " ",
              info.foreign.empty() ? dtype_name(info.dtype) : info.foreign.c_str(), ", the tensor ",
              tensor.shape().str(), " ", dtype_name(tensor.dtype()));
      bytes[i].resize(info.bytes);
      reader.read(info, bytes[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Tensor& tensor = call.tensor(tensors[i], "tensors");
      c.backend().copy_from_host(tensor.raw(), bytes[i].data(), bytes[i].size());
      tensor.mark_written();
    }
  });
}
