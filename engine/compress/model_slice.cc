#include "engine/compress/model_slice.h"

#include <cstring>
#include <numeric>
#include <string>
#include <string_view>

#include "engine/io/temporary_name.h"

namespace trafo {
namespace {

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

std::vector<LayerSlice> whole_stack(const ModelConfig& side, const LayerSharing& sharing,
                                    bool cross) {
  std::vector<LayerSlice> stack;
  for (const int64_t i : distinct_layers(sharing))
    stack.push_back({i, first_numbers(side.key_heads()),
                     first_numbers(cross ? side.key_heads() : 0), first_numbers(side.ffn_width)});
  return stack;
}

// Elements of blocks of `size`, whose first block begins at `begin`.
void append_blocks(std::vector<int64_t>& to, const std::vector<int64_t>& blocks, int64_t size,
                   int64_t begin) {
  for (const int64_t block : blocks)
    for (int64_t i = 0; i < size; ++i) to.push_back(begin + block * size + i);
}

// Rows and columns of a parameter that stay, ascending. Empty: all.
struct Kept {
  std::vector<int64_t> rows, columns;
};

// What stays of the parameter `name` of a layer; `side` has the sizes of its stack before.
Kept kept_of_layer(const ModelConfig& side, const LayerSlice& layer, std::string_view name) {
  const int64_t head = side.head_dim(), queries = side.heads / side.key_heads() * head;
  Kept kept;
  if (name.starts_with("attention.qkv.")) {
    const int64_t keys = side.attention_width(), values = keys + side.kv_width();
    append_blocks(kept.rows, layer.heads, queries, 0);
    append_blocks(kept.rows, layer.heads, head, keys);
    append_blocks(kept.rows, layer.heads, head, values);
  } else if (name == "attention.output.weight") {
    append_blocks(kept.columns, layer.heads, queries, 0);
  } else if (name.starts_with("cross.query.")) {
    append_blocks(kept.rows, layer.cross_heads, queries, 0);
  } else if (name == "cross.output.weight") {
    append_blocks(kept.columns, layer.cross_heads, queries, 0);
  } else if (name.starts_with("ffn.up.")) {
    append_blocks(kept.rows, layer.ffn_columns, 1, 0);
  } else if (name.starts_with("ffn.gate_up.")) {
    append_blocks(kept.rows, layer.ffn_columns, 1, 0);
    append_blocks(kept.rows, layer.ffn_columns, 1, side.ffn_width);
  } else if (name == "ffn.down.weight") {
    append_blocks(kept.columns, layer.ffn_columns, 1, 0);
  }
  return kept;
}

// Where a parameter of the part comes from.
struct Source {
  std::string name;  // in the whole model
  Kept kept;
};

Source source_of(const ModelConfig& config, const ModelSlice& slice, const std::string& name) {
  // Of a factorized model, the whole is the only slice.
  if (name.ends_with(kOuterFactor) || name.ends_with(kInnerFactor)) return {name, {}};
  if (name.starts_with("decoder.cross_kv.")) {
    Source source{name, {}};
    const std::vector<int64_t> sets = config.decoder_sharing().sets;
    for (const LayerSlice& layer : slice.decoder)
      for (const int64_t part : {0, 1})  // keys, values
        append_blocks(source.kept.rows, layer.cross_heads, config.head_dim(),
                      (2 * sets[static_cast<size_t>(layer.layer)] + part) * config.kv_width());
    return source;
  }
  const size_t first = name.find('.'), second = name.find('.', first + 1);
  const std::string stack = name.substr(0, first);
  const bool is_layer = (stack == "encoder" || stack == "decoder") && second != std::string::npos &&
                        name[first + 1] >= '0' && name[first + 1] <= '9';
  if (!is_layer) return {name, {}};
  const auto number =
      static_cast<size_t>(parse_decimal(name.substr(first + 1, second - first - 1)).value());
  const bool encoder = stack == "encoder";
  const bool tied = !(encoder ? config.encoder_tied_layers : config.decoder_tied_layers).empty();
  const LayerSharing sharing = encoder ? config.encoder_sharing() : config.decoder_sharing();
  const LayerSlice& layer = (encoder ? slice.encoder : slice.decoder)
                                .at(tied ? static_cast<size_t>(sharing.sets.at(number)) : number);
  return {concat(stack, ".", layer.layer, name.substr(second)),
          kept_of_layer(encoder ? config.encoder_side() : config, layer, name.substr(second + 1))};
}

std::vector<std::byte> gather(const std::vector<std::byte>& values, const Shape& shape,
                              const Kept& kept, size_t element) {
  const int64_t rows = shape[0], columns = shape.rank() > 1 ? shape[1] : 1;
  const std::vector<int64_t> row_numbers = kept.rows.empty() ? first_numbers(rows) : kept.rows;
  std::vector<std::byte> result;
  const auto copy = [&](int64_t row, int64_t column, int64_t count) {
    const auto at = static_cast<size_t>(row * columns + column) * element;
    const std::byte* begin = values.data() + at;
    result.insert(result.end(), begin, begin + static_cast<size_t>(count) * element);
  };
  for (const int64_t row : row_numbers) {
    if (kept.columns.empty()) {
      copy(row, 0, columns);
      continue;
    }
    for (const int64_t column : kept.columns) copy(row, column, 1);
  }
  return result;
}

int64_t size_of(const std::vector<int64_t>& numbers) {
  return static_cast<int64_t>(numbers.size());
}

}  // namespace

ModelSlice whole_model(const ModelConfig& config) {
  ModelSlice slice;
  if (config.has_encoder())
    slice.encoder = whole_stack(config.encoder_side(), config.encoder_sharing(), false);
  slice.decoder = whole_stack(config, config.decoder_sharing(), config.has_encoder());
  return slice;
}

ModelConfig sliced_config(const ModelConfig& config, const ModelSlice& slice) {
  ModelConfig part = config;
  const int64_t group = config.heads / config.key_heads(), head = config.head_dim();
  const LayerSlice& decoder = slice.decoder.front();
  if (config.decoder_tied_layers.empty()) part.decoder_layers = std::ssize(slice.decoder);
  part.heads = group * size_of(decoder.heads);
  if (config.kv_heads > 0) part.kv_heads = size_of(decoder.heads);
  part.ffn_width = size_of(decoder.ffn_columns);
  part.encoder_heads = part.encoder_ffn_width = 0;
  if (config.has_encoder()) {
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
  const DType dtype = from.master().dtype();
  const size_t element = dtype_size(dtype);
  std::unique_ptr<Model> part = make_model(context, sliced_config(model.config(), slice), 0, dtype);
  ParameterStore& to = part->parameters();
  for (size_t i = 0; i < to.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const Source source = source_of(model.config(), slice, to.name(id));
    const ParamId origin = from.find(source.name);
    require(origin != kNoParam, ErrorCode::internal, "model slice", "the model has no parameter ",
            source.name);
    const Shape& shape = from.shape(origin);
    std::vector<std::byte> values(static_cast<size_t>(element_count(shape)) * element);
    from.get_value(context, origin, values.data(), values.size());
    if (!source.kept.rows.empty() || !source.kept.columns.empty())
      values = gather(values, shape, source.kept, element);
    to.set_value(context, id, values.data(), values.size());
  }
  part->set_origin(model.origin());
  return part;
}

}  // namespace trafo
