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
  std::vector<int64_t> counts = {};  // of StateLayout::parameters

  size_t entry_bytes() const {
    size_t bytes = dtype_size(part.dtype());
    for (size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<size_t>(shape[i]);
    return bytes;
  }
  size_t bytes() const { return static_cast<size_t>(shape[0]) * entry_bytes(); }
  std::string prefix() const { return name + "."; }  // of the names of parameters
};

bool has_layout(const Optimizer& optimizer, StateLayout layout) {
  return !optimizer.states().empty() && optimizer.states()[0].layout == layout;
}

bool is_coded(const Optimizer& optimizer) {
  return has_layout(optimizer, StateLayout::codes);
}

// Entries of the trainable parameters that begin before an element of the workspace.
int64_t entries_before(const StateInFile& state, const ParameterStore& parameters,
                       int64_t element) {
  int64_t entries = 0;
  size_t number = 0;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.trainable(id)) continue;
    if (parameters.offset(id) < element) entries += state.counts[number];
    ++number;
  }
  return entries;
}

// In the order of the file.
std::vector<StateInFile> states_of(const ParameterStore& parameters, const Optimizer& optimizer) {
  const int64_t elements = parameters.flat().numel();
  const int64_t blocks = state_code::blocks(elements);
  std::vector<StateInFile> states;
  for (const StateTensor& state : optimizer.states()) {
    StateInFile in_file{state.name, state.tensor, state.layout, {elements}, 1};
    if (state.layout == StateLayout::parameters) {
      in_file.shape = {state.tensor.numel()};
      in_file.counts = state.counts;
    } else if (state.layout != StateLayout::elements) {
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
    const int64_t entry = state.layout == StateLayout::parameters
                              ? entries_before(state, parameters, element)
                              : (element + state.block - 1) / state.block;
    begins.push_back(static_cast<size_t>(entry) * state.entry_bytes());
  }
  return begins;
}

// The part of a state that this rank has the newest values of: with StateLayout::parameters those
// of the parameters that begin in its shard.
Tensor own_part(const StateInFile& state, const ParameterStore& parameters,
                const TrainingGroup& group) {
  if (state.layout != StateLayout::parameters) return state.part;
  const std::vector<size_t> begins = part_begins(state, parameters, group);
  const auto rank = static_cast<size_t>(group.rank);
  const auto begin = static_cast<int64_t>(begins[rank] / state.entry_bytes());
  const auto end = static_cast<int64_t>(begins[rank + 1] / state.entry_bytes());
  return state.part.as_strided({end - begin}, {1}, state.part.offset() + begin);
}

// On every rank: the part of a state, of which rank 0 has all bytes.
void spread(Context& context, const StateInFile& state, const ParameterStore& parameters,
            const TrainingGroup& group, std::span<const std::byte> bytes) {
  Communicator& peers = *group.communicator;
  if (state.layout != StateLayout::parameters)
    return scatter_from_root(context, peers, bytes, part_begins(state, parameters, group),
                             state.part);
  if (group.rank == 0)
    context.backend().copy_from_host(state.part.raw(), bytes.data(), bytes.size());
  peers.broadcast(state.part.raw(), state.part.bytes(), 0);
  state.part.mark_written();
}

// The tensor of the file with this name. Checks name, dtype and shape.
const TensorInfo& matching(const SafetensorsReader& reader, const std::string& name, DType dtype,
                           const std::vector<int64_t>& shape) {
  const TensorInfo* info = reader.find(name);
  require(info != nullptr, ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(),
          " lacks the tensor ", name);
  require(info->dtype == dtype && info->shape == shape, ErrorCode::corrupt_file, kOptimizerIoOrigin,
          reader.label(), ": ", name, " is ", dtype_name(info->dtype), " ",
          Shape(std::span<const int64_t>(info->shape)).str(), ", the model needs ",
          dtype_name(dtype), " ", Shape(std::span<const int64_t>(shape)).str());
  return *info;
}

void require_known(const SafetensorsReader& reader, const std::set<std::string>& known) {
  for (const TensorInfo& info : reader.tensors())
    require(known.contains(info.name), ErrorCode::corrupt_file, kOptimizerIoOrigin, reader.label(),
            " has the tensor ", info.name, ", which the optimizer does not know");
}

// Refuses bad numbers of a tensor: each would silently corrupt many elements.
template <class T>
void check_numbers(const SafetensorsReader& reader, const std::string& name, const char* kind,
                   std::span<const std::byte> bytes) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T number;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    require(std::isfinite(number) && number >= 0, ErrorCode::corrupt_file, kOptimizerIoOrigin,
            reader.label(), ": ", name, " holds ", number, ", a ", kind,
            " is finite and not negative");
  }
}

