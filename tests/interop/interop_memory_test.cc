// Memory that import, export, save and load take. Resident pages are counted: those of gradients
// that nobody computes are never written.
#include <fstream>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/numeric/half.h"
#include "engine/formats/formats.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

// Only Linux tells and resets the peak. Not run with a sanitizer (tests/sanitizers.cmake).
#if defined(__linux__)

int64_t bytes_of_process(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return 1024 * std::stoll(line.substr(key.size() + 1));
  ADD_FAILURE() << key;
  return 0;
}

// Bytes that the process had at most during the call, above those before it.
template <class Call>
int64_t peak_of(Call&& call) {
  std::ofstream("/proc/self/clear_refs") << 5;
  const int64_t before = bytes_of_process("VmRSS");
  call();
  return bytes_of_process("VmHWM") - before;
}

class InteropMemoryTest : public InteropTest {
 protected:
  void SetUp() override {
    ModelConfig config = llama_config(4, true);
    config.width = 512;
    config.heads = 8;
    config.ffn_width = 1536;
    config.decoder_layers = 5;
    config.max_positions = 64;
    model_ = make_model(*context_, config, 1);
    weights_ = 4 * model_->parameters().parameter_count();
  }
  // Twice the largest tensor, and memory that does not grow with the model.
  int64_t rest() const { return 2 * int64_t{512 * 1536 * 4} + (int64_t{6} << 20); }

  std::unique_ptr<Model> model_;
  int64_t weights_ = 0;
};

TEST_F(InteropMemoryTest, ExportTakesATensorAndImportTheModel) {
  ASSERT_GT(weights_, 4 * rest());
  const int64_t exported = peak_of([&] {
    EXPECT_EQ(export_model(*context_, *model_, tokenizer(), ExportFormat::hf_llama, path("llama")),
              0);
  });
  EXPECT_LT(exported, rest()) << "of " << weights_;
  std::optional<ImportedModel> imported;
  const int64_t taken = peak_of([&] { imported = import_model(*context_, path("llama")); });
  EXPECT_LT(taken, weights_ + rest()) << "of " << weights_;
  EXPECT_EQ(weight_bytes(*context_, *imported->model), weight_bytes(*context_, *model_));
}

TEST_F(InteropMemoryTest, SaveTakesNothingAndLoadTheModel) {
  const fs::path file = path("model.safetensors");
  EXPECT_LT(peak_of([&] { save_model(file, *context_, *model_); }), rest());
  std::unique_ptr<Model> loaded;
  EXPECT_LT(peak_of([&] { loaded = load_model(*context_, file); }), weights_ + rest());
  EXPECT_EQ(weight_bytes(*context_, *loaded), weight_bytes(*context_, *model_));
}

// Formats whose files are read back as another model, and models that are copied first.
TEST_F(InteropMemoryTest, ModelsBesideTheModelAreNotResident) {
  const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze sucht ein Licht"};
  TokenizerTrainOptions options;  // of a vocabulary that GGUF has as well
  options.vocab_size = 300;
  options.hard_vocab_limit = false;
  options.model = TokenizerModel::bpe;
  options.byte_fallback = true;
  const Tokenizer text = Tokenizer::train(std::span<const std::string>(lines), options);
  const auto exported = [&](const Model& model, ExportFormat format, ExportWeights weights) {
    const std::string name = concat(enum_name(format), enum_name(weights));
    const int64_t peak =
        peak_of([&] { export_model(*context_, model, text, format, path(name), weights); });
    EXPECT_LT(peak, weights_ / 2) << name << " of " << weights_;
    fs::remove_all(path(name));
  };
  ASSERT_GT(weights_, 4 * rest());
  ModelConfig config = model_->config();
  config.vocabulary = text.vocab_size();
  model_ = make_model(*context_, config, 1);
  for (const auto& [format, weights] : {std::pair{ExportFormat::gguf, ExportWeights::float32},
                                        {ExportFormat::gguf, ExportWeights::q8_0},
                                        {ExportFormat::ctranslate2, ExportWeights::int8},
                                        {ExportFormat::onnx, ExportWeights::int8},
                                        {ExportFormat::hf_compressed, ExportWeights::int8}})
    exported(*model_, format, weights);
  add_adapter(*context_, *model_, {2, 4.0, {}}, 1);
  exported(*model_, ExportFormat::hf_llama, ExportWeights::by_format);
  config = config_of(Architecture::decoder_lm, true);
  config.vocabulary = text.vocab_size();
  config.width = config.ffn_width = 512;
  config.decoder_layers = 10;
  model_ = make_model(*context_, config, 1);
  model_->parameters().value(model_->parameters().find("output.bias")).data<float>()[3] = 1;
  weights_ = 4 * model_->parameters().parameter_count();
  ASSERT_GT(weights_, 4 * rest());
  exported(*model_, ExportFormat::hf_gpt2, ExportWeights::by_format);
}

