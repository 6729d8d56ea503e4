#include "engine/nn/parameter_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/argument_error.h"
#include "engine/core/cancel_scope.h"
#include "engine/core/file_memory.h"
#include "engine/core/numeric/philox.h"
#include "engine/core/numeric/standard_normal.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/fake_quant_rows/fake_quant_rows.h"
#include "engine/os/memory.h"
#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"

namespace trafo {
namespace {

constexpr int64_t kParameterAlignment = 16;            // elements: 64 bytes of float32
constexpr uintptr_t kPageBytes = uintptr_t{64} << 10;  // the largest of our systems
constexpr int64_t kZeroedAtOnce = int64_t{4} << 20;    // bytes of a block of work
constexpr size_t kDrawnBetweenChecks = size_t{1} << 20;

bool is_random(const Init& init) {
  return init.kind == Init::Kind::uniform || init.kind == Init::Kind::normal;
}

template <class T>
std::vector<T> draw(const Init& init, int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<T> values(static_cast<size_t>(count), T(init.kind == Init::Kind::ones ? 1 : 0));
  PhiloxStream random(seed, stream);
  const int64_t layer = init.layer_elements > 0 ? init.layer_elements : std::max<int64_t>(1, count);
  for (int64_t begin = 0; begin < count; begin += layer) {
    const double scale = init.scale / std::sqrt(static_cast<double>(begin / layer + 1));
    const auto end = std::min(begin + layer, count);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (i % kDrawnBetweenChecks == 0) stop_if_call_is_cancelled("parameters");
      if (init.kind == Init::Kind::uniform)
        values[i] = static_cast<T>(random.uniform(-scale, scale));
      if (init.kind == Init::Kind::normal)
        values[i] = static_cast<T>(scale * standard_normal(random));
    }
  }
  return values;
}

// Initial values in the dtype of the masters. Zeros have none: a new workspace has them.
struct InitialValues {
  std::vector<float> narrow;
  std::vector<double> wide;

  InitialValues(const Init& init, const Shape& shape, DType dtype, uint64_t seed, uint64_t stream) {
    if (init.kind == Init::Kind::zeros) return;
    if (dtype == DType::f64)
      wide = draw<double>(init, element_count(shape), seed, stream);
    else
      narrow = draw<float>(init, element_count(shape), seed, stream);
  }
  std::span<const std::byte> bytes() const {
    return wide.empty() ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(wide));
  }
};

}  // namespace

Init Init::xavier_uniform(int64_t in, int64_t out) {
  return {Kind::uniform, std::sqrt(6.0 / static_cast<double>(in + out))};
}

size_t ParameterStore::index(ParamId id) const {
  require(id >= 0 && static_cast<size_t>(id) < entries_.size(), ErrorCode::not_found, "parameters",
          "there is no parameter number ", id);
  return static_cast<size_t>(id);
}

ParamId ParameterStore::declare(std::string name, const Shape& shape, Init init,
                                const std::string& group) {
  require(!flat_.defined(), ErrorCode::internal, "parameters", name, " is declared too late");
  const std::string by_rank = shape.rank() == 1 ? kNormsAndBiases : kMatrices;
  entries_.push_back({std::move(name), shape, init, {group.empty() ? by_rank : group}});
  return static_cast<ParamId>(entries_.size() - 1);
}

ParamId ParameterStore::declare_linear(const std::string& name, const Shape& shape, Init init) {
  const auto linear = [&](const std::string& matrix, const Shape& sizes, const Init& values) {
    const ParamId id = declare(matrix, sizes, values);
    allow_int8(id);
    allow_pruning(id);
    return id;
  };
  const auto found = factor_ranks_.find(name);
  if (found == factor_ranks_.end()) return linear(name, shape, init);
  const int64_t rank = found->second, most = std::min(shape[0], shape[1]);
  require(rank >= 1 && rank <= most, ErrorCode::invalid_argument, "parameters", name, " ",
          shape.str(), " has no factors of rank ", rank, ": the rank is 1 to ", most);
  const ParamId inner =
      linear(name + kInnerFactor, {rank, shape[1]}, Init::xavier_uniform(shape[1], rank));
  const ParamId outer =
      linear(name + kOuterFactor, {shape[0], rank}, Init::xavier_uniform(rank, shape[0]));
  entries_[index(outer)].inner = inner;
  return outer;
}

