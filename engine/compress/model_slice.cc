#include "engine/compress/model_slice.h"

#include <numeric>

#include "engine/nn/part_index.h"

namespace trafo {
namespace {

constexpr const char* kModelSliceOrigin = "model slice";

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

std::vector<LayerSlice> whole_stack(const StackSpec& spec) {
  const std::vector<int64_t> heads = first_numbers(spec.attention.key_heads);
  std::vector<LayerSlice> stack;
  for (const int64_t i : distinct_layers(spec.sharing))
    stack.push_back({i, heads, spec.cross_attention ? heads : std::vector<int64_t>{},
                     first_numbers(spec.feed_forward.width)});
  return stack;
}

// Elements of blocks of `size`, whose first block begins at `begin`.
void append_blocks(std::vector<int64_t>& to, const std::vector<int64_t>& blocks, int64_t size,
                   int64_t begin) {
  for (const int64_t block : blocks)
    for (int64_t i = 0; i < size; ++i) to.push_back(begin + block * size + i);
}

// Rows of a parameter that stay, and columns; no columns: all.
struct Kept {
  std::vector<int64_t> rows, columns;
};

// The units of a sublayer that stay.
const std::vector<int64_t>& units_of(const LayerSlice* layer, Sublayer sublayer) {
  require(layer != nullptr && sublayer != Sublayer::none, ErrorCode::internal, kModelSliceOrigin,
          "a part of no sublayer is divided");
  return sublayer == Sublayer::attention         ? layer->heads
         : sublayer == Sublayer::cross_attention ? layer->cross_heads
                                                 : layer->ffn_columns;
}

// The slice of the layer that `place` in the part comes from. Null: it is in no layer.
const LayerSlice* layer_of(const ModelSpec& part, const ModelSlice& slice, const Place& place) {
  if (place.layer < 0) return nullptr;
  const std::vector<int64_t>& sets = part.stack(place.stack).sharing.sets;
  const auto number = static_cast<size_t>(sets.at(static_cast<size_t>(place.layer)));
  return &(place.stack == Stack::encoder ? slice.encoder : slice.decoder).at(number);
}

std::vector<std::byte> gather(const std::vector<std::byte>& values, const Shape& shape,
                              const Kept& kept, size_t element) {
  const int64_t columns = shape.rank() > 1 ? shape[1] : 1;
  std::vector<std::byte> result;
  const auto copy = [&](int64_t row, int64_t column, int64_t count) {
    const auto at = static_cast<size_t>(row * columns + column) * element;
    const std::byte* begin = values.data() + at;
    result.insert(result.end(), begin, begin + static_cast<size_t>(count) * element);
  };
  for (const int64_t row : kept.rows) {
    if (kept.columns.empty()) {
      copy(row, 0, columns);
      continue;
    }
    for (const int64_t column : kept.columns) copy(row, column, 1);
  }
  return result;
}

// The values of a parameter of the part, from the rows of the whole that its parts come from.
std::vector<std::byte> sliced_value(const Context& context, const ParameterStore& from,
                                    const PartIndex& index, const ModelSpec& part,
                                    const ModelSlice& slice, const ParameterParts& parts) {
  const size_t element = dtype_size(from.master().dtype());
  std::vector<std::byte> result, values;
  ParamId read = kNoParam;
  for (const Part& rows : parts.rows) {
    const LayerSlice* layer = layer_of(part, slice, rows.place);
    const Place place = layer ? rows.place.of_layer(layer->layer) : rows.place;
    const PartIndex::Found& origin = index.at(place, rows.role, parts.piece);
    if (read != origin.parameter) {
      read = origin.parameter;
      values.resize(static_cast<size_t>(element_count(from.shape(read))) * element);
      from.get_value(context, read, values.data(), values.size());
    }
    Kept kept;
    const int64_t units = origin.part.units, column_units = from.parts(read).column_units;
    if (units > 0)
      append_blocks(kept.rows, units_of(layer, place.sublayer), origin.part.rows / units,
                    origin.part.first);
    else
      append_blocks(kept.rows, {0}, origin.part.rows, origin.part.first);
    if (column_units > 0)
      append_blocks(kept.columns, units_of(layer, place.sublayer),
                    from.shape(read)[1] / column_units, 0);
    const std::vector<std::byte> rows_kept = gather(values, from.shape(read), kept, element);
    result.insert(result.end(), rows_kept.begin(), rows_kept.end());
  }
  return result;
}

int64_t size_of(const std::vector<int64_t>& numbers) {
  return static_cast<int64_t>(numbers.size());
}

}  // namespace

ModelSlice whole_model(const ModelSpec& spec) {
  ModelSlice slice;
  if (spec.encoder) slice.encoder = whole_stack(*spec.encoder);
  slice.decoder = whole_stack(spec.decoder);
  return slice;
}

ModelConfig sliced_config(const ModelConfig& config, const ModelSlice& slice) {
  ModelConfig part = config;
  const AttentionSpec attention = spec_of(config).decoder.attention;
  const int64_t group = attention.heads / attention.key_heads, head = attention.head_dim;
  const LayerSlice& decoder = slice.decoder.front();
  if (config.decoder_tied_layers.empty()) part.decoder_layers = std::ssize(slice.decoder);
  part.heads = group * size_of(decoder.heads);
  if (config.kv_heads > 0) part.kv_heads = size_of(decoder.heads);
  part.ffn_width = size_of(decoder.ffn_columns);
  part.encoder_heads = part.encoder_ffn_width = 0;
  if (!slice.encoder.empty()) {
    const LayerSlice& encoder = slice.encoder.front();
    if (config.encoder_tied_layers.empty()) part.encoder_layers = std::ssize(slice.encoder);
    if (size_of(encoder.heads) != part.heads) part.encoder_heads = size_of(encoder.heads);
    if (size_of(encoder.ffn_columns) != part.ffn_width)
      part.encoder_ffn_width = size_of(encoder.ffn_columns);
  }
  // Heads keep their width.
  if (part.encoder_heads > 0 || part.heads * head != part.width) part.head_width = head;
  return part;
}

std::unique_ptr<Model> sliced_model(Context& context, const Model& model, const ModelSlice& slice) {
  const ParameterStore& from = model.parameters();
  const PartIndex index(from);
  std::unique_ptr<Model> part = make_model(context, sliced_config(model.config(), slice),
                                           std::nullopt, from.master().dtype());
  ParameterStore& to = part->parameters();
  for (size_t i = 0; i < to.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::vector<std::byte> values =
        sliced_value(context, from, index, part->spec(), slice, to.parts(id));
    to.set_value(context, id, values.data(), values.size());
  }
  part->set_origin(model.origin());
  part->set_tokens(model.tokens());
  part->set_labels(model.labels());
  return part;
}

}  // namespace trafo
