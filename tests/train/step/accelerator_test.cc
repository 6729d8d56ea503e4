// Waits that an accelerator is spared: how often the host waits for it.
#include "tests/train/step/accelerator.h"
#include "engine/decode/scorer.h"
#include "engine/decode/search.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/train/step/trainer.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

// A device that computes nothing: all memory it gives is zero and stays so. Enough to see that
// every op takes bfloat16, and what it asks for.
class MuteAccelerator final : public Accelerator {
 public:
  MuteAccelerator() {
    static const std::vector<KernelFn> kernels(kOpKernelCount,
                                               [](void*, const void*) -> int32_t { return 0; });
    set_kernels(kernels);
  }
  void gemm(const GemmParams& params) override {
    EXPECT_EQ(params.dtype, DType::bf16);
    (params.c_is_f32 ? wide_gemms : narrow_gemms) += 1;
  }

  int wide_gemms = 0, narrow_gemms = 0;

 protected:
  void* allocate_block(size_t bytes) override {
    void* memory = Accelerator::allocate_block(bytes);
    if (memory) std::memset(memory, 0, bytes);
    return memory;
  }
};

class AcceleratorTest : public ::testing::TestWithParam<Architecture> {
 protected:
  std::vector<PackedBatchHost> batches(size_t count) const {
    return copy_batches(GetParam(), count);
  }

  std::unique_ptr<Context> cpu_ = make_context({DeviceKind::cpu, 0}, 1);
  std::shared_ptr<Accelerator> accelerator_ = std::make_shared<Accelerator>();
  Context context_{accelerator_};
};

INSTANTIATE_TEST_SUITE_P(Architectures, AcceleratorTest,
                         ::testing::Values(Architecture::encoder_decoder, Architecture::decoder_lm),
                         [](const auto& instance) {
                           return instance.param == Architecture::decoder_lm ? "DecoderLm"
                                                                             : "EncoderDecoder";
                         });

TEST_P(AcceleratorTest, AStepWaitsForItsRecordAlone) {
  const auto there = make_model(context_, tiny_config(GetParam()), 5);
  const auto here = make_model(*cpu_, tiny_config(GetParam()), 5);
  TrainOptions options = quick_options();
  options.label_smoothing = 0.1;
  Trainer a(context_, *there, options), b(*cpu_, *here, options);
  auto data = batches(6);
  data[1].target_weights.assign(data[1].target_out.size(), 0.5f);
  data[1].target_weights[0] = 0;
  data[2].target_out[0] = ops::CrossEntropyOptions{}.ignore_label;
  for (size_t i = 0; i < data.size(); i += 2) {
    const auto micro = std::span(data).subspan(i, 2);
    accelerator_->waits = 0;
    const StepResult x = a.step(micro), y = b.step(micro);
    EXPECT_EQ(accelerator_->waits, 1);  // the record of the update
    EXPECT_NEAR(x.loss, y.loss, 1e-5 * y.loss);
    EXPECT_NEAR(x.nll, y.nll, 1e-5 * y.nll);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-4 * y.grad_norm);
    EXPECT_EQ(x.labels, y.labels);
  }
  accelerator_->waits = 0;
  const double before = a.step(std::span(data).first(1)).loss;
  EXPECT_EQ(accelerator_->waits, 1);
  EXPECT_NEAR(before, b.step(std::span(data).first(1)).loss, 1e-4 * before);
}

TEST_P(AcceleratorTest, TokensAreCheckedBeforeTheyLeaveTheHost) {
  const auto model = make_model(context_, tiny_config(GetParam()), 5);
  Trainer trainer(context_, *model, quick_options());
  const auto refused = [&](const char* text, auto&& change) {
    auto data = batches(1);
    change(data[0]);
    try {
      trainer.step(data);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused("target_in has 24 at token 3, the model knows 0 to 23",
          [](PackedBatchHost& batch) { batch.target_in[3] = kVocabulary; });
  refused("target_out has -1 at token 1", [](PackedBatchHost& batch) { batch.target_out[1] = -1; });
  refused("target_positions has 32 at token 2, the model knows 0 to 31",
          [](PackedBatchHost& batch) { batch.target_positions[2] = 32; });
  refused("target_weights has -1 at token 0", [](PackedBatchHost& batch) {
    batch.target_weights.assign(batch.target_out.size(), 1.0f);
    batch.target_weights[0] = -1;
  });
  if (GetParam() == Architecture::encoder_decoder)
    refused("source_ids has -3 at token 0",
            [](PackedBatchHost& batch) { batch.source_ids[0] = -3; });
}

TEST_P(AcceleratorTest, DecodingWaitsForTheBestTokensOfAStepAlone) {
  const auto there = make_model(context_, tiny_config(GetParam()), 5);
  const auto here = make_model(*cpu_, tiny_config(GetParam()), 5);
  const std::vector<std::vector<int32_t>> sources{{5, 6, 7, 2}, {9, 2}, {4, 4, 8, 11, 2}};
  DecodeOptions options;
  options.tokens = kTokens;
  options.beam = 3;
  options.max_length = 6;
  accelerator_->waits = 0;
  const auto x = translate_tokens(context_, *there, sources, options);
  const auto y = translate_tokens(*cpu_, *here, sources, options);
  // Two small tensors a step; encoding reads its row numbers once.
  EXPECT_LE(accelerator_->waits, 2 * (6 + 5) + 1);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i][0].tokens, y[i][0].tokens);
    EXPECT_NEAR(x[i][0].log_probability, y[i][0].log_probability, 1e-4);
  }

  const std::vector<SentencePair> pairs{{{5, 6, 2}, {7, 8, 2}}, {{9, 2}, {4, 2}}};
  ScoreOptions scoring;
  scoring.tokens = kTokens;
  accelerator_->waits = 0;
  const auto p = score(context_, *there, pairs, scoring), q = score(*cpu_, *here, pairs, scoring);
  EXPECT_EQ(accelerator_->waits, 1);
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(p[i].log_probability, q[i].log_probability, 1e-4);
}