void ParameterStore::set_parts(ParamId id, Piece piece, std::vector<Part> rows,
                               int64_t column_units) {
  Entry& entry = entries_[index(id)];
  int64_t count = 0;
  bool whole = column_units == 0 || (entry.shape.rank() == 2 && entry.shape[1] % column_units == 0);
  for (Part& part : rows) {
    part.first = count;
    count += part.rows;
    whole = whole && (part.units == 0 || part.rows % part.units == 0);
  }
  require(whole && count == entry.shape[0], ErrorCode::internal, "parameters", "the parts of ",
          entry.name, " ", entry.shape.str(), " have ", count, " rows");
  entry.parts = {piece, std::move(rows), column_units};
}

const ParameterStore::Entry& ParameterStore::float_entry(ParamId id) const {
  const Entry& entry = entries_[index(id)];
  if (int8_weights_ && entry.takes_int8) [[unlikely]]
    fail(ErrorCode::unsupported, "parameters", entry.name,
         " is int8 and has no float values: a model with int8 weights only translates and scores");
  if (entry.coded) [[unlikely]]
    fail(ErrorCode::unsupported, "parameters", entry.name, " is frozen in ",
         enum_name(entry.coded->precision), " and has no float values");
  return entry;
}

void ParameterStore::require_codes(ParamId id, int64_t rows, int64_t columns) const {
  const Entry& entry = entries_[index(id)];
  require(is_int8(id), ErrorCode::internal, "parameters", entry.name, " is not int8");
  require(entry.shape == Shape({rows, columns}), ErrorCode::shape_mismatch, "parameters",
          entry.name, " is ", entry.shape.str(), ", its codes are [", rows, ", ", columns, "]");
}

void ParameterStore::set_int8(ParamId id, Int8Matrix matrix) {
  require_codes(id, matrix.rows(), matrix.columns());
  entries_[index(id)].int8 = std::make_shared<const Int8Matrix>(std::move(matrix));
}

void ParameterStore::set_int4(Context& context, ParamId id, const Int4Matrix& matrix) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::unsupported, "parameters", "int4 weights are for the CPU");
  require_codes(id, matrix.rows(), matrix.columns());
  entries_[index(id)].int4 = std::make_shared<const Int4Panels>(*pool, matrix);
}

void ParameterStore::keep_float(Context& context, ParamId id, std::span<const float> values) {
  Entry& entry = entries_[index(id)];
  require(is_int8(id), ErrorCode::internal, "parameters", entry.name, " is not int8");
  require(static_cast<int64_t>(values.size()) == element_count(entry.shape),
          ErrorCode::shape_mismatch, "parameters", entry.name, " is ", entry.shape.str(), ", not ",
          values.size(), " elements");
  entry.value = context.from_values<float>(values, entry.shape);
  entry.takes_int8 = false;
  entry.kept_float = true;
  entry.int8 = nullptr;
  entry.int4 = nullptr;
}

void ParameterStore::allocate(Context& context, DType dtype, std::optional<uint64_t> seed,
                              bool int8_weights) {
  require(is_floating(dtype), ErrorCode::dtype_mismatch, "parameters",
          "parameters are floating-point numbers, not ", dtype_name(dtype));
  std::unordered_set<std::string_view> names;
  for (const Entry& entry : entries_)
    require(names.insert(entry.name).second, ErrorCode::internal, "parameters", entry.name,
            " is declared twice");
  int8_weights_ = int8_weights;
  if (int8_weights) base_precision_ = BasePrecision::none;
  const bool coded = base_precision_ != BasePrecision::none;
  for (Entry& entry : entries_) {
    if (int8_weights || coded || has_memory_directory(context.backend()))
      entry.group.trainable = false;
    if (coded && entry.prunable)
      entry.coded = std::make_shared<const CodedMatrix>(
          make_coded_matrix(context, base_precision_, entry.shape[0], entry.shape[1]));
  }
  make_workspaces(context, dtype);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (is_int8(static_cast<ParamId>(i)) || !context.backend().keeps_data()) continue;
    if (!seed && is_random(entry.init)) continue;
    const InitialValues values(entry.init, entry.shape, dtype, seed.value_or(0), i);
    if (!values.bytes().empty())
      set_value(context, static_cast<ParamId>(i), values.bytes().data(), values.bytes().size());
  }
}

