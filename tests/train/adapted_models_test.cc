// Models with an adapter each over the weights of one base. On the CPU, and with
// TRAFO_TEST_DEVICE=cuda on a GPU.
#include <cstring>

#include "engine/decode/generator.h"
#include "engine/decode/search.h"
#include "engine/decode/translator.h"
#include "engine/formats/peft/peft.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

const char* const kOverBases[] = {"encdec post-norm", "encdec shared", "gpt2", "llama untied",
                                  "qwen3 untied"};
constexpr uint64_t kBaseSeed = 5;

// Draws the adapter's B, and the classifier that is trained with it.
void draw_adapter(Context& context, Model& model, uint64_t seed) {
  ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (!parameters.trainable(id) || parameters.name(id).ends_with(".lora_A")) continue;
    PhiloxStream random(seed, static_cast<uint64_t>(id));
    std::vector<float> values(static_cast<size_t>(element_count(parameters.shape(id))));
    for (float& value : values) value = static_cast<float>(random.uniform(-0.3, 0.3));
    parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
  }
}

// What a model with codes has as well: the parameters as they are in memory.
std::vector<std::vector<std::byte>> held_bytes(Context& context, const Model& model) {
  std::vector<std::vector<std::byte>> all;
  const ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
    if (!parameters.is_int8(id)) all.push_back(bytes_of(context, parameters.stored(id)));
  return all;
}

// A base and how it is held.
struct BaseOf {
  ModelConfig config;
  DType dtype = DType::f32;
  bool int8 = false;
  std::vector<std::string> targets = {};

  std::unique_ptr<Model> make(Context& context) const {
    if (!int8) return make_model(context, config, kBaseSeed, dtype);
    const auto floats = make_model(context, config, kBaseSeed);
    MemorySink sink;
    write_model(sink, context, *floats);
    const auto bytes = sink.take();
    return load_model(context, SafetensorsReader::from_memory(bytes, "base"), DType::f32, true);
  }
  // The directory of an adapter; each seed is another one.
  void write_adapter(Context& context, const std::filesystem::path& directory,
                     uint64_t seed) const {
    const auto tuned = make_model(context, config, kBaseSeed, dtype);
    add_adapter(context, *tuned, {3, 6, targets}, seed);
    draw_adapter(context, *tuned, seed);
    save_adapter(context, *tuned, directory);
  }
};

struct ModelOutputs {
  std::vector<std::byte> logits;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<double> scores;
};

void expect_outputs(const ModelOutputs& found, const ModelOutputs& expected) {
  EXPECT_TRUE(found.logits == expected.logits);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.scores, expected.scores);
}

ModelOutputs outputs_of(Context& context, const Model& model,
                        std::shared_ptr<const PackedWeights> packed) {
  const NoGrad no_grad(context);
  ModelOutputs outputs;
  if (model.spec().architecture == Architecture::encoder) {
    const std::vector<std::vector<int32_t>> rows = {{2, 7, 9, 3}, {2, 11, 3}};
    const Translator translator(context, model, std::nullopt, std::move(packed));
    outputs.logits = bytes_of(context, translator.classify_ids(rows).logits);
    return outputs;
  }
  const Batch batch = upload(context, copy_batches(model.spec().architecture, 1)[0], model.spec(),
                             model.parameters().dtype());
  outputs.logits = bytes_of(context, model.logits(context, batch));
  DecodeOptions options;
  options.tokens = kTokens;
  options.max_length = 8;
  options.weights = std::move(packed);
  const std::vector<std::vector<int32_t>> sources = {{5, 9, 2}, {7, 2}, {6, 8, 4, 2}};
  for (const auto& found : translate_tokens(context, model, sources, options)) {
    outputs.tokens.push_back(found[0].tokens);
    outputs.scores.push_back(found[0].score);
  }
  return outputs;
}

// The outputs of a model that has the adapter by load_adapter(), in its own memory.
ModelOutputs attached_outputs(Context& context, const BaseOf& of,
                              const std::filesystem::path& directory) {
  const auto model = of.make(context);
  load_adapter(context, *model, directory);
  return outputs_of(context, *model, pack_for_decoding(context, *model));
}