TEST_P(AcceleratorTest, ReferenceOpsGiveTheSameAndWaitForNothing) {
  const auto there = make_model(context_, tiny_config(GetParam()), 5);
  const auto here = make_model(*cpu_, tiny_config(GetParam()), 5);
  context_.set_fused_kernels(false);
  TrainOptions options = quick_options();
  options.label_smoothing = 0.1;
  Trainer a(context_, *there, options), b(*cpu_, *here, options);
  const auto data = batches(6);
  int64_t launches = 0;
  for (const PackedBatchHost& batch : data) {
    accelerator_->waits = accelerator_->launches = 0;
    const StepResult x = a.step({&batch, 1}), y = b.step({&batch, 1});
    EXPECT_NEAR(x.loss, y.loss, 1e-4 * y.loss);
    EXPECT_NEAR(x.nll, y.nll, 1e-4 * y.nll);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-3 * y.grad_norm);
    EXPECT_EQ(accelerator_->waits, 1);  // the record of the update
    // However many sentences there are.
    if (launches == 0) launches = accelerator_->launches;
    EXPECT_EQ(accelerator_->launches, launches);
  }
}

TEST_P(AcceleratorTest, Bfloat16ModelsTrainDecodeAndKeepFloat32Files) {
  const auto device = std::make_shared<MuteAccelerator>();
  Context context(device);
  const auto model = make_model(context, tiny_config(GetParam()), 5, DType::bf16);
  const auto plain = make_model(*cpu_, tiny_config(GetParam()), 5);
  EXPECT_EQ(bytes_of(context, model->parameters().master()), weight_bytes(*cpu_, *plain));
  Trainer trainer(context, *model, quick_options());
  auto data = batches(1);
  data[0].target_weights.assign(data[0].target_out.size(), 1.0f);
  device->waits = device->narrow_gemms = 0;
  trainer.step(data);  // of zeros: nothing is applied
  EXPECT_EQ(device->waits, 1);
  // Of three GEMMs, the one that gives the gradient of a weight is kept in float32.
  EXPECT_GT(device->wide_gemms, 0);
  EXPECT_EQ(device->narrow_gemms, 2 * device->wide_gemms);

  const std::vector<std::vector<int32_t>> sources{{5, 6, 2}};
  DecodeOptions options;
  options.tokens = kTokens;
  EXPECT_EQ(translate_tokens(context, *model, sources, options).size(), 1u);
  ScoreOptions scoring;
  scoring.tokens = kTokens;
  EXPECT_EQ(score(context, *model, std::vector<SentencePair>{{{5, 2}, {6, 2}}}, scoring).size(),
            1u);

  context.set_fused_kernels(false);
  device->waits = 0;
  EXPECT_NO_THROW(trainer.step(data));
  EXPECT_EQ(device->waits, 1);

  const TemporaryDirectory folder;
  const auto path = folder.path() / "model.safetensors";
  save_model(path, context, *model);
  const auto file = SafetensorsReader::open(path);
  for (const TensorInfo& info : file.tensors()) EXPECT_EQ(info.dtype, DType::f32);
  const auto loaded = load_model(context, path, DType::bf16);
  EXPECT_EQ(bytes_of(context, loaded->parameters().master()), weight_bytes(*cpu_, *plain));
  EXPECT_EQ(weight_bytes(*cpu_, *load_model(*cpu_, path)), weight_bytes(*cpu_, *plain));
}

TEST(AcceleratorModel, DtypesThatTheDeviceDoesNotComputeWithAreRefused) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  Context accelerator(std::make_shared<Accelerator>());
  const auto code = [](Context& context, DType dtype) {
    try {
      make_model(context, tiny_config(), 1, dtype);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code(*cpu, DType::bf16), ErrorCode::unsupported);
  EXPECT_EQ(code(*cpu, DType::f64), ErrorCode::ok);
  EXPECT_EQ(code(accelerator, DType::f64), ErrorCode::unsupported);
  EXPECT_EQ(code(accelerator, DType::bf16), ErrorCode::ok);
}

}  // namespace
}  // namespace trafo