namespace {

// A workspace of zeros, for which the threads of a CPU map the memory. In a file it is zero, and
// has no pages as long as nobody writes to it.
Tensor zero_workspace(Context& context, int64_t count, DType dtype) {
  ThreadPool* const pool = cpu_thread_pool(context.backend());
  if (pool == nullptr) return context.zeros({count}, dtype);
  Tensor workspace = context.empty({count}, dtype);
  if (lies_in_file(workspace.raw())) return workspace;
  const auto bytes = static_cast<int64_t>(workspace.bytes());
  if (bytes >= kZeroedAtOnce) {  // from the first whole page on
    const auto begin = reinterpret_cast<uintptr_t>(workspace.raw()), skipped = -begin % kPageBytes;
    os::prefer_huge_pages(static_cast<char*>(workspace.raw()) + skipped,
                          workspace.bytes() - skipped);
  }
  parallel_for_range(*pool, bytes, kZeroedAtOnce, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(workspace.raw()) + begin, 0, static_cast<size_t>(end - begin));
  });
  return workspace;
}

// The padding after a tensor of `count` elements at `offset` becomes zero.
void clear_padding(Context& context, const Tensor& workspace, int64_t offset, int64_t count) {
  const int64_t end = offset + count, padding = -end & (kParameterAlignment - 1);
  if (padding == 0) return;
  const Tensor rest = workspace.as_strided({padding}, contiguous_strides({padding}), end);
  context.backend().fill_zero(rest.raw(), rest.bytes());
}

}  // namespace

