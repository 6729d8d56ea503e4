#include "engine/train/optimizer_io.h"

#include <cmath>
#include <cstring>

namespace trafo {
namespace {

constexpr const char* kOptimizerIoOrigin = "optimizer file";
const std::string kMoments[] = {"exp_avg.", "exp_avg_sq."};

struct Named {
  const char* name;
  const Tensor& tensor;
};

std::vector<Named> eight_bit_tensors(const AdamW& optimizer) {
  return {{"exp_avg", optimizer.first_moment()},
          {"exp_avg_scale", optimizer.first_scale()},
          {"exp_avg_sq", optimizer.second_moment()},
          {"exp_avg_sq_scale", optimizer.second_scale()}};
}

bool in_eight_bits(const AdamW& optimizer) {
  return optimizer.options().states == OptimizerStates::eight_bit;
}

// The tensor of the file for `to`. Checks name, dtype and shape.
const TensorInfo& matching(const SafetensorsReader& reader, const Named& to) {
  const TensorInfo* info = reader.find(to.name);
  require(info != nullptr, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(),
          " lacks the tensor ", to.name);
  const Shape& shape = to.tensor.shape();
  require(info->dtype == to.tensor.dtype() &&
              info->shape == std::vector<int64_t>(shape.begin(), shape.end()),
          ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(), ": ", to.name, " is ",
          dtype_name(info->dtype), " ", Shape(std::span<const int64_t>(info->shape)).str(),
          ", the model needs ", dtype_name(to.tensor.dtype()), " ", shape.str());
  return *info;
}

// A bad scale would silently corrupt all moments of its block.
void check_scales(const SafetensorsReader& reader, const Named& to,
                  std::span<const std::byte> bytes) {
  if (to.tensor.dtype() != DType::f32) return;
  std::vector<float> scales(bytes.size() / sizeof(float));
  if (!scales.empty()) std::memcpy(scales.data(), bytes.data(), bytes.size());
  for (const float scale : scales)
    require(std::isfinite(scale) && scale >= 0, ErrorCode::corrupt_file, kOptimizerIoOrigin,
            reader.label(), ": ", to.name, " holds ", scale,
            ", a scale is finite and not negative");
}

void stage_eight_bit(const SafetensorsReader& reader, const AdamW& optimizer,
                     StagedTensors& staged) {
  const std::vector<Named> tensors = eight_bit_tensors(optimizer);
  for (const Named& to : tensors) {
    const TensorInfo& info = matching(reader, to);
    std::vector<std::byte> bytes(to.tensor.bytes());
    reader.read(info, bytes);
    check_scales(reader, to, bytes);
    staged.add(to.tensor, std::move(bytes));
  }
  for (const TensorInfo& info : reader.tensors()) {
    bool known = false;
    for (const Named& to : tensors) known = known || info.name == to.name;
    require(known, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(), " has the tensor ",
            info.name, ", which the optimizer does not know");
  }
}

}  // namespace

void write_moments(ByteSink& sink, Context& context, const ParameterStore& parameters,
                   const AdamW& optimizer) {
  std::vector<HostBuffer> storage;
  std::vector<TensorEntry> entries;
  if (in_eight_bits(optimizer)) {
    const std::vector<Named> tensors = eight_bit_tensors(optimizer);
    storage.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i].tensor;
      storage[i] = HostBuffer(tensor.bytes());
      context.to_host(tensor.detach(), storage[i].data(), storage[i].size());
      entries.push_back({tensors[i].name,
                         tensor.dtype(),
                         {tensor.shape().begin(), tensor.shape().end()},
                         storage[i].bytes()});
    }
  } else {
    const Tensor moments[] = {optimizer.first_moment(), optimizer.second_moment()};
    storage.resize(std::size(moments));
    for (size_t i = 0; i < storage.size(); ++i)
      for (TensorEntry& entry :
           workspace_entries(context, parameters, moments[i], kMoments[i], storage[i]))
        entries.push_back(std::move(entry));
  }
  write_safetensors(sink, entries);
}

void stage_moments(const ParameterStore& parameters, const SafetensorsReader& reader,
                   const AdamW& optimizer, StagedTensors& staged) {
  const bool file_in_eight_bits = reader.find("exp_avg") != nullptr;
  require(file_in_eight_bits == in_eight_bits(optimizer), ErrorCode::invalid_argument,
          kOptimizerIoOrigin, reader.label(), " holds ", file_in_eight_bits ? "8bit" : "fp32",
          " optimizer states, the trainer keeps ", enum_name(optimizer.options().states),
          " ones: a run continues with those it has begun with");
  if (file_in_eight_bits) {
    stage_eight_bit(reader, optimizer, staged);
    return;
  }
  const Tensor moments[] = {optimizer.first_moment(), optimizer.second_moment()};
  stage_workspaces(parameters, reader, moments, kMoments, staged);
}

}  // namespace trafo
