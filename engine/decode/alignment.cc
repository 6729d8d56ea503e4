#include "engine/decode/alignment.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/argument_error.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kAlignmentOrigin = "alignment";

// Rows begin .. begin + count of x [.., width], as [heads, count, head_dim].
Tensor heads_of(Context& context, const Tensor& x, int64_t begin, int64_t count, int64_t heads) {
  const Tensor rows = ops::contiguous(context, ops::slice(context, x, 0, begin, begin + count));
  const Tensor wide = rows.dtype() == DType::bf16 ? ops::cast(context, rows, DType::f32) : rows;
  const Tensor split = ops::reshape(context, wide, {count, heads, x.dim(1) / heads});
  return ops::contiguous(context, ops::transpose(context, split, 0, 1));
}

}  // namespace

void check_alignment(const ModelSpec& spec, int64_t layer) {
  require(spec.has_encoder(), ErrorCode::unsupported, kAlignmentOrigin,
          "an alignment is made of cross-attention, which only an encoder-decoder has; this model "
          "is a decoder-lm");
  require_argument(layer >= 0 && layer <= spec.decoder.layers(), kAlignmentOrigin,
                   "alignment_layer", " is ", layer, ", the model has decoder layers 1 to ",
                   spec.decoder.layers());
}

std::vector<Alignment> align(Context& context, const Model& model,
                             std::span<const SentencePair> pairs, const AlignOptions& options) {
  const ModelSpec& spec = model.spec();
  check_alignment(spec, options.layer);
  const int64_t layer =
      options.layer > 0 ? options.layer - 1 : std::max<int64_t>(0, spec.decoder.layers() - 2);
  ops::SoftmaxOptions softmax;
  const AttentionSpec& attention = spec.decoder.attention;
  softmax.scale = attention.scale > 0 ? attention.scale
                                      : 1 / std::sqrt(static_cast<double>(attention.head_dim));

  const NoGrad no_grad(context);
  std::vector<Alignment> alignments(pairs.size());
  std::vector<int64_t> order(pairs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto tokens_of = [&](int64_t i) {
    const SentencePair& pair = pairs[static_cast<size_t>(i)];
    return static_cast<int64_t>(pair.source.size() + pair.target.size());
  };
  for (const std::vector<int64_t>& group :
       group_by_length(order, options.batch_tokens, tokens_of)) {
    stop_if_cancelled(options.cancel, kAlignmentOrigin);
    std::vector<const SentencePair*> members;
    for (const int64_t i : group) members.push_back(&pairs[static_cast<size_t>(i)]);
    const Batch batch = pack_pairs(context, spec, options.tokens, members);
    const CrossAttentionInputs inputs = model.cross_attention(context, batch, layer);
    int64_t target = 0, source = 0;  // first rows of the pair
    for (const int64_t i : group) {
      const SentencePair& pair = pairs[static_cast<size_t>(i)];
      Alignment& result = alignments[static_cast<size_t>(i)];
      result.target_tokens = static_cast<int64_t>(pair.target.size());
      result.source_tokens = static_cast<int64_t>(pair.source.size());
      const Tensor queries = heads_of(context, inputs.queries, target, result.target_tokens,
                                      spec.decoder.attention.heads);
      const Tensor keys = heads_of(context, inputs.keys, source, result.source_tokens,
                                   spec.decoder.attention.heads);
      const Tensor scores = ops::matmul(context, queries, keys, {.transpose_b = true});
      const Tensor mean = ops::mean(context, ops::softmax(context, scores, softmax), 0);
      for (const double weight : to_doubles(context, mean)) {
        require(std::isfinite(weight), ErrorCode::non_finite, kAlignmentOrigin,
                "the attention of pair ", i + 1, " is not finite: weights of the model are not, ",
                "or their products");
        result.weights.push_back(static_cast<float>(weight));
      }
      target += result.target_tokens;
      source += result.source_tokens;
    }
  }
  return alignments;
}

}  // namespace trafo
