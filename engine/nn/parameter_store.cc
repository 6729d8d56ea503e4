#include "engine/nn/parameter_store.h"

#include <algorithm>
#include <cmath>

#include "engine/core/philox.h"
#include "engine/ops/cast/cast.h"

namespace trafo {
namespace {

constexpr int64_t kAlignment = 16;  // elements: 64 bytes of float32

template <class T>
std::vector<T> draw(const Init& init, int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<T> values(static_cast<size_t>(count), T(init.kind == Init::Kind::ones ? 1 : 0));
  PhiloxStream random(seed, stream);
  const int64_t layer = init.layer_elements > 0 ? init.layer_elements : std::max<int64_t>(1, count);
  for (int64_t begin = 0; begin < count; begin += layer) {
    const double scale = init.scale / std::sqrt(static_cast<double>(begin / layer + 1));
    const auto end = std::min(begin + layer, count);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (init.kind == Init::Kind::uniform)
        values[i] = static_cast<T>(random.uniform(-scale, scale));
      if (init.kind == Init::Kind::normal) values[i] = static_cast<T>(scale * random.normal());
    }
  }
  return values;
}

}  // namespace

Init Init::xavier_uniform(int64_t in, int64_t out) {
  return {Kind::uniform, std::sqrt(6.0 / static_cast<double>(in + out))};
}

size_t ParameterStore::index(ParamId id) const {
  require(id >= 0 && static_cast<size_t>(id) < entries_.size(), ErrorCode::not_found, "parameters",
          "there is no parameter number ", id);
  return static_cast<size_t>(id);
}

ParamId ParameterStore::declare(std::string name, const Shape& shape, Init init) {
  require(!flat_.defined(), ErrorCode::internal, "parameters", name, " is declared too late");
  require(find(name) == kNoParam, ErrorCode::internal, "parameters", name, " is declared twice");
  const int64_t count = element_count(shape);
  entries_.push_back({std::move(name), shape, init, size_, {}, {}});
  size_ = checked_add(size_, (count + kAlignment - 1) / kAlignment * kAlignment, "parameters");
  return static_cast<ParamId>(entries_.size() - 1);
}

void ParameterStore::allocate(Context& context, DType dtype, uint64_t seed) {
  require(is_floating(dtype), ErrorCode::dtype_mismatch, "parameters",
          "parameters are floating-point numbers, not ", dtype_name(dtype));
  flat_ = context.zeros({size_}, dtype);
  master_ = dtype == DType::bf16 ? context.zeros({size_}, DType::f32) : flat_;
  flat_grad_ = context.zeros({size_}, master_.dtype());
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const Strides strides = contiguous_strides(entry.shape);
    entry.value = flat_.as_strided(entry.shape, strides, entry.offset);
    entry.grad = flat_grad_.as_strided(entry.shape, strides, entry.offset);
    set_requires_grad(entry.value, true);
    bind_grad(entry.value, entry.grad);
    if (entry.init.kind == Init::Kind::zeros || !context.backend().keeps_data()) continue;
    const int64_t count = entry.value.numel();
    if (dtype == DType::f64) {
      const auto values = draw<double>(entry.init, count, seed, i);
      set_value(context, static_cast<ParamId>(i), values.data(), values.size() * sizeof(double));
    } else {
      const auto values = draw<float>(entry.init, count, seed, i);
      set_value(context, static_cast<ParamId>(i), values.data(), values.size() * sizeof(float));
    }
  }
}

ParamId ParameterStore::find(const std::string& name) const {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == name) return static_cast<ParamId>(i);
  return kNoParam;
}

int64_t ParameterStore::parameter_count() const {
  int64_t total = 0;
  for (const Entry& entry : entries_) total += element_count(entry.shape);
  return total;
}

void ParameterStore::zero_grad() {
  for (const Entry& entry : entries_) trafo::zero_grad(entry.value);
}

void ParameterStore::complete_grads(Context& context) {
  for (const Entry& entry : entries_) {
    if (grad_of(entry.value).defined()) continue;
    context.backend().fill_zero(entry.grad.raw(), entry.grad.bytes());
    keep_grad(entry.value);
  }
}

void ParameterStore::follow_master(Context& context) {
  if (has_master()) convert_into(context, flat_, master_);
}

void ParameterStore::set_value(Context& context, ParamId id, const void* data, size_t bytes) {
  const Entry& entry = entries_[index(id)];
  const Tensor master =
      master_.as_strided(entry.shape, contiguous_strides(entry.shape), entry.offset);
  require(bytes == master.bytes(), ErrorCode::shape_mismatch, "parameters", name(id), " takes ",
          master.bytes(), " bytes, got ", bytes);
  context.backend().copy_from_host(master.raw(), data, bytes);
  if (has_master()) convert_into(context, entry.value, master);
}

}  // namespace trafo
