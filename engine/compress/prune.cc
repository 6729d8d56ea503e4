#include "engine/compress/prune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "engine/compress/calibration.h"
#include "engine/compress/model_slice.h"
#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/data/batch_packer.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/train/run/validation.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {
namespace {

constexpr const char* kPruneOrigin = "prune";
constexpr int64_t kColumnMultiple = 8;  // of the feed-forward columns of a layer: whole vectors

using Scores = std::vector<double>;

struct LayerScores {
  Scores heads, cross_heads, ffn_columns;
};

void check_share(const char* name, double share) {
  require_argument(share > 0 && share <= 1, kPruneOrigin, name,
                   " is the share that stays, above 0 and at most 1, got ", share);
}

// are_alike: a layer does the same under another number.
void check_layers(const char* name, int64_t kept, int64_t layers, const std::vector<int64_t>& tied,
                  bool are_alike = true) {
  require_argument(kept >= 0 && kept <= layers, kPruneOrigin, name, " must be 0 (all) to ", layers,
                   ", as many as the model has, got ", kept);
  if (kept != 0 && kept != layers && !tied.empty())
    throw ArgumentError(ErrorCode::unsupported, kPruneOrigin, name,
                        ": no layer is removed from a stack whose layers share parameters");
  if (kept != 0 && kept != layers && !are_alike)
    throw ArgumentError(ErrorCode::unsupported, kPruneOrigin, name,
                        ": no layer is removed from a model with no_rope_interval or "
                        "full_attention_interval, where the number of a layer decides about its "
                        "positions and its window");
}

void check(const Model& model, const TokenizedCorpus& calibration, const PruneOptions& options) {
  const ModelConfig& config = model.config();
  require(
      !model.parameters().has_codes(), ErrorCode::unsupported, kPruneOrigin,
      "a model with quantized weights cannot be pruned: prune the float model, then quantize it");
  require(!model.adapter() && !model.merged_adapter(), ErrorCode::invalid_argument, kPruneOrigin,
          "the model has an adapter: save it merged and prune that, or remove it");
  require(config.factor_ranks.empty(), ErrorCode::unsupported, kPruneOrigin,
          "parts of a factorized model are not removed: prune the whole model, then factorize it");
  check_calibration(calibration, model.spec(), kPruneOrigin);
  check_share("decoder_ffn_share", options.decoder_ffn_share);
  check_share("decoder_head_share", options.decoder_head_share);
  if (options.decoder_head_share < 1 && config.qk_norm == QkNorm::whole)
    throw ArgumentError(ErrorCode::unsupported, kPruneOrigin, "decoder_head_share",
                        ": no head is removed from a model with qk_norm whole, whose heads share "
                        "a norm");
  for (const auto& [share, name] : {std::pair{options.decoder_head_share, "decoder_head_share"},
                                    {options.encoder_head_share, "encoder_head_share"}})
    if (share < 1 && config.relative_buckets > 0)
      throw ArgumentError(ErrorCode::unsupported, kPruneOrigin, name,
                          ": no head is removed from a model with relative_buckets, whose layers "
                          "share the biases of their heads");
  check_layers("decoder_layers", options.decoder_layers, config.decoder_layers,
               config.decoder_tied_layers,
               config.no_rope_interval == 0 && config.full_attention_interval == 0);
  if (!model.spec().has_encoder()) return;
  check_share("encoder_ffn_share", options.encoder_ffn_share);
  check_share("encoder_head_share", options.encoder_head_share);
  check_layers("encoder_layers", options.encoder_layers, config.encoder_layers,
               config.encoder_tied_layers);
}

// Measures and removes layers.
class LayerPruner {
 public:
  LayerPruner(Context& context, const Model& model, const TokenizedCorpus& calibration,
              const SpecialTokens& tokens, const CancelToken* cancel)
      : context_(context),
        model_(model),
        calibration_(calibration),
        tokens_(tokens),
        cancel_(cancel) {}

