#include "engine/train/checkpoint/optimizer_io.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/dist/lanes.h"
#include "engine/quant/state_code.h"
#include "engine/train/parallel/shard_transfer.h"

namespace trafo {
namespace {

constexpr const char* kOptimizerIoOrigin = "optimizer file";

// A tensor of the optimizer, and its shape for all parameters.
struct StateInFile {
  std::string name;
  Tensor part;
  StateLayout layout;
  std::vector<int64_t> shape;
  int64_t block;  // elements of the parameters that an entry along the first dimension is for

  size_t entry_bytes() const {
    size_t bytes = dtype_size(part.dtype());
    for (size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<size_t>(shape[i]);
    return bytes;
  }
  size_t bytes() const { return static_cast<size_t>(shape[0]) * entry_bytes(); }
  std::string prefix() const { return name + "."; }  // of the names of parameters
};

bool is_coded(const Optimizer& optimizer) {
  return !optimizer.states().empty() && optimizer.states()[0].layout != StateLayout::elements;
}

// In the order of the file.
std::vector<StateInFile> states_of(const ParameterStore& parameters, const Optimizer& optimizer) {
  const int64_t elements = parameters.flat().numel();
  const int64_t blocks = state_code::blocks(elements);
  std::vector<StateInFile> states;
  for (const StateTensor& state : optimizer.states()) {
    StateInFile in_file{state.name, state.tensor, state.layout, {elements}, 1};
    if (state.layout != StateLayout::elements) {
      in_file.shape = {blocks};
      for (int64_t d = 1; d < state.tensor.rank(); ++d)
        in_file.shape.push_back(state.tensor.shape()[d]);
      in_file.block = state_code::kBlock;
    }
    states.push_back(std::move(in_file));
  }
  return states;
}

// The names of the states that a file has, without those of parameters.
std::set<std::string> names_in(const SafetensorsReader& reader) {
  std::set<std::string> names;
  for (const TensorInfo& info : reader.tensors())
    names.insert(info.name.substr(0, info.name.find('.')));
  return names;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "no tensors" : text;
}

void require_same_optimizer(const SafetensorsReader& reader, const Optimizer& optimizer) {
  std::set<std::string> mine;
  for (const StateTensor& state : optimizer.states()) mine.insert(state.name);
  const std::set<std::string> found = names_in(reader);
  if (optimizer.kind() == OptimizerKind::adamw) {
    const bool coded = reader.find("exp_avg") != nullptr;
    require(!found.contains("exp_avg") || coded == is_coded(optimizer), ErrorCode::invalid_argument,
            kOptimizerIoOrigin, reader.label(), " holds ", coded ? "8bit" : "fp32",
            " optimizer states, the trainer keeps ", is_coded(optimizer) ? "8bit" : "fp32",
            " ones: a run continues with those it has begun with");
  }
  // Another file with some of these names is a damaged one, which stage_workspaces() refuses.
  const bool is_mine =
      mine.empty() == found.empty() &&
      (mine.empty() || std::any_of(mine.begin(), mine.end(),
                                   [&](const std::string& name) { return found.contains(name); }));
  require(is_mine, ErrorCode::invalid_argument, kOptimizerIoOrigin, reader.label(),
          " has the optimizer states ", joined(found), ", ", enum_name(optimizer.kind()), " keeps ",
          joined(mine), ": a run continues with the optimizer it has begun with");
}

// The bytes of the ranks' parts, and the end.
std::vector<size_t> part_begins(const StateInFile& state, const ParameterStore& parameters,
                                const TrainingGroup& group) {
  std::vector<size_t> begins;
  for (int rank = 0; rank <= group.size; ++rank) {
    const int64_t element = rank == group.size
                                ? parameters.flat().numel()
                                : shard_of(rank, group.size, parameters.flat().numel()).begin;
    begins.push_back(static_cast<size_t>((element + state.block - 1) / state.block) *
                     state.entry_bytes());
  }
  return begins;
}

// The tensor of the file for a state. Checks name, dtype and shape.
const TensorInfo& matching(const SafetensorsReader& reader, const StateInFile& to) {
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

// A bad scale would silently corrupt all elements of its block.
void check_scales(const SafetensorsReader& reader, const StateInFile& to,
                  std::span<const std::byte> bytes) {
  if (to.layout != StateLayout::scales) return;
  std::vector<float> scales(bytes.size() / sizeof(float));
  if (!scales.empty()) std::memcpy(scales.data(), bytes.data(), bytes.size());
  for (const float scale : scales)
    require(std::isfinite(scale) && scale >= 0, ErrorCode::corrupt_file, kOptimizerIoOrigin,
            reader.label(), ": ", to.name, " holds ", scale,
            ", a scale is finite and not negative");
}

// The destination of the bytes of a state: its tensor, or the shards of all ranks.
StagingTarget state_target(const StateInFile& state, const ParameterStore& parameters,
                           const TrainingGroup& group) {
  if (!group.has_peers()) return state.part;
  return {state.part.dtype(), state.bytes(),
          [part = state.part, begins = part_begins(state, parameters, group),
           peers = group.communicator](Context& context, std::span<const std::byte> bytes) {
            scatter_from_root(context, *peers, bytes, begins, part);
          }};
}

void stage_coded(const SafetensorsReader& reader, const ParameterStore& parameters,
                 const Optimizer& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  const std::vector<StateInFile> states = states_of(parameters, optimizer);
  for (const StateInFile& to : states) {
    const TensorInfo& info = matching(reader, to);
    std::vector<std::byte> bytes(to.bytes());
    reader.read(info, bytes);
    check_scales(reader, to, bytes);
    staged.add(state_target(to, parameters, group), std::move(bytes));
  }
  for (const TensorInfo& info : reader.tensors()) {
    bool known = false;
    for (const StateInFile& to : states) known = known || info.name == to.name;
    require(known, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(), " has the tensor ",
            info.name, ", which the optimizer does not know");
  }
}

}  // namespace

std::vector<HostBuffer> gather_states(Context& context, const ParameterStore& parameters,
                                      const Optimizer& optimizer, const TrainingGroup& group,
                                      const HostAllocator& allocate) {
  std::vector<HostBuffer> gathered;
  for (const StateInFile& state : states_of(parameters, optimizer)) {
    HostBuffer whole = allocate(group.rank == 0 ? state.bytes() : 0);
    if (group.has_peers())
      gather_to_root(context, *group.communicator, state.part,
                     part_begins(state, parameters, group), whole.bytes());
    else
      context.to_host(state.part.detach(), whole.data(), whole.size());
    gathered.push_back(std::move(whole));
  }
  return gathered;
}

std::vector<TensorEntry> state_entries(const ParameterStore& parameters, const Optimizer& optimizer,
                                       std::span<const HostBuffer> gathered) {
  std::vector<TensorEntry> entries;
  const std::vector<StateInFile> states = states_of(parameters, optimizer);
  for (size_t i = 0; i < states.size(); ++i) {
    const StateInFile& state = states[i];
    if (state.layout != StateLayout::elements) {
      entries.push_back({state.name, state.part.dtype(), state.shape, gathered[i].bytes()});
      continue;
    }
    for (TensorEntry& entry :
         workspace_entries(parameters, state.part.dtype(), state.prefix(), gathered[i].bytes()))
      entries.push_back(std::move(entry));
  }
  return entries;
}

void stage_states(const ParameterStore& parameters, const SafetensorsReader& reader,
                  const Optimizer& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  require_same_optimizer(reader, optimizer);
  if (is_coded(optimizer)) {
    stage_coded(reader, parameters, optimizer, group, staged);
    return;
  }
  std::vector<StagingTarget> targets;
  std::vector<std::string> prefixes;
  for (const StateInFile& state : states_of(parameters, optimizer)) {
    targets.push_back(state_target(state, parameters, group));
    prefixes.push_back(state.prefix());
  }
  stage_workspaces(parameters, reader, targets, prefixes, staged);
}

void receive_states(Context& context, const ParameterStore& parameters, const Optimizer& optimizer,
                    const TrainingGroup& group) {
  for (const StateInFile& state : states_of(parameters, optimizer))
    scatter_from_root(context, *group.communicator, {}, part_begins(state, parameters, group),
                      state.part);
}

void OptimizerFile::gather() {
  if (!group_.has_peers()) return;
  gathered_ = gather_states(context_, parameters_, optimizer_, group_);
  group_.communicator->check();
}

TensorFile OptimizerFile::copy(const HostAllocator& allocate) const {
  TensorFile file;
  if (group_.has_peers()) {
    require(gathered_.has_value(), ErrorCode::internal, kOptimizerIoOrigin,
            "the optimizer states of other ranks were not gathered");
    file.entries = state_entries(parameters_, optimizer_, *gathered_);
    return file;
  }
  file.storage = gather_states(context_, parameters_, optimizer_, group_, allocate);
  file.entries = state_entries(parameters_, optimizer_, file.storage);
  return file;
}

}  // namespace trafo
