// The forms a model may have: they all learn, come back from their files, and are what they say.
#include <cmath>

#include "engine/models/model_io.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

struct ModelForm {
  Architecture architecture;
  Activation activation;
  bool pre_norm, tied;
};

std::vector<ModelForm> forms() {
  std::vector<ModelForm> all;
  for (const auto architecture : {Architecture::encoder_decoder, Architecture::decoder_lm})
    for (const auto activation :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf})
      for (const bool pre_norm : {false, true})
        for (const bool tied : {false, true})
          all.push_back({architecture, activation, pre_norm, tied});
  return all;
}

class ModelOptionsTest : public ::testing::TestWithParam<ModelForm> {
 protected:
  static ModelConfig config() {
    ModelConfig config = tiny_config(GetParam().architecture, 0);
    config.activation = GetParam().activation;
    config.pre_norm = GetParam().pre_norm;
    config.tied_embeddings = GetParam().tied;
    return config;
  }
  static double loss_of(Context& context, const Model& model,
                        std::span<const PackedBatchHost> batches) {
    TrainOptions options = quick_options();
    double sum = 0;
    for (const PackedBatchHost& batch : batches) {
      const auto copy = make_model(context, model.config(), 1);
      const auto bytes = weight_bytes(context, model);
      context.backend().copy_from_host(copy->parameters().flat().raw(), bytes.data(), bytes.size());
      Trainer trainer(context, *copy, options);
      sum += trainer.step({&batch, 1}).nll;
    }
    return sum / static_cast<double>(batches.size());
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, ModelOptionsTest, ::testing::ValuesIn(forms()),
                         [](const auto& instance) {
                           const ModelForm& form = instance.param;
                           return std::string(
                                      form.architecture == Architecture::decoder_lm ? "Lm" : "Ed") +
                                  enum_name(form.activation) + (form.pre_norm ? "Pre" : "Post") +
                                  (form.tied ? "Tied" : "Untied");
                         });

TEST_P(ModelOptionsTest, Learns) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config(), 5);
  const auto batches = copy_batches(GetParam().architecture, 4);
  const double before = loss_of(*context, *model, batches);
  TrainOptions options = quick_options();
  options.learning_rate = 5e-3;
  Trainer trainer(*context, *model, options);
  for (int u = 0; u < 60; ++u)
    trainer.step(std::span(batches).subspan(static_cast<size_t>(u) % 4, 1));
  EXPECT_LT(loss_of(*context, *model, batches), 0.8 * before);
}

TEST_P(ModelOptionsTest, ReferenceOpsGiveTheSameLoss) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto reference = make_context({DeviceKind::cpu, 0}, 1);
  reference->set_fused_kernels(false);
  const auto batches = copy_batches(GetParam().architecture, 2);
  const double loss = loss_of(*context, *make_model(*context, config(), 5), batches);
  EXPECT_NEAR(loss_of(*reference, *make_model(*reference, config(), 5), batches), loss,
              1e-5 * loss);
}

TEST_P(ModelOptionsTest, TyingIsOneMatrix) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config(), 5);
  const ParameterStore& parameters = model->parameters();
  EXPECT_NE(parameters.find("embedding.weight"), kNoParam);
  EXPECT_EQ(parameters.find("output.weight") == kNoParam, GetParam().tied);
  const bool has_source = GetParam().architecture == Architecture::encoder_decoder;
  EXPECT_EQ(parameters.find("source_embedding.weight") != kNoParam, has_source && !GetParam().tied);
  EXPECT_EQ(parameters.find("decoder.norm.weight") != kNoParam, GetParam().pre_norm);
}

TEST_P(ModelOptionsTest, ComesBackFromItsFile) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, config(), 5);
  const TemporaryDirectory directory;
  save_model(directory / "model", *context, *model);
  const auto loaded = load_model(*context, directory / "model");
  EXPECT_EQ(loaded->config(), model->config());
  EXPECT_EQ(weight_bytes(*context, *loaded), weight_bytes(*context, *model));
}