// The destination of the bytes of a state: its tensor, or the shards of all ranks.
StagingTarget state_target(const StateInFile& state, const ParameterStore& parameters,
                           const TrainingGroup& group) {
  if (!group.has_peers()) return state.part;
  return {state.part.dtype(), state.bytes(),
          [state, &parameters, group](Context& context, std::span<const std::byte> bytes) {
            spread(context, state, parameters, group, bytes);
          }};
}

void stage_coded(const SafetensorsReader& reader, const ParameterStore& parameters,
                 const Optimizer& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  std::set<std::string> known;
  for (const StateInFile& to : states_of(parameters, optimizer)) {
    const TensorInfo& info = matching(reader, to.name, to.part.dtype(), to.shape);
    std::vector<std::byte> bytes(to.bytes());
    reader.read(info, bytes);
    if (to.layout == StateLayout::scales) check_numbers<float>(reader, to.name, "scale", bytes);
    staged.add(state_target(to, parameters, group), std::move(bytes));
    known.insert(to.name);
  }
  require_known(reader, known);
}

// visit(parameter, begin, count): the entries of each trainable parameter in a state of
// StateLayout::parameters.
template <class Visit>
void for_each_parameter(const StateInFile& state, const ParameterStore& parameters, Visit visit) {
  int64_t begin = 0;
  size_t number = 0;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.trainable(id)) continue;
    const int64_t count = state.counts[number++];
    visit(parameters.name(id), static_cast<size_t>(begin), static_cast<size_t>(count));
    begin += count;
  }
}

void stage_factored(const SafetensorsReader& reader, const ParameterStore& parameters,
                    const Optimizer& optimizer, const TrainingGroup& group, StagedTensors& staged) {
  std::set<std::string> known;
  for (const StateInFile& to : states_of(parameters, optimizer)) {
    std::vector<std::byte> bytes(to.bytes());
    const size_t size = to.entry_bytes();
    for_each_parameter(
        to, parameters, [&](const std::string& parameter, size_t begin, size_t count) {
          const std::string name = to.prefix() + parameter;
          const auto entries = std::span(bytes).subspan(begin * size, count * size);
          reader.read(matching(reader, name, to.part.dtype(), {static_cast<int64_t>(count)}),
                      entries);
          if (to.part.dtype() == DType::f64)
            check_numbers<double>(reader, name, "second moment", entries);
          else
            check_numbers<float>(reader, name, "second moment", entries);
          known.insert(name);
        });
    staged.add(state_target(to, parameters, group), std::move(bytes));
  }
  require_known(reader, known);
}

}  // namespace

std::vector<HostBuffer> gather_states(Context& context, const ParameterStore& parameters,
                                      const Optimizer& optimizer, const TrainingGroup& group,
                                      const HostAllocator& allocate) {
  std::vector<HostBuffer> gathered;
  for (const StateInFile& state : states_of(parameters, optimizer)) {
    HostBuffer whole = allocate(group.rank == 0 ? state.bytes() : 0);
    if (group.has_peers())
      gather_to_root(context, *group.communicator, own_part(state, parameters, group),
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
    if (state.layout == StateLayout::parameters) {
      for_each_parameter(
          state, parameters, [&](const std::string& parameter, size_t begin, size_t count) {
            const size_t size = state.entry_bytes();
            entries.push_back({state.prefix() + parameter,
                               state.part.dtype(),
                               {static_cast<int64_t>(count)},
                               gathered[i].bytes().subspan(begin * size, count * size)});
          });
      continue;
    }
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
  if (is_coded(optimizer)) return stage_coded(reader, parameters, optimizer, group, staged);
  if (has_layout(optimizer, StateLayout::parameters))
    return stage_factored(reader, parameters, optimizer, group, staged);
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
    spread(context, state, parameters, group, {});
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
