// The parameters of a model, in groups. Each parameter is a named view of a flat workspace.
//
// Trainable parameters share the workspaces of values, gradients and masters. bfloat16 parameters
// have a float32 master copy and float32 gradients: the optimizer works on the master, files hold
// the master, and the model computes with the master rounded.
//
// Frozen parameters lie in a separate workspace. They have no gradient and no master.
//
// In a store with int8 weights, everything is frozen for good. Weights that modules can read as
// int8 have codes instead of values, except those that are kept in float.
//
// In a store with a base precision, matrices of linear layers have codes of few bits instead of
// values, on every device. They stay frozen; an adapter or other parameters may be trained.
//
// A store may share the values and codes of another one (share()): a model with an adapter beside
// models with others.
//
// Under quantization-aware training these weights are trained as masters, in float32 too. The
// values are the masters rounded to codes: what a quantized model computes with.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/parts.h"
#include "engine/nn/weight.h"
#include "engine/ops/quantized_linear/quantized_linear.h"
#include "engine/quant/int4_matrix.h"
#include "engine/runtime/context.h"

namespace trafo {

struct Init {
  enum class Kind { zeros, ones, uniform, normal } kind = Kind::zeros;
  double scale = 0;  // uniform: half width; normal: standard deviation
  // Above 0: elements of a layer, of a tensor that holds a stack of them; the scale of layer l,
  // counted from 1, is divided by the root of l.
  int64_t layer_elements = 0;

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  // Glorot & Bengio 2010: uniform +-sqrt(6 / (in + out)).
  static Init xavier_uniform(int64_t in, int64_t out);
  static Init normal(double standard_deviation) { return {Kind::normal, standard_deviation}; }
};

using ParamId = int32_t;
inline constexpr ParamId kNoParam = -1;

// Properties that the parameters of a group share. Parameters of one name may be in several groups,
// which differ in the other fields.
struct ParameterGroup {
  std::string name;
  DType dtype = DType::f32;  // of the values that the model computes with
  bool trainable = true;
  double weight_decay = 1;  // multiplied with the weight decay of the optimizer
  double lr_factor = 1;     // multiplied with the learning rate
  bool operator==(const ParameterGroup&) const = default;
};

// The groups that parameters are declared in by default, by their rank.
inline constexpr const char* kMatrices = "matrices";
inline constexpr const char* kNormsAndBiases = "norms_and_biases";

// The factors of a matrix NAME = u v: NAME.u [rows, rank], NAME.v [rank, columns].
inline constexpr const char* kOuterFactor = ".u";
inline constexpr const char* kInnerFactor = ".v";

inline constexpr const char* kAdapter = "adapter";  // the parameters of low-rank updates

// A low-rank update of a matrix [rows, columns], see LowRankUpdate.
struct LowRankOptions {
  ParamId matrix = kNoParam;
  int64_t rank = 0;
  double scale = 1;
  std::vector<ColumnRange> ranges;  // of the matrix's rows: the columns of x W^T
};

// Whether `name` matches the pattern: '*' stands for any characters, '?' for one.
bool matches_pattern(std::string_view name, std::string_view pattern);

class ParameterStore {
 public:
  // The parameters of a low-rank update.
  struct LowRank {
    ParamId down, up;
    double scale;
    std::shared_ptr<const std::vector<ColumnRange>> ranges;
  };