// Gives every entry its place by its group, in workspaces of zeros. Gradients are written before
// they are read, so that a model that is not trained takes no memory for them on a CPU, where pages
// that nobody has written have none.
void ParameterStore::make_workspaces(Context& context, DType dtype) {
  int64_t trainable = 0, frozen = 0;
  for (Entry& entry : entries_) {
    if (!has_place(entry)) continue;
    int64_t& size = entry.group.trainable ? trainable : frozen;
    entry.offset = size;
    const int64_t count = element_count(entry.shape);
    size = checked_add(
        size, (count + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment,
        "parameters");
  }
  flat_ = zero_workspace(context, trainable, dtype);
  const bool rounded = dtype == DType::bf16 || quantize_bits_ != 0;
  master_ = rounded ? context.zeros({trainable}, stat_dtype(dtype)) : flat_;
  flat_grad_ = context.empty({trainable}, master_.dtype());
  if (frozen == 0)
    frozen_ = {};
  else if (!frozen_.defined() || frozen_.numel() != frozen)  // otherwise lay_out() has given it
    frozen_ = zero_workspace(context, frozen, dtype);
  for (Entry& entry : entries_) {
    entry.group.dtype = dtype;
    if (!has_place(entry)) continue;
    const Strides strides = contiguous_strides(entry.shape);
    const Tensor& workspace = entry.group.trainable ? flat_ : frozen_;
    entry.value = workspace.as_strided(entry.shape, strides, entry.offset);
    entry.grad = {};
    if (!entry.group.trainable) continue;
    entry.grad = flat_grad_.as_strided(entry.shape, strides, entry.offset);
    clear_padding(context, flat_grad_, entry.offset, element_count(entry.shape));
    set_requires_grad(entry.value, true);
    bind_grad(entry.value, entry.grad);
  }
}

Tensor ParameterStore::exact_value(const Entry& entry) const {
  if (!entry.group.trainable || !has_master()) return entry.value.detach();
  return master_.as_strided(entry.shape, contiguous_strides(entry.shape), entry.offset);
}

std::vector<size_t> ParameterStore::matching(std::string_view pattern) const {
  std::vector<size_t> matches;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (matches_pattern(entries_[i].name, pattern)) matches.push_back(i);
  require(!matches.empty(), ErrorCode::not_found, "parameters",
          "no parameter has a name that matches \"", pattern.substr(0, 100), "\"");
  return matches;
}

// Its own tensors aside, nothing may look at the values: an optimizer, or a tensor that the host
// program holds, would go on with the old workspaces.
void ParameterStore::require_unused() const {
  for (const Entry& entry : entries_) require_own(entry);
  long in_flat = 1, in_frozen = 1;
  for (const Entry& entry : entries_)
    if (entry.value.defined()) ++(entry.group.trainable ? in_flat : in_frozen);
  const bool used = flat_.storage().use_count() > in_flat ||
                    (has_master() && master_.storage().use_count() > 1) ||
                    (frozen_.defined() && frozen_.storage().use_count() > in_frozen);
  require(!used, ErrorCode::invalid_argument, "parameters",
          "the parameters are in use, by a trainer or by tensors that were taken of them: free "
          "those first");
}

void ParameterStore::require_own(const Entry& entry) const {
  require(!entry.shared, ErrorCode::invalid_argument, "parameters", entry.name,
          " is of another model, which shares its weights with this one");
}

// The entries, to be changed and laid out anew.
std::deque<ParameterStore::Entry> ParameterStore::without_tensors() const {
  std::deque<Entry> entries = entries_;
  for (Entry& entry : entries) entry.value = entry.grad = {};
  return entries;
}

// Whether all parameters become frozen and all new ones are trainable, as under an adapter. Their
// workspace is then that of the frozen ones as it is: the model is never in memory twice.
bool ParameterStore::becomes_frozen(const std::deque<Entry>& entries) const {
  const auto is_frozen = [](const Entry& entry) { return !entry.group.trainable; };
  if (frozen_.defined() || has_master() || entries.size() < entries_.size()) return false;
  const auto first_new = entries.begin() + std::ssize(entries_);
  return std::none_of(entries_.begin(), entries_.end(), is_frozen) &&
         std::all_of(entries.begin(), first_new, is_frozen) &&
         std::none_of(first_new, entries.end(), is_frozen);
}

// Lays the parameters out as the groups of `entries` say. These are the entries that there are,
// with other groups and updates; some may follow at the end or be missing there. Values are kept,
// and new ones are zero.
void ParameterStore::lay_out(Context& context, std::deque<Entry> entries, int64_t quantize_bits) {
  require_unused();
  ParameterStore next = *this;
  next.flat_ = {};
  next.frozen_ = becomes_frozen(entries) ? flat_ : Tensor{};
  next.quantize_bits_ = quantize_bits;
  next.entries_ = std::move(entries);
  next.make_workspaces(context, dtype());
  const size_t kept = std::min(entries_.size(), next.entries_.size());
  for (size_t i = 0; i < kept; ++i) {
    if (has_codes(entries_[i])) continue;
    const Tensor from = exact_value(entries_[i]), to = next.exact_value(next.entries_[i]);
    if (from.raw() == to.raw()) continue;
    if (from.dtype() == to.dtype())
      context.backend().copy(to.raw(), from.raw(), to.bytes());
    else
      convert_into(context, to, from);
  }
  next.follow_master(context);
  context.backend().synchronize();
  try {
    for (size_t i = kept; i < next.entries_.size(); ++i) entries_.push_back(next.entries_[i]);
  } catch (...) {
    while (entries_.size() > kept) entries_.pop_back();
    throw;
  }
  // From here on nothing fails. Names stay where they are.
  while (entries_.size() > next.entries_.size()) entries_.pop_back();
  for (size_t i = 0; i < kept; ++i) {
    Entry& entry = entries_[i];
    Entry& moved = next.entries_[i];
    entry.group.trainable = moved.group.trainable;
    entry.group.lr_factor = moved.group.lr_factor;
    entry.group.weight_decay = moved.group.weight_decay;
    entry.offset = moved.offset;
    entry.value = std::move(moved.value);
    entry.grad = std::move(moved.grad);
    entry.low_rank = std::move(moved.low_rank);
  }
  quantize_bits_ = quantize_bits;
  flat_ = std::move(next.flat_);
  master_ = std::move(next.master_);
  flat_grad_ = std::move(next.flat_grad_);
  frozen_ = std::move(next.frozen_);
}

Weight ParameterStore::weight(ParamId id) const {
  const Entry& entry = entries_[index(id)];
  Weight weight{entry.value, entry.int8, entry.int4, entry.coded};
  weight.quantizes_input = quantize_bits_ != 0 && entry.takes_int8;
  weight.observer = observer_;
  weight.parameter = id;
  if (entry.low_rank)
    weight.update = {value(entry.low_rank->down), value(entry.low_rank->up), entry.low_rank->scale,
                     entry.low_rank->ranges};
  if (entry.inner != kNoParam)
    weight.inner = std::make_shared<const Weight>(this->weight(entry.inner));
  return weight;
}

void ParameterStore::append_updates(std::deque<Entry>& entries,
                                    std::span<const LowRankOptions> updates,
                                    const ParameterGroup& group) {
  for (const LowRankOptions& update : updates) {
    const auto matrix = static_cast<size_t>(update.matrix);
    const Shape shape = entries[matrix].shape;
    int64_t rows = 0;
    for (const ColumnRange& range : update.ranges) rows += range.count;
    const std::string name = entries[matrix].name;
    const std::string prefix = name.substr(0, name.rfind('.'));
    const auto down = static_cast<ParamId>(entries.size());
    entries[matrix].low_rank = {down, down + 1, update.scale,
                                std::make_shared<const std::vector<ColumnRange>>(update.ranges)};
    const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(shape[1]))};
    const auto ranges = static_cast<int64_t>(update.ranges.size());
    entries.push_back({prefix + ".lora_A", {ranges * update.rank, shape[1]}, init, group});
    entries.push_back({prefix + ".lora_B", {rows, update.rank}, Init::zeros(), group});
  }
}