void expect_bits_of_attached_adapters(Context& context, const BaseOf& of) {
  const TemporaryDirectory directory;
  const auto one = directory.path() / "one", two = directory.path() / "two";
  of.write_adapter(context, one, 4);
  of.write_adapter(context, two, 9);
  const auto base = of.make(context);
  const auto packed = pack_for_decoding(context, *base);
  const auto held = held_bytes(context, *base);
  const ModelOutputs alone = outputs_of(context, *base, packed);
  std::optional<BaseChecksums> checksums;
  const auto first = load_adapted(context, *base, one, checksums);
  ASSERT_TRUE(checksums);
  const auto second = load_adapted(context, *base, two, checksums);
  const auto packed_first = pack_for_decoding(context, *first, packed);
  const auto packed_second = pack_for_decoding(context, *second, packed);
  const ModelOutputs of_one = attached_outputs(context, of, one),
                     of_two = attached_outputs(context, of, two);
  EXPECT_NE(of_one.logits, alone.logits);
  EXPECT_NE(of_one.logits, of_two.logits);
  for (int turn = 0; turn < 2; ++turn) {  // one after the other: none changes another one
    expect_outputs(outputs_of(context, *first, packed_first), of_one);
    expect_outputs(outputs_of(context, *second, packed_second), of_two);
    expect_outputs(outputs_of(context, *base, packed), alone);
  }
  EXPECT_EQ(held_bytes(context, *base), held);
  EXPECT_FALSE(first->parameters().any_trainable());
}

TEST(AdaptedModels, ComputeTheBitsOfAttachedAdapters) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const char* form : kOverBases) {
    SCOPED_TRACE(form);
    const ModelConfig config = form_of(form);
    expect_bits_of_attached_adapters(*context, {config});
    expect_bits_of_attached_adapters(*context, {.config = config, .int8 = true});
  }
  expect_bits_of_attached_adapters(*context,
                                   {.config = form_of("llama untied"), .targets = {"value"}});
  expect_bits_of_attached_adapters(*context, {gated_t5_of(form_of("encdec"))});
}

TEST(AdaptedModels, ShareABaseInFewBits) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  for (const BasePrecision precision :
       {BasePrecision::nf4, BasePrecision::int8, BasePrecision::int4}) {
    ModelConfig config = form_of("llama untied");
    config.base_precision = precision;
    expect_bits_of_attached_adapters(*context, {config});
  }
}

TEST(AdaptedModels, HaveClassifiersOfTheirOwn) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_config(Architecture::decoder_lm, 0);
  config.architecture = Architecture::encoder;
  config.pre_norm = false;
  config.encoder_head = EncoderHead::sequence;
  config.labels = 3;
  expect_bits_of_attached_adapters(*context, {config});
}

TEST(AdaptedModels, ComputeTheSameBitsOnAGpu) {
  const auto context = cuda_context();
  if (!context) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  ModelConfig wide = form_of("llama untied");
  wide.width = 64;  // of heads of 32: bfloat16 attention takes no narrower ones
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_bits_of_attached_adapters(*context, {wide, dtype});
  wide.base_precision = BasePrecision::nf4;
  expect_bits_of_attached_adapters(*context, {wide, DType::bf16});
}

// 100 adapters take the memory of their matrices, to the allocator's rounding.
TEST(AdaptedModels, TakeTheMemoryOfTheirMatrices) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = form_of("llama untied");
  config.width = 256;
  config.ffn_width = 512;
  const BaseOf of{config};
  const TemporaryDirectory directory;
  of.write_adapter(*context, directory.path(), 4);
  const auto base = of.make(*context);
  std::optional<BaseChecksums> checksums;
  int64_t matrices = 0, weights = 0;
  std::vector<std::unique_ptr<Model>> models;
  const int64_t before = context->backend().memory_stats().allocated_bytes;
  for (int i = 0; i < 100; ++i)
    models.push_back(load_adapted(*context, *base, directory.path(), checksums));
  const int64_t taken = context->backend().memory_stats().allocated_bytes - before;
  const ParameterStore& parameters = models[0]->parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    const int64_t bytes = 4 * element_count(parameters.shape(id));
    EXPECT_EQ(parameters.is_shared(id), parameters.group(id).name != kAdapter);
    (parameters.is_shared(id) ? weights : matrices) += bytes;
  }
  EXPECT_GT(weights, 20 * matrices);
  EXPECT_GE(taken, 100 * matrices);
  EXPECT_LE(taken, 100 * (matrices + matrices / 50 + 1024));
  models.clear();
  EXPECT_EQ(context->backend().memory_stats().allocated_bytes, before);
}

