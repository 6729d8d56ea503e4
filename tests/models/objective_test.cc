// The results of objectives, against the logits of the same model.
#include <cmath>

#include "engine/models/objective.h"
#include "engine/models/upload.h"
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
    batch = upload(*context, host, config, DType::f64);
  }
};

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