  // Declaration phase: names are unique; order is the order of the flat workspace. Without a group:
  // kNormsAndBiases for a vector, else kMatrices.
  ParamId declare(std::string name, const Shape& shape, Init init, const std::string& group = {});
  // Matrices of linear layers that declare_linear() declares as two factors, by name, and their
  // ranks. Comes first.
  void set_factor_ranks(std::map<std::string, int64_t> ranks) { factor_ranks_ = std::move(ranks); }
  // Of the matrices that declare_linear() declares. Comes first. With another one than `none`,
  // everything is frozen at first.
  void set_base_precision(BasePrecision precision) { base_precision_ = precision; }
  // The matrix [rows, columns] of a linear layer, which may be int8 and pruned; or its two factors,
  // of which weight() of the returned outer one has the inner one. INVALID_ARGUMENT: a rank that is
  // not 1 to the smaller side.
  ParamId declare_linear(const std::string& name, const Shape& shape, Init init);
  // Says that the module that reads this matrix reads int8 codes too.
  void allow_int8(ParamId id) { entries_[index(id)].takes_int8 = true; }
  // Says that weights of this matrix may be pruned: set to zero.
  void allow_pruning(ParamId id) { entries_[index(id)].prunable = true; }
  // Says what the rows of a parameter hold. They are all of its rows, in order, and `column_units`
  // divides its columns (ParameterParts). INTERNAL: they do not.
  void set_parts(ParamId id, Piece piece, std::vector<Part> rows, int64_t column_units = 0);
  // Allocates the workspaces and draws initial values from (seed, parameter number): the same for
  // every device and thread count, for bfloat16 the float32 values rounded. Ends the declaration
  // phase. Without a seed, zeros take the place of random values, for weights that are read next.
  // With int8_weights, matrices that allow it get codes by set_int8, and have no values.
  void allocate(Context& context, DType dtype, std::optional<uint64_t> seed,
                bool int8_weights = false);

  size_t count() const { return entries_.size(); }
  const std::string& name(ParamId id) const { return entries_[index(id)].name; }
  const Shape& shape(ParamId id) const { return entries_[index(id)].shape; }
  // UNSUPPORTED, naming the parameter, if it has codes.
  const Tensor& value(ParamId id) const { return float_entry(id).value; }
  const Tensor& grad(ParamId id) const { return entries_[index(id)].grad; }  // undefined: frozen
  ParamId find(const std::string& name) const;  // kNoParam if there is none
  int64_t parameter_count() const;              // elements, without alignment padding
  // The matrices of linear layers inside the model: no embedding, no output projection, no adapter.
  bool prunable(ParamId id) const { return entries_[index(id)].prunable; }
  // Of an outer factor: the inner one of its matrix; else kNoParam.
  ParamId inner_factor(ParamId id) const { return entries_[index(id)].inner; }
  // Without rows for a parameter of an adapter, and where no module has said them.
  const ParameterParts& parts(ParamId id) const { return entries_[index(id)].parts; }
  DType dtype() const { return flat_.dtype(); }

  // --- int8 weights ---
  bool has_int8() const { return int8_weights_; }
  bool is_int8(ParamId id) const { return int8_weights_ && entries_[index(id)].takes_int8; }
  // SHAPE_MISMATCH unless the matrix has the parameter's shape.
  void set_int8(ParamId id, Int8Matrix matrix);
  // The same for int4 codes. UNSUPPORTED: the parameters are not on the CPU.
  void set_int4(Context& context, ParamId id, const Int4Matrix& matrix);
  // Keeps an int8 parameter in float instead: values [rows, columns] in float32.
  void keep_float(Context& context, ParamId id, std::span<const float> values);
  // The int4 codes that set_int4 was given; null: none.
  std::shared_ptr<const Int4Panels> int4(ParamId id) const { return entries_[index(id)].int4; }
  bool kept_float(ParamId id) const { return entries_[index(id)].kept_float; }
  // Whether the module that reads this matrix reads int8 codes too, and it is not kept in float.
  bool takes_int8(ParamId id) const { return entries_[index(id)].takes_int8; }
  // The signal-to-noise ratio of what a matrix gives after quantization, in dB; not known: NaN.
  double signal_to_noise(ParamId id) const { return entries_[index(id)].signal_to_noise; }
  void set_signal_to_noise(ParamId id, double db) { entries_[index(id)].signal_to_noise = db; }
  // Linear layers tell it what they multiply; null: nobody.
  void set_observer(LinearObserver* observer) { observer_ = observer; }
  // The values of a parameter or, if it has codes, these; and its low-rank update.
  Weight weight(ParamId id) const;