TEST(AdaptedModels, OutliveTheBaseAndGenerate) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const BaseOf of{form_of("gpt2")};
  const TemporaryDirectory directory;
  of.write_adapter(*context, directory.path(), 4);
  const auto answer = [&](const Model& model) {
    GenerationOptions options;
    options.translate.decode.max_length = 6;
    Generator generator(*context, model, std::nullopt, pack_for_decoding(*context, model), 1);
    generator.start_ids({{5, 6, 7}}, options);
    std::vector<int32_t> tokens;
    for (GenerationPiece piece = generator.next(); piece.sequence >= 0; piece = generator.next())
      tokens.push_back(piece.token);
    return tokens;
  };
  auto base = of.make(*context);
  base->set_tokens(VocabularyTokens{kTokens, {}, {}});
  std::optional<BaseChecksums> checksums;
  const auto adapted = load_adapted(*context, *base, directory.path(), checksums);
  const auto plain = answer(*base);
  base.reset();
  const auto attached = of.make(*context);
  attached->set_tokens(VocabularyTokens{kTokens, {}, {}});
  EXPECT_EQ(answer(*attached), plain);
  load_adapter(*context, *attached, directory.path());
  EXPECT_EQ(answer(*adapted), answer(*attached));
  // Its file is that of a model with the adapter.
  MemorySink from_shared, from_attached;
  write_model(from_shared, *context, *adapted);
  write_model(from_attached, *context, *attached);
  EXPECT_EQ(from_shared.take(), from_attached.take());
}

TEST(AdaptedModels, LeaveTheBaseAlone) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const BaseOf of{form_of("encdec post-norm")};
  const TemporaryDirectory directory;
  of.write_adapter(*context, directory.path(), 4);
  const auto base = of.make(*context);
  std::optional<BaseChecksums> checksums;
  {
    const auto adapted = load_adapted(*context, *base, directory.path(), checksums);
    ParameterStore& parameters = adapted->parameters();
    const std::vector<float> zeros(static_cast<size_t>(element_count(parameters.shape(0))));
    expect_error(ErrorCode::invalid_argument, "is of another model", [&] {
      parameters.set_value(*context, 0, zeros.data(), zeros.size() * sizeof(float));
    });
    for (const auto& change : {remove_adapter, merge_adapter})
      expect_error(ErrorCode::invalid_argument, "is of another model",
                   [&] { change(*context, *adapted); });
    EXPECT_EQ(adapted->adapter()->rank, 3);
    expect_error(ErrorCode::invalid_argument, "already: remove it first",
                 [&] { load_adapted(*context, *adapted, directory.path(), checksums); });
    // Nothing of the base moves while another model has it.
    expect_error(ErrorCode::invalid_argument, "in use",
                 [&] { load_adapter(*context, *base, directory.path()); });
  }
  load_adapter(*context, *base, directory.path());
}

TEST(AdaptedModels, AreOfTheirBase) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const TemporaryDirectory directory;
  BaseOf{form_of("gpt2")}.write_adapter(*context, directory.path(), 4);
  const auto refused = [&](const Model& base, ErrorCode code, const char* part) {
    std::optional<BaseChecksums> checksums;
    expect_error(code, part, [&] { load_adapted(*context, base, directory.path(), checksums); });
  };
  const auto base = make_model(*context, form_of("gpt2"), kBaseSeed);
  refused(*make_model(*context, form_of("gpt2"), kBaseSeed + 1), ErrorCode::invalid_argument,
          "adapter_model.safetensors is an adapter of another base: the weights");
  refused(*make_model(*context, form_of("gpt2", 3), kBaseSeed), ErrorCode::invalid_argument,
          "is an adapter of another base: encoder_layers is 2");
  base->parameters().set_quantize_bits(*context, 8);
  refused(*base, ErrorCode::unsupported, "quantization-aware training");
  std::filesystem::remove(directory.path() / "adapter_model.safetensors");
  refused(*make_model(*context, form_of("gpt2"), kBaseSeed), ErrorCode::not_found,
          "adapter_model.safetensors");
}

}  // namespace
}  // namespace trafo