void ParameterStore::add_low_rank(Context& context, std::span<const LowRankOptions> updates,
                                  uint64_t seed) {
  require(!has_low_rank(), ErrorCode::internal, "parameters", "there are low-rank updates already");
  std::deque<Entry> entries = without_tensors();
  const size_t first = entries.size();
  for (Entry& entry : entries) entry.group.trainable = false;
  append_updates(entries, updates, {kAdapter, dtype(), !int8_weights_});
  std::vector<InitialValues> values;  // drawn before anything changes
  const bool draws = context.backend().keeps_data();
  for (size_t i = first; draws && i < entries.size(); ++i)
    values.emplace_back(entries[i].init, entries[i].shape, dtype(), seed, i);
  lay_out(context, std::move(entries));
  for (size_t i = 0; i < values.size(); ++i)
    if (const auto bytes = values[i].bytes(); !bytes.empty())
      set_value(context, static_cast<ParamId>(first + i), bytes.data(), bytes.size());
}

void ParameterStore::remove_low_rank(Context& context) {
  std::deque<Entry> entries = without_tensors();
  while (!entries.empty() && entries.back().group.name == kAdapter) entries.pop_back();
  for (Entry& entry : entries) entry.low_rank.reset();
  lay_out(context, std::move(entries));
}

[[gnu::cold]] void ParameterStore::share(Context& context, const ParameterStore& from,
                                         std::span<const LowRankOptions> updates,
                                         std::span<const ParamId> own) {
  require(from.count() == count() && !from.has_low_rank(), ErrorCode::internal, "parameters",
          "weights are shared with a model of the same configuration without an adapter");
  require(from.quantize_bits_ == 0, ErrorCode::unsupported, "parameters",
          "quantization-aware training is not for models with an adapter");
  entries_ = from.entries_;
  int8_weights_ = from.int8_weights_;
  base_precision_ = from.base_precision_;
  for (Entry& entry : entries_) {
    if (entry.value.defined()) entry.value = entry.value.detach();
    entry.grad = {};
    entry.group.trainable = false;
    entry.shared = true;
  }
  for (const ParamId id : own) entries_[index(id)].shared = has_codes(entries_[index(id)]);
  append_updates(entries_, updates, {kAdapter, from.dtype(), false});
  make_workspaces(context, from.dtype());
  for (const ParamId id : own) {
    const Entry& entry = entries_[index(id)];
    if (entry.shared) continue;
    context.backend().copy(entry.value.raw(), from.value(id).raw(), entry.value.bytes());
  }
  context.backend().synchronize();
}

