#include "engine/formats/onnx/onnx_layers.h"

#include <cmath>
#include <limits>

#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {
namespace {

std::vector<OnnxAttribute> permutation(std::vector<int64_t> axes) {
  return {{"perm", std::move(axes)}};
}

std::vector<OnnxAttribute> axis(int64_t which) {
  return {{"axis", which}};
}

// cos or sin of the angles of ops::rotary, [positions, head_dim / 2].
std::vector<float> angle_table(const AttentionSpec& attention, int64_t positions,
                               double (*function)(double)) {
  const int64_t half = attention.head_dim / 2;
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * half));
  for (int64_t position = 0; position < positions; ++position)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = attention.rotary->of_pair(i, attention.head_dim);
      table.push_back(static_cast<float>(function(static_cast<double>(position) * angle)));
    }
  return table;
}

}  // namespace

OnnxValue OnnxLayers::linear(OnnxValue x, const std::string& name, bool bias) {
  graph_.set_scope(name);
  const std::string matrix = name + ".weight";
  const OnnxValue product =
      graph_.int8() ? product_int8(x, graph_.codes(matrix, /*transposed=*/true), matrix)
                    : graph_.node("MatMul", {x, graph_.parameter(matrix, /*transposed=*/true)});
  if (!bias) return product;
  return graph_.node("Add", {product, graph_.parameter(name + ".bias")});
}

std::vector<OnnxValue> OnnxLayers::split(OnnxValue x, const std::vector<int64_t>& widths) {
  return graph_.node_with_outputs("Split", {x, graph_.integers(widths)}, widths.size(), axis(-1));
}

std::vector<OnnxValue> OnnxLayers::split_parts(OnnxValue x, const std::string& matrix) {
  return split(x, graph_.part_rows(matrix + ".weight"));
}

OnnxValue OnnxLayers::to_float(OnnxValue codes) {
  return graph_.node("Cast", {codes}, {{"to", static_cast<int64_t>(OnnxType::f32)}});
}

// The whole x gets one scale and one zero point when the graph runs. The nodes are those, and in
// the order, that ONNX Runtime fuses.
OnnxValue OnnxLayers::product_int8(OnnxValue x, OnnxValue codes, const std::string& matrix) {
  const std::vector<OnnxValue> input = graph_.node_with_outputs("DynamicQuantizeLinear", {x}, 3);
  const OnnxValue sums = graph_.node("MatMulInteger", {input[0], codes, input[2]});
  const OnnxValue scale = graph_.node("Mul", {input[1], graph_.scales(matrix)});
  return graph_.node("Mul", {to_float(sums), scale});
}

OnnxValue OnnxLayers::norm(OnnxValue x, const std::string& name) {
  graph_.set_scope(name);
  if (stack_.norm.kind == Norm::layer)
    return graph_.node(
        "LayerNormalization",
        {x, graph_.parameter(name + ".weight"), graph_.parameter(name + ".bias")},
        {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(stack_.norm.epsilon)}});
  return rms_norm(x, name + ".weight");
}

// In the order of nodes that ONNX Runtime fuses; opset 17 has no RMS norm.
OnnxValue OnnxLayers::rms_norm(OnnxValue x, const std::string& gamma) {
  const OnnxValue weight = graph_.parameter(gamma);
  const OnnxValue square = graph_.node("Pow", {x, graph_.scalar(2)});
  const OnnxValue mean = graph_.node(
      "ReduceMean", {square}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}});
  const OnnxValue shifted = graph_.node("Add", {mean, graph_.scalar(stack_.norm.epsilon)});
  const OnnxValue scaled = graph_.node("Div", {x, graph_.node("Sqrt", {shifted})});
  return graph_.node("Mul", {scaled, weight});
}

OnnxValue OnnxLayers::embed(OnnxValue ids, const std::string& name, double scale) {
  graph_.set_scope(name);
  const std::string matrix = name + ".weight";
  OnnxValue rows;
  if (graph_.int8()) {
    const OnnxValue codes = graph_.node("Gather", {graph_.codes(matrix), ids}, axis(0));
    const OnnxValue scales = graph_.node("Gather", {graph_.scales(matrix), ids}, axis(0));
    rows = graph_.node(
        "Mul", {to_float(codes), graph_.node("Unsqueeze", {scales, graph_.integers({-1})})});
  } else {
    rows = graph_.node("Gather", {graph_.parameter(matrix), ids}, axis(0));
  }
  return scale == 1 ? rows : graph_.node("Mul", {rows, graph_.scalar(scale)});
}