  // Removes layers from one of the stacks of the slice, until `wanted` are left.
  void remove(ModelSlice& slice, std::vector<LayerSlice> ModelSlice::*stack, int64_t wanted) {
    while (static_cast<int64_t>((slice.*stack).size()) > wanted) {
      double lowest = std::numeric_limits<double>::infinity();
      size_t least_needed = 0;
      for (size_t i = 0; i < (slice.*stack).size(); ++i) {
        const double loss = cross_entropy(without(slice, stack, i));
        if (loss < lowest) {
          lowest = loss;
          least_needed = i;
        }
      }
      require(std::isfinite(lowest), ErrorCode::non_finite, kPruneOrigin,
              "the cross-entropy of the calibration data is not finite, whichever layer is left "
              "out");
      slice = without(slice, stack, least_needed);
    }
  }

 private:
  static ModelSlice without(ModelSlice slice, std::vector<LayerSlice> ModelSlice::*stack,
                            size_t i) {
    (slice.*stack).erase((slice.*stack).begin() + static_cast<std::ptrdiff_t>(i));
    return slice;
  }
  double cross_entropy(const ModelSlice& slice) {
    const auto part = sliced_model(context_, model_, slice);
    return mean_cross_entropy(context_, *part, calibration_, tokens_, cancel_);
  }

  Context& context_;
  const Model& model_;
  const TokenizedCorpus& calibration_;
  const SpecialTokens& tokens_;
  const CancelToken* cancel_;
};

// Adds |sum over rows and the columns of a block of W dL/dW| to the score of each block.
template <class T>
void add_products(const std::vector<T>& weight, const std::vector<T>& gradient, size_t columns,
                  Scores& scores) {
  const size_t block = columns / scores.size();
  std::vector<double> products(columns);
  for (size_t i = 0; i < weight.size(); ++i)
    products[i % columns] += static_cast<double>(weight[i]) * static_cast<double>(gradient[i]);
  const double* product = products.data();
  for (double& score : scores) {
    score += std::abs(std::accumulate(product, product + block, 0.0));
    product += block;
  }
}

// The scores of the heads and columns of a model, over the pairs of the calibration data.
class Scorer {
 public:
  Scorer(Context& context, Model& model) : context_(context), model_(model) {
    const ParameterStore& parameters = model.parameters();
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const ParameterParts& parts = parameters.parts(id);
      if (parts.column_units > 0)
        weights_.push_back({id, scores_of(parts.rows.front().place.sublayer),
                            Scores(static_cast<size_t>(parts.column_units))});
    }
  }

  void add(const TokenizedCorpus& calibration, const SpecialTokens& tokens,
           const CancelToken* cancel) {
    const LabelSmoothedCrossEntropy cross_entropy(0);
    const DType dtype = model_.parameters().dtype();
    const StepSums sums(context_, dtype);
    WorkProgress progress(Work::score, calibration.size());
    for (int64_t i = 0; i < calibration.size(); ++i) {
      stop_if_cancelled(cancel, kPruneOrigin);
      PackedBatchHost pair;
      BatchPacker(pair, sequence_form(model_.spec()), tokens.start())
          .add(calibration.source(i), calibration.target(i), i);
      accumulate_gradients(context_, model_, {upload(context_, pair, model_.spec(), dtype), {}},
                           cross_entropy, Recompute::none, sums);
      for (Measured& weight : weights_) add_gradient(weight);
      progress.add(1);
    }
    progress.finish();
  }

  // In the order of the layers, the encoder's first. NON_FINITE names the weight.
  std::vector<LayerScores> take() {
    for (const Measured& weight : weights_)
      for (const double score : weight.scores)
        require(std::isfinite(score), ErrorCode::non_finite, kPruneOrigin, "the scores of ",
                model_.parameters().name(weight.id),
                " are not finite: weights of the model are not, or its loss");
    std::vector<LayerScores> layers;
    for (Measured& weight : weights_) {
      if (weight.part == &LayerScores::heads) layers.emplace_back();
      layers.back().*weight.part = std::move(weight.scores);
    }
    return layers;
  }