// Import, saving, loading and export of a model that has no place in memory.
TEST_F(InteropMemoryTest, AModelInFilesIsNotResident) {
  export_model(*context_, *model_, tokenizer(), ExportFormat::hf_llama, path("llama"));
  const std::unique_ptr<Context> context = make_context({DeviceKind::cpu, 0}, 2);
  fs::create_directory(path("memory"));
  set_memory_directory(context->backend(), path("memory"), "test");
  const fs::path file = path("model.safetensors");
  EXPECT_LT(
      peak_of([&] { save_model(file, *context, *import_model(*context, path("llama")).model); }),
      2 * rest());
  std::unique_ptr<Model> loaded;
  EXPECT_LT(peak_of([&] {
              loaded = load_model(*context, file);
              export_model(*context, *loaded, tokenizer(), ExportFormat::hf_llama, path("again"));
            }),
            2 * rest());
  EXPECT_FALSE(loaded->parameters().any_trainable());
  EXPECT_EQ(weight_bytes(*context_, *load_model(*context_, file)),
            weight_bytes(*context_, *model_));
  EXPECT_EQ(read_text_file(path("again") / "model.safetensors", 1 << 30),
            read_text_file(path("llama") / "model.safetensors", 1 << 30));
  loaded.reset();
  EXPECT_TRUE(fs::is_empty(path("memory")));
  EXPECT_EQ(context->backend().memory_stats().allocated_bytes, 0);
}

#endif

// The model itself comes back from its own files alone.
TEST_F(InteropTest, FilesAreComparedWithTheModelThatTheyWereWrittenFrom) {
  ModelConfig config = llama_config(1, true);
  config.dropout = 0.3;  // in no file
  const auto model = model_of(config);
  EXPECT_EQ(exported(*model, ExportFormat::hf_llama, "llama"), 0);
  const auto read_with = [&](const interop::HostModel& written) {
    const interop::Imported read = interop::read_llama(path("llama"), {.written = &written});
    if (read.host.model == written.model) return true;
    EXPECT_EQ(weight_bytes(*read.host.context, *read.host.model), weight_bytes(*context_, *model));
    return false;
  };
  EXPECT_TRUE(read_with(interop::host_model_of(*context_, *model)));
  EXPECT_EQ(interop::host_model_of(*context_, *model).model, model.get());
  EXPECT_TRUE(read_with(interop::copy_to_host(*context_, *model)));
  for (size_t i = 0; i < model->parameters().count(); ++i) {
    const interop::HostModel other = interop::copy_to_host(*context_, *model);
    const Tensor& value = other.parameters().value(static_cast<ParamId>(i));
    value.data<float>()[value.numel() - 1] += 1;
    EXPECT_FALSE(read_with(other)) << other.parameters().name(static_cast<ParamId>(i));
  }
  const auto reads_itself =
      [&](ExportFormat format, const ModelConfig& of_format,
          interop::Imported (*read)(const fs::path&, const interop::ReadTarget&)) {
        const auto made = model_of(of_format);
        exported(*made, format, enum_name(format));
        const interop::HostModel host = interop::host_model_of(*context_, *made);
        EXPECT_EQ(read(path(enum_name(format)), {.written = &host}).host.model, made.get())
            << enum_name(format);
      };
  ModelConfig gpt2 = config_of(Architecture::decoder_lm, true);
  gpt2.output_bias = false;
  reads_itself(ExportFormat::hf_gpt2, gpt2, interop::read_gpt2);
  const auto of = [](bool pre_norm) { return config_of(Architecture::encoder_decoder, pre_norm); };
  reads_itself(ExportFormat::hf_marian, of(false), interop::read_marian);
  reads_itself(ExportFormat::hf_pegasus, of(true), interop::read_pegasus);
  config.norm_epsilon *= 2;
  const auto differs = model_of(config);
  EXPECT_FALSE(read_with(interop::host_model_of(*context_, *differs)));
}

TEST_F(InteropTest, Bfloat16WeightsStaySo) {
  const auto model = model_of(llama_config(1, true));
  for (size_t i = 0; i < model->parameters().count(); ++i) {
    const Tensor& value = model->parameters().value(static_cast<ParamId>(i));
    for (int64_t k = 0; k < value.numel(); ++k)
      value.data<float>()[k] = BFloat16::from_float(value.data<float>()[k]).to_float();
  }
  const auto type_of = [&](const std::string& name, ExportWeights weights) {
    EXPECT_EQ(
        export_model(*context_, *model, tokenizer(), ExportFormat::hf_llama, path(name), weights),
        0);
    EXPECT_EQ(weight_bytes(*context_, *import_model(*context_, path(name)).model),
              weight_bytes(*context_, *model))
        << name;
    const FileJson config = FileJson::parse(read_text_file(path(name) / "config.json", 1 << 20));
    const std::string type = config["torch_dtype"];
    const auto reader = SafetensorsReader::open(path(name) / "model.safetensors");
    for (const TensorInfo& info : reader.tensors())
      EXPECT_EQ(info.dtype, type == "bfloat16" ? DType::bf16 : DType::f32) << info.name;
    return type;
  };
  EXPECT_EQ(type_of("kept", ExportWeights::by_format), "bfloat16");
  EXPECT_EQ(type_of("wide", ExportWeights::float32), "float32");
  const ParamId last = static_cast<ParamId>(model->parameters().count() - 1);
  const Tensor& changed = model->parameters().value(last);
  changed.data<float>()[changed.numel() - 1] += 1e-4F;
  EXPECT_EQ(type_of("trained", ExportWeights::by_format), "float32");
}

// A model that is computed otherwise than a host model is copied.
TEST_F(InteropTest, OtherModelsAreCopiedToTheHost) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, true));
  model->parameters().set_trainable(*context_, "embedding.*", false);
  EXPECT_EQ(interop::host_model_of(*context_, *model).model, model.get());
  add_adapter(*context_, *model, {2, 4.0, {}}, 1);
  EXPECT_NE(interop::host_model_of(*context_, *model).model, model.get());
}

}  // namespace
}  // namespace trafo
