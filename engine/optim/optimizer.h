// An optimizer over one flat workspace of parameters: one kernel launch an update, and more only
// for optimizers that work on whole matrices. To add one, see docs/architecture.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/element_range.h"
#include "engine/core/generated/option_enums.h"
#include "engine/optim/update.h"
#include "engine/runtime/context.h"

namespace trafo {

// Parameters that are updated with different factors. Empty: every factor is 1.
struct UpdateGroups {
  std::vector<UpdateFactors> factors;  // at most 256
  // For every kGroupElements elements of the workspace, an index of `factors`.
  std::vector<uint8_t> group_of;
};

// The tensors that an optimizer reads and writes, and the steps after its rule.
struct UpdateTarget {
  // Both are contiguous, of one shape and dtype, float32 or float64, and must stay where they are.
  Tensor parameters, gradients;
  // Undefined, or bfloat16 copies of float32 parameters, which every update writes as well.
  Tensor rounded = {};
  UpdateGroups groups = {};
  // The elements that updates change, all by default; it begins at a multiple of kSquaresElements.
  // The states are of these alone.
  std::optional<ElementRange> shard = {};
  double ema_alpha = 0;  // weight of an update in the EMA of the parameters (ema_weight); 0: no EMA
};

// The entries of a state along the elements of the shard.
enum class StateLayout {
  elements,  // one for each element, of the parameters' dtype
  codes,     // int32 [blocks, 64]: the 256 codes of a block (state_code.h), one byte an element
  scales,    // float32 [blocks]: the scale of each block of codes
  // [sum of counts]: some entries for each parameter of the workspace, on every rank. The entries
  // of parameters without an element in the shard are not kept up to date.
  parameters,
};

struct StateTensor {
  std::string name;  // in files
  Tensor tensor;     // of the shard alone
  StateLayout layout = StateLayout::elements;
  std::vector<int64_t> counts = {};  // of StateLayout::parameters: entries of each
};

// Tensors that an optimizer changes as a whole, also weights that are zero: matrices of linear
// layers, or every parameter.
enum class WholeTensors { none, matrices, parameters };
WholeTensors whole_tensors(OptimizerKind kind);
inline bool needs_whole_matrices(OptimizerKind kind) {
  return whole_tensors(kind) != WholeTensors::none;
}

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual OptimizerKind kind() const = 0;
  // The states in the order of files. They are read and written in place; they start at zero.
  const std::vector<StateTensor>& states() const { return states_; }
  // Whether an update needs finish(), with the gradients of whole matrices.
  bool needs_whole_matrices() const { return trafo::needs_whole_matrices(kind()); }
  // Whether finish() reads whole parameters as well, with peers the parameters of all shards.
  bool reads_parameters() const { return whole_tensors(kind()) == WholeTensors::parameters; }
  // The second half of an update, after the kernel `update` or `clipped_update` has run over the
  // whole shard. It reads and overwrites the gradients. With peers, the caller first collects the
  // gradients of all shards. `record`: null, or the update's record in device memory, instead of
  // `learning_rate` and `step`.
  virtual void finish(const UpdateRecord* record, double learning_rate, int64_t step);

  // One update with grad_scale * gradients (clipping and averaging). The gradients must be finite:
  // the states would keep anything else for good.
  void step(double learning_rate, double grad_scale = 1);

  UpdateState state() const { return state(shard_); }  // for the kernels
  // Of these elements of the shard, which begin at a multiple of kGroupElements, with codes at one
  // of kSquaresElements.
  UpdateState state(const ElementRange& range) const;
  // The parameters have changed (Storage::version).
  void mark_written() const;
  int64_t steps() const { return steps_; }  // updates so far
  void set_steps(int64_t steps);

  DType dtype() const { return parameters_.dtype(); }
  const Tensor& gradients() const { return gradients_; }
  const ElementRange& shard() const { return shard_; }
  // Bytes of the states, the EMA, the table of groups and the buffers of finish().
  int64_t state_bytes() const;
  // Like the parameters, of which a shard changes its own part; undefined without ema_alpha, and
  // without meaning before an update.
  const Tensor& ema() const { return ema_; }

 protected:
  // `origin` of errors; `context` must outlive this.
  Optimizer(Context& context, const char* origin, const UpdateTarget& target, double weight_decay);

  // Sets the member of this optimizer.
  virtual void set_rule(UpdateRules& rules) const = 0;
  virtual int64_t buffer_bytes() const { return 0; }  // of finish()

  // A state of one element for each of the shard, zeros. States are added in the order of files, at
  // most kMaxStates.
  Tensor add_state(const std::string& name);
  void add_state(const StateTensor& state);

  // The memory of a tensor, some bytes in; null if it is undefined.
  static void* at(const Tensor& tensor, size_t bytes);

  Context& context_;
  const char* origin_;
  Tensor parameters_, gradients_;
  ElementRange shard_;

 private:
  void set_groups(const UpdateGroups& groups);

  Tensor rounded_, ema_;
  Tensor group_of_, factors_;  // undefined, or UpdateState::group_of and factors as int32 words
  int32_t groups_ = 0;
  double weight_decay_, ema_alpha_;
  std::vector<StateTensor> states_;
  int64_t steps_ = 0;
};

// A matrix of a flat workspace: elements [begin, begin + rows columns), row by row.
struct MatrixPart {
  int64_t begin = 0, rows = 0, columns = 0;
  ElementRange elements() const { return {begin, begin + rows * columns}; }
};

// Constants of all optimizers.
struct OptimizerOptions {
#include "engine/optim/generated/optimizer_options.inc"
};

// INVALID_ARGUMENT, naming the option: an option that the optimizer does not have is not the
// default. make_optimizer() checks it too; the optimizer checks its own options.
void validate(const OptimizerOptions& options);

// INVALID_ARGUMENT unless the value of an option is at least 0 and below 1.
void check_below_one(double value, const char* origin, const char* option);

// `matrices`: the tensors that the optimizer changes as a whole (whole_tensors()), in the order of
// the workspace. A vector is a matrix of one row.
std::unique_ptr<Optimizer> make_optimizer(Context& context, const UpdateTarget& target,
                                          const OptimizerOptions& options,
                                          std::span<const MatrixPart> matrices = {});

// The factory of each optimizer, in its folder; make_optimizer calls them.
#define TRAFO_OPTIMIZER(name, ...)                                                     \
  std::unique_ptr<Optimizer> make_##name(Context& context, const UpdateTarget& target, \
                                         const OptimizerOptions& options,              \
                                         std::span<const MatrixPart> matrices);
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER

}  // namespace trafo