OnnxValue OnnxLayers::residual(OnnxValue x, const std::string& norm_name,
                               const std::function<OnnxValue(OnnxValue)>& sublayer) {
  const OnnxValue output = sublayer(stack_.pre_norm() ? norm(x, norm_name) : x);
  const OnnxValue sum = graph_.node("Add", {x, output});
  return stack_.pre_norm() ? sum : norm(sum, norm_name);
}

OnnxValue OnnxLayers::finish(OnnxValue x, const std::string& norm_name) {
  return stack_.pre_norm() ? norm(x, norm_name) : x;
}

OnnxValue OnnxLayers::activate(OnnxValue x) {
  switch (stack_.feed_forward.activation) {
    case Activation::relu:
      return graph_.node("Relu", {x});
    case Activation::silu:
      return graph_.node("Mul", {x, graph_.node("Sigmoid", {x})});
    case Activation::gelu_erf: {
      // 0.5 x (1 + erf(x / sqrt 2)); opset 17 has no Gelu.
      const OnnxValue erf =
          graph_.node("Erf", {graph_.node("Mul", {x, graph_.scalar(0.70710678118654752440)})});
      const OnnxValue half = graph_.node("Mul", {x, graph_.scalar(0.5)});
      return graph_.node("Mul", {half, graph_.node("Add", {erf, graph_.scalar(1)})});
    }
    case Activation::gelu: {
      // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as ops/activation.
      constexpr double kRoot = 0.79788456080286535588, kCubic = 0.044715;
      const OnnxValue cube = graph_.node("Pow", {x, graph_.scalar(3)});
      const OnnxValue sum =
          graph_.node("Add", {x, graph_.node("Mul", {cube, graph_.scalar(kCubic)})});
      const OnnxValue tanh = graph_.node("Tanh", {graph_.node("Mul", {sum, graph_.scalar(kRoot)})});
      const OnnxValue half = graph_.node("Mul", {x, graph_.scalar(0.5)});
      return graph_.node("Mul", {half, graph_.node("Add", {tanh, graph_.scalar(1)})});
    }
  }
  fail(ErrorCode::internal, kOrigin, "the activation ", enum_name(stack_.feed_forward.activation),
       " has no ONNX form");
}

OnnxValue OnnxLayers::feed_forward(OnnxValue x, const std::string& name) {
  const FeedForwardSpec& spec = stack_.feed_forward;
  OnnxValue inner;
  if (spec.gated) {
    const OnnxValue both = linear(x, name + ".gate_up", spec.bias);
    const std::vector<OnnxValue> parts = split_parts(both, name + ".gate_up");
    inner = graph_.node("Mul", {activate(parts[0]), parts[1]});
  } else {
    inner = activate(linear(x, name + ".up", spec.bias));
  }
  return linear(inner, name + ".down", spec.bias);
}

OnnxValue OnnxLayers::split_heads(OnnxValue x, int64_t heads) {
  return graph_.node("Reshape", {x, graph_.integers({0, 0, heads, stack_.attention.head_dim})});
}

OnnxValue OnnxLayers::heads_first(OnnxValue x, int64_t heads) {
  return graph_.node("Transpose", {split_heads(x, heads)}, permutation({0, 2, 1, 3}));
}

OnnxValue OnnxLayers::rotate(OnnxValue heads, const OnnxAngles& angles) {
  const int64_t half = stack_.attention.head_dim / 2;
  const std::vector<OnnxValue> parts =
      graph_.node_with_outputs("Split", {heads, graph_.integers({half, half})}, 2, axis(-1));
  const auto multiply = [&](OnnxValue a, OnnxValue b) { return graph_.node("Mul", {a, b}); };
  const OnnxValue first =
      graph_.node("Sub", {multiply(parts[0], angles.cosines), multiply(parts[1], angles.sines)});
  const OnnxValue second =
      graph_.node("Add", {multiply(parts[1], angles.cosines), multiply(parts[0], angles.sines)});
  return graph_.node("Concat", {first, second}, axis(-1));
}