int64_t ParameterStore::set_trainable(Context& context, std::string_view pattern, bool trainable) {
  const std::vector<size_t> matches = matching(pattern);
  require(!int8_weights_ || !trainable, ErrorCode::unsupported, "parameters",
          "a model with int8 weights is not trained: train the float model and quantize it again");
  for (const size_t i : matches)
    require(!entries_[i].coded || !trainable, ErrorCode::unsupported, "parameters",
            entries_[i].name, " is frozen in ", enum_name(base_precision_),
            ": train an adapter, or a model without base_precision");
  std::deque<Entry> entries = without_tensors();
  bool changes = false;
  for (const size_t i : matches) {
    changes = changes || entries[i].group.trainable != trainable;
    entries[i].group.trainable = trainable;
  }
  if (changes) lay_out(context, std::move(entries));
  return static_cast<int64_t>(matches.size());
}

int64_t ParameterStore::set_factors(std::string_view pattern, double lr_factor,
                                    double weight_decay) {
  for (const double factor : {lr_factor, weight_decay})
    require(std::isfinite(factor) && factor >= 0, ErrorCode::invalid_argument, "parameters",
            "the factors of learning rate and weight decay must be finite and not negative, got ",
            factor);
  const std::vector<size_t> matches = matching(pattern);
  require_unused();
  for (const size_t i : matches) {
    entries_[i].group.lr_factor = lr_factor;
    entries_[i].group.weight_decay = weight_decay;
  }
  return static_cast<int64_t>(matches.size());
}

void ParameterStore::copy_groups(Context& context, const ParameterStore& from) {
  require(from.count() >= count() && !has_low_rank(), ErrorCode::internal, "parameters",
          "groups come from a model of another configuration");
  std::deque<Entry> entries = without_tensors();
  bool changes = from.count() > count();
  for (size_t i = 0; i < from.count(); ++i) {
    const Entry& other = from.entries_[i];
    if (i == entries.size()) entries.push_back({other.name, other.shape, other.init, other.group});
    changes = changes || other.group != entries[i].group;
    entries[i].group = other.group;
    entries[i].low_rank = other.low_rank;
  }
  if (changes) lay_out(context, std::move(entries));
}

bool ParameterStore::any_trainable() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.group.trainable; });
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
  for (const Entry& entry : entries_)
    if (entry.value.defined()) trafo::zero_grad(entry.value);
}

void ParameterStore::complete_grads(Context& context) {
  for (const Entry& entry : entries_) {
    if (!entry.group.trainable || grad_of(entry.value).defined()) continue;
    context.backend().fill_zero(entry.grad.raw(), entry.grad.bytes());
    keep_grad(entry.value);
  }
}

void ParameterStore::set_quantize_bits(Context& context, int64_t bits) {
  require(bits == 0 || bits == 4 || bits == 8, ErrorCode::invalid_argument, "parameters",
          "weights are quantized to 8 or 4 bits, not to ", bits);
  if (bits != 0) {
    require(!int8_weights_, ErrorCode::unsupported, "parameters",
            "a model with int8 weights is not trained: train the float model");
    if (has_low_rank())
      throw ArgumentError(ErrorCode::unsupported, "parameters", "quantize_bits",
                          ": quantization-aware training is not for models with an adapter: merge "
                          "it first");
    for (const Entry& entry : entries_) {
      if (!entry.takes_int8) continue;
      require(entry.group.trainable, ErrorCode::invalid_argument, "parameters", entry.name,
              " is frozen: quantization-aware training trains every matrix that it quantizes");
      require(entry.shape[1] <= Int8Matrix::kMaxColumns, ErrorCode::unsupported, "parameters",
              entry.name, " has rows of ", entry.shape[1], " elements, int8 weights have at most ",
              Int8Matrix::kMaxColumns);
    }
  }
  if (bits != quantize_bits_) lay_out(context, without_tensors(), bits);
}

