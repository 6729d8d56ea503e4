// The results of objectives, against the logits of the same model.
#include <cmath>

#include "engine/data/batch_packer.h"
#include "engine/decode/scorer.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr double kSmoothing = 0.1;

struct ModelAndBatch {
  std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 1);
  std::unique_ptr<Model> model;
  Batch batch;

  explicit ModelAndBatch(Architecture architecture) {
    const ModelConfig config = tiny_config(architecture, 0);
    model = make_model(*context, config, 5, DType::f64);
    PackedBatchHost host = copy_batches(architecture, 1)[0];
    host.target_weights.assign(host.target_out.size(), 1);
    for (size_t i = 0; i < host.target_weights.size(); i += 3) host.target_weights[i] = 0.25f;
    batch = upload(*context, host, spec_of(config), DType::f64);
  }
};

// The gradient of an embedding is zero where dropout has dropped it, and no other dropout of a
// pre-norm model without attention dropout makes it so: the zeros are the mask.
TEST(Objective, SourceAndTargetEmbeddingsHaveDifferentMasks) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  config.dropout = 0.5;
  config.tied_embeddings = false;
  const auto model = make_model(*context, config, 5, DType::f64);
  const std::vector<int32_t> source{4, 5, 6, 7, 8, 9, 10, kTokens.eos},
      target{11, 12, 13, 14, 15, 16, 17, kTokens.eos};
  PackedBatchHost host;
  BatchPacker packer(host, SequenceForm::encoder_decoder, kTokens.bos);
  packer.add(source, target, 0);
  const Batch batch = upload(*context, host, spec_of(config), DType::f64);
  context->backward(LabelSmoothedCrossEntropy(0).loss(*context, *model, batch, {7, 3, true}).loss);
  const ParameterStore& parameters = model->parameters();
  const auto gradient = [&](const char* name) {
    return context->values<double>(parameters.grad(parameters.find(name)));
  };
  const std::vector<double> of_source = gradient("source_embedding.weight"),
                            of_target = gradient("embedding.weight");
  const auto width = static_cast<size_t>(config.width);
  size_t dropped = 0, same = 0, elements = 0;
  for (size_t row = 0; row < source.size(); ++row) {
    const int32_t read = row == 0 ? kTokens.bos : target[row - 1];
    for (size_t c = 0; c < width; ++c, ++elements) {
      const bool a = of_source[static_cast<size_t>(source[row]) * width + c] == 0;
      const bool b = of_target[static_cast<size_t>(read) * width + c] == 0;
      dropped += (a ? 1u : 0u) + (b ? 1u : 0u);
      same += a == b ? 1u : 0u;
    }
  }
  EXPECT_GT(dropped, elements * 7 / 10);  // of two for each element
  EXPECT_LT(dropped, elements * 13 / 10);
  EXPECT_LT(same, elements * 7 / 10);
}

TEST(Objective, LabelSmoothedCrossEntropyIsThatOfTheLogits) {
  for (const Architecture architecture :
       {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    const ModelAndBatch given(architecture);
    Context& context = *given.context;
    const NoGrad no_grad(context);
    const Tensor logits = given.model->logits(context, given.batch);
    const int64_t classes = logits.dim(1);
    const auto x = context.values<double>(logits);
    const auto labels = context.values<int32_t>(given.batch.target_out);
    const auto weights = context.values<double>(given.batch.target_weights);
    double loss = 0, nll = 0;
    for (size_t t = 0; t < labels.size(); ++t) {
      const double* row = x.data() + t * static_cast<size_t>(classes);
      double sum = 0, mean = 0;
      for (int64_t v = 0; v < classes; ++v) {
        sum += std::exp(row[v]);
        mean += row[v] / static_cast<double>(classes);
      }
      const double label_nll = std::log(sum) - row[labels[t]];
      nll += weights[t] * label_nll;
      loss += weights[t] * ((1 - kSmoothing) * label_nll + kSmoothing * (std::log(sum) - mean));
    }
    const LabelSmoothedCrossEntropy objective(kSmoothing);
    const auto output = objective.loss(context, *given.model, given.batch, {}, 0.5);
    EXPECT_NEAR(context.item(output.loss), 0.5 * loss, 1e-9 * std::abs(loss));
    EXPECT_NEAR(context.item(output.nll), 0.5 * nll, 1e-9 * std::abs(nll));
    const auto plain = LabelSmoothedCrossEntropy(0).loss(context, *given.model, given.batch, {});
    EXPECT_NEAR(context.item(plain.loss), nll, 1e-9 * std::abs(nll));
  }
}

TEST(Objective, LabelNllLeavesOutIgnoredLabelsAndWeights) {
  const ModelAndBatch given(Architecture::encoder_decoder);
  Context& context = *given.context;
  const NoGrad no_grad(context);
  const auto labels = context.values<int32_t>(given.batch.target_out);
  const int32_t ignored = labels[1];
  const auto all = context.values<double>(label_nll(context, *given.model, given.batch, -100));
  const auto some = context.values<double>(label_nll(context, *given.model, given.batch, ignored));
  ASSERT_EQ(all.size(), labels.size());
  Batch unweighted = given.batch;
  unweighted.target_weights = {};
  double sum = 0;
  for (size_t t = 0; t < labels.size(); ++t) {
    EXPECT_GT(all[t], 0);
    EXPECT_EQ(some[t], labels[t] == ignored ? 0 : all[t]);
    sum += all[t];
  }
  const auto output = LabelSmoothedCrossEntropy(0).loss(context, *given.model, unweighted, {});
  EXPECT_NEAR(context.item(output.loss), sum, 1e-9 * sum);
}

TEST(Objective, RefusesASmoothingThatIsNoShare) {
  const ModelAndBatch given(Architecture::encoder_decoder);
  expect_error(ErrorCode::invalid_argument, "label_smoothing", [&] {
    LabelSmoothedCrossEntropy(1).loss(*given.context, *given.model, given.batch, {});
  });
}

}  // namespace
}  // namespace trafo