 private:
  struct Measured {
    ParamId id;
    Scores LayerScores::*part;
    Scores scores;
  };

  static Scores LayerScores::*scores_of(Sublayer sublayer) {
    return sublayer == Sublayer::attention         ? &LayerScores::heads
           : sublayer == Sublayer::cross_attention ? &LayerScores::cross_heads
                                                   : &LayerScores::ffn_columns;
  }
  void add_gradient(Measured& measured) {
    const Tensor& weight = model_.parameters().value(measured.id);
    const Tensor& gradient = model_.parameters().grad(measured.id);
    const auto columns = static_cast<size_t>(weight.dim(1));
    if (weight.dtype() == DType::f64)
      add_products(context_.values<double>(weight.detach()),
                   context_.values<double>(gradient.detach()), columns, measured.scores);
    else
      add_products(context_.values<float>(weight.detach()),
                   context_.values<float>(gradient.detach()), columns, measured.scores);
  }

  Context& context_;
  Model& model_;
  std::vector<Measured> weights_;
};

// The numbers of the `count` highest scores, ascending; of equal ones the first.
std::vector<int64_t> highest(const Scores& scores, int64_t count) {
  std::vector<int64_t> numbers(scores.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  std::stable_sort(numbers.begin(), numbers.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  numbers.resize(static_cast<size_t>(std::min<int64_t>(count, std::ssize(numbers))));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

int64_t kept_heads(double share, size_t heads) {
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(heads)));
}

int64_t kept_columns(double share, size_t columns) {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(columns)));
  return (wanted + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
}

// Gives each layer of a whole stack what its scores leave. `scores` begins with the scores of the
// stack.
void keep_best(std::vector<LayerSlice>& stack, const LayerScores* scores, double ffn,
               double heads) {
  for (LayerSlice& layer : stack) {
    layer.heads = highest(scores->heads, kept_heads(heads, scores->heads.size()));
    layer.cross_heads = highest(scores->cross_heads, kept_heads(heads, scores->cross_heads.size()));
    layer.ffn_columns = highest(scores->ffn_columns, kept_columns(ffn, scores->ffn_columns.size()));
    ++scores;
  }
}

}  // namespace

std::unique_ptr<Model> prune(Context& context, const Model& model,
                             const TokenizedCorpus& calibration, const SpecialTokens& tokens,
                             const PruneOptions& options, const CancelToken* cancel) {
  check(model, calibration, options);
  const bool has_encoder = model.spec().has_encoder();
  ModelSlice layers = whole_model(model.spec());
  LayerPruner pruner(context, model, calibration, tokens, cancel);
  if (has_encoder && options.encoder_layers > 0 && model.config().encoder_tied_layers.empty())
    pruner.remove(layers, &ModelSlice::encoder, options.encoder_layers);
  if (options.decoder_layers > 0 && model.config().decoder_tied_layers.empty())
    pruner.remove(layers, &ModelSlice::decoder, options.decoder_layers);
  std::unique_ptr<Model> shallow = sliced_model(context, model, layers);
  const bool narrower =
      options.decoder_ffn_share < 1 || options.decoder_head_share < 1 ||
      (has_encoder && (options.encoder_ffn_share < 1 || options.encoder_head_share < 1));
  if (!narrower) return shallow;
  Scorer scorer(context, *shallow);
  scorer.add(calibration, tokens, cancel);
  const std::vector<LayerScores> scores = scorer.take();
  ModelSlice best = whole_model(shallow->spec());
  keep_best(best.encoder, scores.data(), options.encoder_ffn_share, options.encoder_head_share);
  keep_best(best.decoder, scores.data() + best.encoder.size(), options.decoder_ffn_share,
            options.decoder_head_share);
  return sliced_model(context, *shallow, best);
}

}  // namespace trafo