  // --- frozen matrices in few bits ---
  BasePrecision base_precision() const { return base_precision_; }
  // Whether matrices have codes instead of values: int8 weights, or a base precision.
  bool has_codes() const { return int8_weights_ || base_precision_ != BasePrecision::none; }
  bool is_coded(ParamId id) const { return entries_[index(id)].coded != nullptr; }
  // The tensor that holds a parameter which is not int8: its values, or the bytes of its codes.
  const Tensor& stored(ParamId id) const {
    const Entry& entry = entries_[index(id)];
    return entry.coded ? entry.coded->bytes : float_entry(id).value;
  }
  // Bytes as encode_base() writes them.
  void set_codes(Context& context, ParamId id, std::span<const std::byte> bytes);
  std::vector<std::byte> codes(const Context& context, ParamId id) const;
  // The codes of values of the master's dtype. INVALID_ARGUMENT, naming the parameter: a value that
  // is not finite.
  std::vector<std::byte> encoded(ParamId id, const void* data) const;

  // --- low-rank updates (adapters) ---
  // Freezes every parameter and declares two for each update, named after the matrix NAME.weight:
  // NAME.lora_A [ranges * rank, columns], uniform within +-1/sqrt(columns), as nn.Linear of PyTorch
  // draws it, and NAME.lora_B [rows of the ranges, rank], zeros, so that the product is unchanged.
  // They are trainable unless the store has int8 weights. Errors as of set_trainable.
  void add_low_rank(Context& context, std::span<const LowRankOptions> updates, uint64_t seed);
  // Drops them. The other parameters stay frozen.
  void remove_low_rank(Context& context);
  // Makes this store, of the same declarations, one that has the values and codes of `from` in its
  // memory, all frozen. Only the low-rank updates, zeros, and copies of the parameters `own` have
  // memory here. Values of `from` must stay as they are. UNSUPPORTED: `from` is trained with
  // rounded values.
  void share(Context& context, const ParameterStore& from, std::span<const LowRankOptions> updates,
             std::span<const ParamId> own);
  // Whether another store's memory holds the parameter.
  bool is_shared(ParamId id) const { return entries_[index(id)].shared; }
  const std::optional<LowRank>& low_rank(ParamId id) const { return entries_[index(id)].low_rank; }
  bool has_low_rank() const { return !entries_.empty() && entries_.back().group.name == kAdapter; }

  // --- quantization-aware training ---
  // Bits of the codes that values are rounded to, 8 or 4 (groups of 32 columns); 0: not rounded.
  int64_t quantize_bits() const { return quantize_bits_; }
  // The workspaces are allocated anew. UNSUPPORTED: int8 weights, an adapter, or rows that are too
  // long for int8. INVALID_ARGUMENT: other bits, a frozen matrix, or parameters that a trainer or
  // another tensor uses. After an error nothing has changed.
  void set_quantize_bits(Context& context, int64_t bits);

  // --- groups ---
  const ParameterGroup& group(ParamId id) const { return entries_[index(id)].group; }
  bool trainable(ParamId id) const { return group(id).trainable; }
  bool any_trainable() const;
  // Freezes the parameters whose names match, or makes them trainable again. The workspaces are
  // allocated anew; gradients are dropped. A bfloat16 parameter loses the digits of its master when
  // it is frozen. Returns how many parameters match. NOT_FOUND: none. INVALID_ARGUMENT: a trainer
  // or another tensor uses the parameters. UNSUPPORTED: parameters of a store with int8 weights
  // and frozen matrices in few bits cannot be trained. After an error nothing has changed.
  int64_t set_trainable(Context& context, std::string_view pattern, bool trainable);
  // Sets the factors of the parameters whose names match. Errors as above, and INVALID_ARGUMENT for
  // a factor that is negative or not finite.
  int64_t set_factors(std::string_view pattern, double lr_factor, double weight_decay);
  // Takes the groups and the low-rank updates of a model of the same configuration, not its values.
  void copy_groups(Context& context, const ParameterStore& from);

  // --- workspaces of trainable parameters ---
  // Every tensor starts at a multiple of 16 elements; the padding between them is zero and stays
  // zero.
  const Tensor& flat() const { return flat_; }  // of dtype()
  // flat() itself, unless the values are rounded: to bfloat16, or to codes.
  const Tensor& master() const { return master_; }
  const Tensor& flat_grad() const { return flat_grad_; }  // of the master's dtype
  bool has_master() const { return flat_.dtype() != master_.dtype() || quantize_bits_ != 0; }
  // Elements of a workspace before a trainable parameter.
  int64_t offset(ParamId id) const { return entries_[index(id)].offset; }
  // Makes the values follow a master that was written to.
  void follow_master(Context& context) { follow(context, master_); }
  // The same after an update of an optimizer that has rounded a bfloat16 flat() itself: only the
  // codes of quantization-aware training are left to do. Only with a master.
  void follow_update(Context& context);
  // follow_master with weights that are laid out like the master, such as their EMA.
  void follow(Context& context, const Tensor& weights);

