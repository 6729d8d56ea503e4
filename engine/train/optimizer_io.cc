#include "engine/train/optimizer_io.h"

#include <cmath>
#include <cstring>

#include "engine/dist/lanes.h"
#include "engine/optim/state_code.h"
#include "engine/train/shard_transfer.h"

namespace trafo {
namespace {

constexpr const char* kOptimizerIoOrigin = "optimizer file";
const std::string kMoments[] = {"exp_avg.", "exp_avg_sq."};

// A tensor of the optimizer, and its shape for all parameters.
struct Moment {
  std::string name;
  Tensor part;
  std::vector<int64_t> shape;
  int64_t block;  // elements of the parameters that an entry along the first dimension is for

  size_t entry_bytes() const {
    size_t bytes = dtype_size(part.dtype());
    for (size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<size_t>(shape[i]);
    return bytes;
  }
  size_t bytes() const { return static_cast<size_t>(shape[0]) * entry_bytes(); }
};

bool in_eight_bits(const AdamW& optimizer) {
  return optimizer.options().states == OptimizerStates::eight_bit;
}

// In the order of the file.
std::vector<Moment> moments_of(const ParameterStore& parameters, const AdamW& optimizer) {
  const int64_t elements = parameters.flat().numel();
  if (!in_eight_bits(optimizer))
    return {{kMoments[0], optimizer.first_moment(), {elements}, 1},
            {kMoments[1], optimizer.second_moment(), {elements}, 1}};
  using state_code::kBlock;
  const int64_t blocks = state_code::blocks(elements);
  constexpr int64_t kWords = kBlock / static_cast<int64_t>(sizeof(int32_t));
  return {{"exp_avg", optimizer.first_moment(), {blocks, kWords}, kBlock},
          {"exp_avg_scale", optimizer.first_scale(), {blocks}, kBlock},
          {"exp_avg_sq", optimizer.second_moment(), {blocks, kWords}, kBlock},
          {"exp_avg_sq_scale", optimizer.second_scale(), {blocks}, kBlock}};
}

// The bytes of the ranks' parts, and the end.
std::vector<size_t> part_begins(const Moment& moment, const ParameterStore& parameters,
                                const TrainingGroup& group) {
  std::vector<size_t> begins;
  for (int rank = 0; rank <= group.size; ++rank) {
    const int64_t element = rank == group.size
                                ? parameters.flat().numel()
                                : shard_of(rank, group.size, parameters.flat().numel()).begin;
    begins.push_back(static_cast<size_t>((element + moment.block - 1) / moment.block) *
                     moment.entry_bytes());
  }
  return begins;
}

// The tensor of the file for a moment. Checks name, dtype and shape.
const TensorInfo& matching(const SafetensorsReader& reader, const Moment& to) {
  const TensorInfo* info = reader.find(to.name);
  require(info != nullptr, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(),
          " lacks the tensor ", to.name);
  const Shape shape{std::span<const int64_t>(to.shape)};
  require(info->dtype == to.part.dtype() && info->shape == to.shape, ErrorCode::corrupt_file,
          kOptimizerIoOrigin, reader.label(), ": ", to.name, " is ", dtype_name(info->dtype), " ",
          Shape(std::span<const int64_t>(info->shape)).str(), ", the model needs ",
          dtype_name(to.part.dtype()), " ", shape.str());
  return *info;
}

// A bad scale would silently corrupt all moments of its block.
void check_scales(const SafetensorsReader& reader, const Moment& to,
                  std::span<const std::byte> bytes) {
  if (to.part.dtype() != DType::f32) return;
  std::vector<float> scales(bytes.size() / sizeof(float));
  if (!scales.empty()) std::memcpy(scales.data(), bytes.data(), bytes.size());
  for (const float scale : scales)
    require(std::isfinite(scale) && scale >= 0, ErrorCode::corrupt_file, kOptimizerIoOrigin,
            reader.label(), ": ", to.name, " holds ", scale,
            ", a scale is finite and not negative");
}

// Where the bytes of a moment go: to its tensor, or to the shards of all ranks.
StagingTarget moment_target(const Moment& moment, const ParameterStore& parameters,
                            const TrainingGroup& group) {
  if (!group.has_peers()) return moment.part;
  return {moment.part.dtype(), moment.bytes(),
          [part = moment.part, begins = part_begins(moment, parameters, group),
           peers = group.communicator](Context& context, std::span<const std::byte> bytes) {
            scatter_from_root(context, *peers, bytes, begins, part);
          }};
}

void stage_eight_bit(const SafetensorsReader& reader, const ParameterStore& parameters,
                     const AdamW& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  const std::vector<Moment> moments = moments_of(parameters, optimizer);
  for (const Moment& to : moments) {
    const TensorInfo& info = matching(reader, to);
    std::vector<std::byte> bytes(to.bytes());
    reader.read(info, bytes);
    check_scales(reader, to, bytes);
    staged.add(moment_target(to, parameters, group), std::move(bytes));
  }
  for (const TensorInfo& info : reader.tensors()) {
    bool known = false;
    for (const Moment& to : moments) known = known || info.name == to.name;
    require(known, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(), " has the tensor ",
            info.name, ", which the optimizer does not know");
  }
}

}  // namespace

std::vector<HostBuffer> gather_moments(Context& context, const ParameterStore& parameters,
                                       const AdamW& optimizer, const TrainingGroup& group,
                                       const HostAllocator& allocate) {
  std::vector<HostBuffer> gathered;
  for (const Moment& moment : moments_of(parameters, optimizer)) {
    HostBuffer whole = allocate(group.rank == 0 ? moment.bytes() : 0);
    if (group.has_peers())
      gather_to_root(context, *group.communicator, moment.part,
                     part_begins(moment, parameters, group), whole.bytes());
    else
      context.to_host(moment.part.detach(), whole.data(), whole.size());
    gathered.push_back(std::move(whole));
  }
  return gathered;
}

std::vector<TensorEntry> moment_entries(const ParameterStore& parameters, const AdamW& optimizer,
                                        std::span<const HostBuffer> gathered) {
  std::vector<TensorEntry> entries;
  const std::vector<Moment> moments = moments_of(parameters, optimizer);
  for (size_t i = 0; i < moments.size(); ++i) {
    const Moment& moment = moments[i];
    if (in_eight_bits(optimizer)) {
      entries.push_back({moment.name, moment.part.dtype(), moment.shape, gathered[i].bytes()});
      continue;
    }
    for (TensorEntry& entry :
         workspace_entries(parameters, moment.part.dtype(), moment.name, gathered[i].bytes()))
      entries.push_back(std::move(entry));
  }
  return entries;
}

void stage_moments(const ParameterStore& parameters, const SafetensorsReader& reader,
                   const AdamW& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  const bool file_in_eight_bits = reader.find("exp_avg") != nullptr;
  require(file_in_eight_bits == in_eight_bits(optimizer), ErrorCode::invalid_argument,
          kOptimizerIoOrigin, reader.label(), " holds ", file_in_eight_bits ? "8bit" : "fp32",
          " optimizer states, the trainer keeps ", enum_name(optimizer.options().states),
          " ones: a run continues with those it has begun with");
  if (file_in_eight_bits) {
    stage_eight_bit(reader, parameters, optimizer, group, staged);
    return;
  }
  std::vector<StagingTarget> targets;
  for (const Moment& moment : moments_of(parameters, optimizer))
    targets.push_back(moment_target(moment, parameters, group));
  stage_workspaces(parameters, reader, targets, kMoments, staged);
}

void receive_moments(Context& context, const ParameterStore& parameters, const AdamW& optimizer,
                     const TrainingGroup& group) {
  for (const Moment& moment : moments_of(parameters, optimizer))
    scatter_from_root(context, *group.communicator, {}, part_begins(moment, parameters, group),
                      moment.part);
}

}  // namespace trafo