void ParameterStore::round_into_value(Context& context, const Entry& entry,
                                      const Tensor& exact) const {
  const Tensor value = entry.value.detach();
  if (quantize_bits_ != 0 && entry.takes_int8)
    fake_quant_into(context, value, exact, quantize_bits_);
  else if (value.dtype() == exact.dtype())
    context.backend().copy(value.raw(), exact.raw(), value.bytes());
  else
    convert_into(context, value, exact);
}

void ParameterStore::follow(Context& context, const Tensor& weights) {
  if (has_master() && flat_.dtype() == weights.dtype())
    context.backend().copy(flat_.raw(), weights.raw(), flat_.bytes());
  else if (has_master())
    convert_into(context, flat_, weights);
  round_matrices(context, weights);
  flat_.mark_written();
}

void ParameterStore::follow_update(Context& context) {
  if (flat_.dtype() == master_.dtype()) return follow_master(context);
  round_matrices(context, master_);
  flat_.mark_written();
}

void ParameterStore::round_matrices(Context& context, const Tensor& weights) const {
  if (quantize_bits_ == 0) return;
  std::vector<MatrixPlace> matrices;
  for (const Entry& entry : entries_)
    if (entry.takes_int8 && entry.group.trainable)
      matrices.push_back({entry.offset, entry.shape[0], entry.shape[1]});
  fake_quant_into(context, flat_.detach(), weights, matrices, quantize_bits_);
}

void ParameterStore::set_value(Context& context, ParamId id, const void* data, size_t bytes) {
  const Entry& entry = entries_[index(id)];
  const size_t needed =
      static_cast<size_t>(element_count(entry.shape)) * dtype_size(master_.dtype());
  require(bytes == needed, ErrorCode::shape_mismatch, "parameters", name(id), " takes ", needed,
          " bytes, got ", bytes);
  require_own(entry);
  if (entry.coded) return set_coded_value(context, id, data);
  const Tensor to = exact_value(float_entry(id));
  if (to.dtype() == master_.dtype())
    context.backend().copy_from_host(to.raw(), data, bytes);
  else  // a frozen bfloat16 parameter
    convert_into(context, to, context.from_host(data, bytes, entry.shape, master_.dtype()));
  if (entry.group.trainable && has_master()) round_into_value(context, entry, to);
  entry.value.mark_written();
}

void ParameterStore::get_value(const Context& context, ParamId id, void* data, size_t bytes) const {
  if (is_coded(id)) return get_coded_value(context, id, data, bytes);
  const Tensor from = exact_value(float_entry(id));
  if (from.dtype() == master_.dtype()) return context.to_host(from, data, bytes);
  const auto values = context.values<BFloat16>(from);
  require(bytes == values.size() * sizeof(float), ErrorCode::shape_mismatch, "parameters", name(id),
          " has ", values.size() * sizeof(float), " bytes as float32, the buffer ", bytes);
  std::transform(values.begin(), values.end(), static_cast<float*>(data),
                 [](BFloat16 value) { return value.to_float(); });
}

std::vector<bool> matching_matrices(const ParameterStore& parameters,
                                    std::span<const std::string> patterns,
                                    const std::function<bool(ParamId)>& candidate,
                                    const char* origin) {
  std::vector<bool> matched(parameters.count()), used(patterns.size());
  for (size_t i = 0; i < matched.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!candidate(id)) continue;
    for (size_t k = 0; k < patterns.size(); ++k) {
      if (!matches_pattern(parameters.name(id), patterns[k])) continue;
      matched[i] = true;
      used[k] = true;
    }
  }
  for (size_t k = 0; k < used.size(); ++k)
    require(used[k], ErrorCode::not_found, origin, "no matrix has a name that matches \"",
            patterns[k].substr(0, 100), "\"");
  return matched;
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0;
  size_t star = std::string_view::npos, after_star = 0;  // where a mismatch goes back to
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace trafo