  // The next backward overwrites the gradients instead of adding to them.
  void zero_grad();
  // Zeroes the gradients that no backward has written since zero_grad: the flat gradient is whole
  // after this.
  void complete_grads(Context& context);

  // Replaces a value, given in the master's dtype; the sizes must agree. A frozen matrix in few
  // bits gets the codes of the value. INVALID_ARGUMENT: these are not finite, or the parameter is
  // shared.
  void set_value(Context& context, ParamId id, const void* data, size_t bytes);
  // Reads a value in the master's dtype; the sizes must agree.
  void get_value(const Context& context, ParamId id, void* data, size_t bytes) const;

 private:
  struct Entry {
    std::string name;
    Shape shape;
    Init init;
    ParameterGroup group;
    int64_t offset = 0;  // elements, in flat_ or in frozen_
    Tensor value = {}, grad = {};
    bool takes_int8 = false, kept_float = false, prunable = false, shared = false;
    std::shared_ptr<const Int8Matrix> int8 = nullptr;
    std::shared_ptr<const Int4Panels> int4 = nullptr;
    std::shared_ptr<const CodedMatrix> coded = nullptr;
    double signal_to_noise = std::numeric_limits<double>::quiet_NaN();
    std::optional<LowRank> low_rank = {};
    ParamId inner = kNoParam;
    ParameterParts parts = {};
  };
  const Entry& float_entry(ParamId id) const;
  size_t index(ParamId id) const;
  void require_codes(ParamId id, int64_t rows, int64_t columns) const;
  std::vector<size_t> matching(std::string_view pattern) const;
  void require_unused() const;
  void require_own(const Entry& entry) const;
  void make_workspaces(Context& context, DType dtype);
  void set_coded_value(Context& context, ParamId id, const void* data);
  void get_coded_value(const Context& context, ParamId id, void* data, size_t bytes) const;
  bool has_codes(const Entry& entry) const {
    return entry.coded || (int8_weights_ && entry.takes_int8);
  }
  bool has_place(const Entry& entry) const { return !has_codes(entry) && !entry.shared; }
  std::deque<Entry> without_tensors() const;
  static void append_updates(std::deque<Entry>& entries, std::span<const LowRankOptions> updates,
                             const ParameterGroup& group);
  void lay_out(Context& context, std::deque<Entry> entries) {
    lay_out(context, std::move(entries), quantize_bits_);
  }
  bool becomes_frozen(const std::deque<Entry>& entries) const;
  void lay_out(Context& context, std::deque<Entry> entries, int64_t quantize_bits);
  // Writes the value of a trainable parameter from its exact one.
  void round_into_value(Context& context, const Entry& entry, const Tensor& exact) const;
  // Under quantization-aware training: the values of its matrices from weights laid out like
  // flat().
  void round_matrices(Context& context, const Tensor& weights) const;
  // The values with the most digits: the master's, or the values of a frozen parameter.
  Tensor exact_value(const Entry& entry) const;

  std::deque<Entry> entries_;  // names stay where they are: the C ABI lends them to its callers
  Tensor flat_, master_, flat_grad_;
  Tensor frozen_;  // undefined while nothing is frozen
  bool int8_weights_ = false;
  int64_t quantize_bits_ = 0;
  BasePrecision base_precision_ = BasePrecision::none;
  LinearObserver* observer_ = nullptr;
  std::map<std::string, int64_t> factor_ranks_;
};

// Of each parameter, whether it is a candidate whose name one of the patterns matches. NOT_FOUND
// from `origin`: a pattern that matches no candidate.
std::vector<bool> matching_matrices(const ParameterStore& parameters,
                                    std::span<const std::string> patterns,
                                    const std::function<bool(ParamId)>& candidate,
                                    const char* origin);

}  // namespace trafo