OnnxValue OnnxLayers::self_attention(OnnxValue x, const std::string& name, OnnxValue bias,
                                     const OnnxAngles& angles, const OnnxKeysValues& past,
                                     OnnxKeysValues& present) {
  const int64_t heads = stack_.attention.heads, key_heads = stack_.attention.key_heads;
  const OnnxValue qkv = linear(x, name + ".qkv", stack_.attention.qkv_bias);
  graph_.set_scope(name);
  const bool rotary = angles.cosines.defined();
  OnnxValue queries, keys, values;
  if (rotary && stack_.attention.qk_norm == QkNorm::none) {
    // Queries and keys are rotated together.
    const std::vector<int64_t> rows = graph_.part_rows(name + ".qkv.weight");
    const std::vector<OnnxValue> parts = split(qkv, {rows[0] + rows[1], rows[2]});
    const OnnxValue rotated = rotate(split_heads(parts[0], heads + key_heads), angles);
    const std::vector<OnnxValue> both = graph_.node_with_outputs(
        "Split", {rotated, graph_.integers({heads, key_heads})}, 2, axis(2));
    queries = both[0];
    keys = both[1];
    values = parts[1];
  } else {
    const std::vector<OnnxValue> parts = split_parts(qkv, name + ".qkv");
    queries = split_heads(parts[0], heads);
    keys = split_heads(parts[1], key_heads);
    values = parts[2];
    const auto norm_heads = [&] {
      queries = rms_norm(queries, name + ".query_norm.weight");
      keys = rms_norm(keys, name + ".key_norm.weight");
    };
    if (stack_.attention.qk_norm == QkNorm::head) norm_heads();
    if (rotary) {
      queries = rotate(queries, angles);
      keys = rotate(keys, angles);
    }
    if (stack_.attention.qk_norm == QkNorm::head_after_rotary) norm_heads();
  }
  present.keys = graph_.node("Transpose", {keys}, permutation({0, 2, 1, 3}));
  present.values = heads_first(values, key_heads);
  if (past.keys.defined()) {
    present.keys = graph_.node("Concat", {past.keys, present.keys}, axis(2));
    present.values = graph_.node("Concat", {past.values, present.values}, axis(2));
  }
  return linear(attend(queries, present, bias), name + ".output", stack_.attention.output_bias);
}

OnnxValue OnnxLayers::cross_attention(OnnxValue x, const std::string& name, OnnxValue bias,
                                      const OnnxKeysValues& encoder) {
  const OnnxValue query = linear(x, name + ".query", stack_.attention.qkv_bias);
  graph_.set_scope(name);
  return linear(attend(split_heads(query, stack_.attention.heads), encoder, bias), name + ".output",
                stack_.attention.output_bias);
}

// queries [batch, length, heads, head_dim] -> [batch, length, width].
OnnxValue OnnxLayers::attend(OnnxValue queries, const OnnxKeysValues& kv, OnnxValue bias) {
  const int64_t key_heads = stack_.attention.key_heads, group = stack_.attention.heads / key_heads;
  const bool shared = group > 1;
  const OnnxValue scale =
      graph_.scalar(1 / std::sqrt(static_cast<double>(stack_.attention.head_dim)));
  OnnxValue q = graph_.node("Mul", {queries, scale});
  OnnxValue k = graph_.node("Transpose", {kv.keys}, permutation({0, 1, 3, 2})), v = kv.values;
  if (shared) {
    // [batch, key heads, group, length, head_dim]: a key head serves `group` query heads.
    q = graph_.node("Reshape",
                    {q, graph_.integers({0, 0, key_heads, group, stack_.attention.head_dim})});
    q = graph_.node("Transpose", {q}, permutation({0, 2, 3, 1, 4}));
    k = graph_.node("Unsqueeze", {k, graph_.integers({2})});
    v = graph_.node("Unsqueeze", {v, graph_.integers({2})});
    bias = graph_.node("Unsqueeze", {bias, graph_.integers({1})});
  } else {
    q = graph_.node("Transpose", {q}, permutation({0, 2, 1, 3}));
  }
  const OnnxValue scores = graph_.node("Add", {graph_.node("MatMul", {q, k}), bias});
  const OnnxValue shares = graph_.node("Softmax", {scores}, axis(-1));
  const OnnxValue mixed = graph_.node(
      "Transpose", {graph_.node("MatMul", {shares, v})},
      permutation(shared ? std::vector<int64_t>{0, 3, 1, 2, 4} : std::vector<int64_t>{0, 2, 1, 3}));
  return graph_.node("Reshape", {mixed, graph_.integers({0, 0, stack_.width})});
}