TEST(DepthScaledInit, DividesTheWeightsOfALayerByTheRootOfItsDepth) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  for (const auto architecture : {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    ModelConfig config = tiny_config(architecture);
    config.encoder_layers = config.decoder_layers = 3;
    const auto plain = make_model(*context, config, 7);
    config.depth_scaled_init = true;
    const auto scaled = make_model(*context, config, 7);
    const ParameterStore& a = plain->parameters();
    const ParameterStore& b = scaled->parameters();
    ASSERT_EQ(a.count(), b.count());
    int divided = 0;
    for (size_t i = 0; i < a.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const auto x = context->values<float>(a.value(id).detach());
      const auto y = context->values<float>(b.value(id).detach());
      const std::string& name = a.name(id);
      // A layer's number is between the first two dots; the keys and values of all decoder layers
      // are one matrix.
      const size_t dot = name.find('.');
      const char digit = name[dot + 1];
      const bool weight = name.ends_with(".weight") && name.find("norm") == std::string::npos;
      for (size_t e = 0; e < x.size(); ++e) {
        double depth = 1;
        if (weight && digit >= '0' && digit <= '9') depth = digit - '0' + 1;
        if (name == "decoder.cross_kv.weight") depth = static_cast<double>(e / (x.size() / 3)) + 1;
        ASSERT_NEAR(y[e], x[e] / std::sqrt(depth), 1e-7) << name << " " << e;
        divided += depth > 1 && x[e] != 0;
      }
    }
    EXPECT_GT(divided, 1000);
  }
  EXPECT_NE(to_json(ModelConfig{}).find("\"depth_scaled_init\": false"), std::string::npos);
}

TEST(OutputBias, IsAParameterWhereTheConfigurationHasOne) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  for (const auto architecture : {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    ModelConfig config = tiny_config(architecture);
    const auto with = make_model(*context, config, 7);
    config.output_bias = false;
    const auto without = make_model(*context, config, 7);
    EXPECT_NE(with->parameters().find("output.bias"), kNoParam);
    EXPECT_EQ(without->parameters().find("output.bias"), kNoParam);
    EXPECT_FALSE(without->output_projection().bias.defined());
    EXPECT_EQ(without->parameters().count() + 1, with->parameters().count());
    const TemporaryDirectory directory;
    save_model(directory / "model", *context, *without);
    EXPECT_FALSE(load_model(*context, directory / "model")->config().output_bias);
  }
}

TEST(ModelConfigJson, AMissingFieldIsCorrupt) {
  std::string text = to_json(tiny_config(Architecture::decoder_lm));
  const std::string field = ",\n  \"output_bias\": true";
  const size_t at = text.find(field);
  ASSERT_NE(at, std::string::npos) << text;
  text.erase(at, field.size());
  try {
    model_config_from_json(text);
    FAIL() << "a configuration without output_bias was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
    EXPECT_NE(std::string(error.what()).find("there is no output_bias"), std::string::npos)
        << error.what();
  }
}

TEST(Architectures, HaveNamesThatAreReadBack) {
  for (int32_t i = 0; i < static_cast<int32_t>(EnumNames<Architecture>::names.size()); ++i) {
    const auto architecture = static_cast<Architecture>(i);
    EXPECT_EQ(info_of(architecture).architecture, architecture);
    ModelConfig config = tiny_config(architecture);
    if (architecture == Architecture::encoder) config.pre_norm = false;
    EXPECT_EQ(model_config_from_json(to_json(config)).architecture, architecture);
    EXPECT_NE(to_json(config).find(enum_name(architecture)), std::string::npos);
  }
  EXPECT_THROW(info_of(static_cast<Architecture>(EnumNames<Architecture>::names.size())), Error);
}

}  // namespace
}  // namespace trafo
