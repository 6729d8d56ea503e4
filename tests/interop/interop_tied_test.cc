// Models whose layers share parameters, for other programs: each format gets what the untied copy
// of the model gives.
#include "engine/formats/peft/peft.h"

#include <map>

#include "engine/models/adapter.h"
#include "engine/models/upload.h"
#include "tests/interop/interop_support.h"
#include "tests/models/tied_models.h"

namespace trafo {
namespace {

using namespace testing;

class TiedInterop : public InteropTest {
 protected:
  // In the form that a format takes.
  ModelConfig config_for(const char* form) const {
    ModelConfig config = tied_form(form, 0.0);
    config.vocabulary = tokenizer().vocab_size();
    if (!spec_of(config).encoder) config.encoder_layers = ModelConfig{}.encoder_layers;
    config.ffn_width = 64;
    config.width = 32;
    if (std::string(form) == "lm") {
      config.activation = Activation::gelu;
      config.output_bias = false;
    }
    return config;
  }
  std::unique_ptr<Model> disturbed(const ModelConfig& config) {
    auto model = make_model(*context_, config, 5);
    disturb(*context_, *model);
    return model;
  }
  std::vector<float> logits_of(const Model& model) {
    const NoGrad no_grad(*context_);
    PackedBatchHost batch = copy_batches(model.config().architecture, 1)[0];
    return context_->values<float>(
        model.logits(*context_, upload(*context_, batch, model.spec(), DType::f32)));
  }
  // B is zero at first.
  void set_adapter(Model& model) {
    PhiloxStream random(4, 2);
    for (ParamId id = 0; id < static_cast<ParamId>(model.parameters().count()); ++id) {
      if (model.parameters().group(id).name != kAdapter) continue;
      std::vector<float> values(static_cast<size_t>(element_count(model.parameters().shape(id))));
      for (float& value : values) value = static_cast<float>(random.uniform(-0.3, 0.3));
      model.parameters().set_value(*context_, id, values.data(), values.size() * sizeof(float));
    }
  }
  static void edit_peft(const fs::path& directory,
                        const std::function<void(std::vector<Stored>&)>& change) {
    fs::rename(directory / "adapter_model.safetensors", directory / "model.safetensors");
    edit_tensors(directory, change);
    fs::rename(directory / "model.safetensors", directory / "adapter_model.safetensors");
  }
};

TEST_F(TiedInterop, EveryFormatHasTheFilesOfTheUntiedCopy) {
  using enum ExportWeights;
  const struct {
    const char* form;
    ExportFormat format;
    std::vector<ExportWeights> weights;
  } kCases[] = {{"post-norm", ExportFormat::hf_marian, {float32}},
                {"encdec", ExportFormat::hf_pegasus, {float32}},
                {"lm", ExportFormat::hf_gpt2, {float32}},
                {"llama", ExportFormat::hf_llama, {float32}},
                {"llama", ExportFormat::hf_compressed, {int8, int4}},
                {"encdec", ExportFormat::ctranslate2, {float32, int8}},
                {"lm", ExportFormat::ctranslate2, {float32}},
                {"llama", ExportFormat::ctranslate2, {float32}},
                {"encdec", ExportFormat::onnx, {float32, int8}},
                {"lm", ExportFormat::onnx, {float32}},
                {"llama", ExportFormat::onnx, {float32}}};
  for (const auto& each : kCases) {
    ModelConfig config = config_for(each.form);
    if (each.format == ExportFormat::hf_marian) config.encoder_tied_layers = {1, 2, 2};
    const auto tied = disturbed(config);
    const auto untied = untied_copy<float>(*context_, *tied);
    for (const ExportWeights weights : each.weights) {
      SCOPED_TRACE(concat(enum_name(each.format), " ", each.form, " ", enum_name(weights)));
      const fs::path a = path("tied"), b = path("untied");
      fs::remove_all(a);
      fs::remove_all(b);
      const double difference =
          export_model(*context_, *tied, tokenizer(), each.format, a, weights);
      EXPECT_EQ(export_model(*context_, *untied, tokenizer(), each.format, b, weights), difference);
      size_t files = 0;
      for (const fs::directory_entry& file : fs::recursive_directory_iterator(b)) {
        if (!file.is_regular_file()) continue;
        ++files;
        const fs::path name = fs::relative(file.path(), b);
        EXPECT_TRUE(slurp(a / name) == slurp(file.path())) << name;
      }
      EXPECT_GT(files, 0u);
      if (each.format == ExportFormat::hf_marian || each.format == ExportFormat::hf_pegasus ||
          each.format == ExportFormat::hf_gpt2 || each.format == ExportFormat::hf_llama) {
        const ImportedModel imported = import_model(*context_, a);
        EXPECT_TRUE(imported.model->config().decoder_tied_layers.empty());
        EXPECT_EQ(imported.model->config().decoder_layers, 4);
        EXPECT_EQ(logits_of(*imported.model), logits_of(*tied));
      }
    }
  }
}

// PEFT has an adapter for each layer: adapters of layers that share their parameters are copies.
TEST_F(TiedInterop, AdaptersAreCopiedToEachLayer) {
  for (const char* form : kTiedForms) {
    SCOPED_TRACE(form);
    const auto tied = disturbed(config_for(form));
    AdapterConfig adapter;
    adapter.rank = 2;
    const auto again = untied_copy<float>(*context_, *tied);  // the base, before the adapter
    const auto shared = make_model(*context_, tied->config(), 6);
    for (ParamId id = 0; id < static_cast<ParamId>(shared->parameters().count()); ++id) {
      const auto values = value_of<float>(*context_, *tied, tied->parameters().name(id));
      shared->parameters().set_value(*context_, id, values.data(), values.size() * sizeof(float));
    }
    add_adapter(*context_, *tied, adapter, 1);
    set_adapter(*tied);
    const fs::path directory = path(concat("peft-", form));
    save_adapter(*context_, *tied, directory);
    load_adapter(*context_, *shared, directory);
    EXPECT_EQ(logits_of(*shared), logits_of(*tied));

    // Without what ties the file to its base, the untied copy takes it too.
    edit_peft(directory, [](std::vector<Stored>&) {});
    load_adapter(*context_, *again, directory);
    EXPECT_EQ(logits_of(*again), logits_of(*tied));

    remove_adapter(*context_, *shared);
    edit_peft(directory, [](std::vector<Stored>& tensors) {
      for (Stored& tensor : tensors)
        if (tensor.name.find("layers.3.") != std::string::npos ||
            tensor.name.find(".h.3.") != std::string::npos)
          tensor.bytes[1] ^= std::byte{0x10};
    });
    expect_error(ErrorCode::invalid_argument, "these layers share their parameters in this model",
                 [&] { load_adapter(*context_, *shared, directory); });
  }
}

// The elements of other types are no weights, also where they have as many bytes as float32.
TEST_F(TiedInterop, AnAdapterOfIntegersIsRefused) {
  const auto model = disturbed(config_for("llama"));
  AdapterConfig adapter;
  adapter.rank = 2;
  add_adapter(*context_, *model, adapter, 1);
  save_adapter(*context_, *model, path("whole"));
  remove_adapter(*context_, *model);
  const std::vector<float> before = logits_of(*model);
  for (const auto& [type, size] : std::map<std::string, size_t>{{"U32", 4},
                                                                {"I32", 4},
                                                                {"I64", 8},
                                                                {"U64", 8},
                                                                {"I16", 2},
                                                                {"U16", 2},
                                                                {"I8", 1},
                                                                {"U8", 1},
                                                                {"BOOL", 1},
                                                                {"F8_E4M3", 1},
                                                                {"F8_E5M2", 1}}) {
    fs::remove_all(path("changed"));
    fs::copy(path("whole"), path("changed"));
    std::string name;
    edit_peft(path("changed"), [&](std::vector<Stored>& tensors) {
      Stored& last = tensors.back();
      last.dtype = type;
      last.bytes.resize(last.bytes.size() / 4 * size);
      name = last.name;
    });
    const Error error = error_of([&] { load_adapter(*context_, *model, path("changed")); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << type << ": " << error.what();
    EXPECT_TRUE(mentions(error, name.c_str())) << type << ": " << error.what();
    EXPECT_TRUE(mentions(error, "weights are F32, F64, BF16 or F16")) << type;
    EXPECT_FALSE(model->adapter().has_value());
  }
  EXPECT_EQ(logits_of(*model), before);
}

}  // namespace
}  // namespace trafo