OnnxValue OnnxLayers::logits(OnnxValue hidden, OnnxValue ids) {
  graph_.set_scope("output");
  const OnnxValue rows = graph_.node("Reshape", {hidden, graph_.integers({-1, stack_.width})});
  // Both forms read the matrix as the embeddings store it: tied ones are there once. Gemm
  // transposes it; in int8 a runtime transposes the constant once, when it loads the graph.
  const std::string matrix = spec_.output.tied ? "embedding.weight" : "output.weight";
  OnnxValue product;
  if (graph_.int8()) {
    const OnnxValue codes = graph_.node("Transpose", {graph_.codes(matrix)}, permutation({1, 0}));
    product = product_int8(rows, codes, matrix);
    if (spec_.output.bias) product = graph_.node("Add", {product, graph_.parameter("output.bias")});
  } else {
    std::vector<OnnxValue> inputs{rows, graph_.parameter(matrix)};
    if (spec_.output.bias) inputs.push_back(graph_.parameter("output.bias"));
    product = graph_.node("Gemm", inputs, {{"transB", int64_t{1}}});
  }
  const OnnxValue shape = graph_.node(
      "Concat", {graph_.node("Shape", {ids}), graph_.integers({spec_.vocabulary})}, axis(0));
  return graph_.node("Reshape", {product, shape});
}

OnnxValue OnnxLayers::size_of(OnnxValue x, int64_t axis) {
  const OnnxValue size = graph_.node("Shape", {x}, {{"start", axis}, {"end", axis + 1}});
  return graph_.node("Squeeze", {size, graph_.integers({0})});
}

OnnxValue OnnxLayers::range(OnnxValue begin, OnnxValue end) {
  return graph_.node("Range", {begin, end, graph_.integer(1)});
}

OnnxValue OnnxLayers::bias_of(OnnxValue visible) {
  return graph_.node(
      "Where", {visible, graph_.scalar(0), graph_.scalar(std::numeric_limits<float>::lowest())});
}

OnnxValue OnnxLayers::key_mask(OnnxValue attention_mask) {
  const OnnxValue visible =
      graph_.node("Cast", {attention_mask}, {{"to", static_cast<int64_t>(OnnxType::boolean)}});
  return graph_.node("Unsqueeze", {visible, graph_.integers({1, 2})});
}

OnnxValue OnnxLayers::causal_mask(OnnxValue past, OnnxValue total) {
  const OnnxValue queries = graph_.node("Unsqueeze", {range(past, total), graph_.integers({1})});
  return graph_.node("LessOrEqual", {range(graph_.integer(0), total), queries});
}

OnnxAngles OnnxLayers::rotary_angles(OnnxValue position_ids) {
  graph_.set_scope("rotary");
  const std::vector<int64_t> shape{spec_.max_positions, stack_.attention.head_dim / 2};
  const auto rows = [&](const char* name, double (*function)(double)) {
    const OnnxValue table = graph_.table(
        name, shape, [attention = stack_.attention, positions = spec_.max_positions, function] {
          return angle_table(attention, positions, function);
        });
    const OnnxValue found = graph_.node("Gather", {table, position_ids}, axis(0));
    return graph_.node("Unsqueeze", {found, graph_.integers({2})});
  };
  return {rows("rotary.cosines", portable_cos), rows("rotary.sines", portable_sin)};
}

}  // namespace trafo::interop
