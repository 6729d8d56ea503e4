// Models whose sources have their own vocabulary: the matrices, gradients, and the ids of each
// side.
#include <map>

#include "engine/decode/translator.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo::testing {
namespace {

constexpr int64_t kTargetIds = 13;
constexpr int32_t kSourceIdsInFront = 7;  // ids that sources have in front of those of targets

ModelConfig separate_config(bool pre_norm = false, bool tied = true) {
  ModelConfig config = decode_config(Architecture::encoder_decoder, kTargetIds);
  config.pre_norm = pre_norm;
  config.tied_embeddings = tied;
  config.source_vocabulary = kTargetIds + kSourceIdsInFront;
  return config;
}

std::vector<SentencePair> shifted_pairs(int32_t more) {
  const auto sources = random_sentences(6, 9, kTargetIds, 3),
             targets = random_sentences(6, 9, kTargetIds, 4);
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < sources.size(); ++i) {
    pairs.push_back({sources[i], targets[i]});
    for (int32_t& id : pairs.back().source) id += more;
  }
  return pairs;
}

using NamedGradients = std::map<std::string, std::vector<double>>;

NamedGradients named_gradients(Context& context, Model& model, int32_t more) {
  const std::vector<SentencePair> pairs = shifted_pairs(more);
  std::vector<const SentencePair*> members;
  for (const SentencePair& pair : pairs) members.push_back(&pair);
  const Batch batch = pack_pairs(context, model.spec(), {}, members);
  const ObjectiveOutput output = LabelSmoothedCrossEntropy(0.1).loss(context, model, batch, {});
  context.backward(output.loss);
  model.parameters().complete_grads(context);
  NamedGradients result{{"loss", to_doubles(context, output.loss)}};
  for (ParamId id = 0; id < static_cast<ParamId>(model.parameters().count()); ++id)
    result[model.parameters().name(id)] = context.values<double>(model.parameters().grad(id));
  return result;
}

// A model with one matrix, and the same with its rows in two: the gradient of the one is the sum of
// those of the two.
TEST(SourceVocabulary, GradientsAreThoseOfASharedMatrixOnEachSide) {
  const auto context = cpu_context();
  for (const bool pre_norm : {false, true}) {
    ModelConfig config = separate_config(pre_norm);
    config.source_vocabulary = 0;
    const auto shared = random_model(*context, config, 5);
    const auto separate = random_model(*context, separate_config(pre_norm), 6);
    const ParameterStore& from = shared->parameters();
    std::vector<double> rows(static_cast<size_t>(kSourceIdsInFront * config.width), 99);
    for (ParamId id = 0; id < static_cast<ParamId>(from.count()); ++id) {
      const std::vector<double> values = context->values<double>(from.value(id));
      set_values(*context, *separate, separate->parameters().find(from.name(id)), values);
      if (from.name(id) == "embedding.weight")
        rows.insert(rows.end(), values.begin(), values.end());
    }
    set_values(*context, *separate, separate->parameters().find("source_embedding.weight"), rows);

    NamedGradients expected = named_gradients(*context, *shared, 0),
                   found = named_gradients(*context, *separate, kSourceIdsInFront);
    const std::vector<double> of_sources = found.extract("source_embedding.weight").mapped();
    std::vector<double>& of_targets = found.at("embedding.weight");
    const auto skipped = static_cast<size_t>(kSourceIdsInFront * config.width);
    for (size_t i = 0; i < skipped; ++i) ASSERT_EQ(of_sources[i], 0) << i;
    ASSERT_EQ(of_sources.size(), of_targets.size() + skipped);
    double most = 0;
    for (size_t i = 0; i < of_targets.size(); ++i) {
      most = std::max(most, std::abs(of_sources[skipped + i]));
      of_targets[i] += of_sources[skipped + i];
    }
    EXPECT_GT(most, 1e-3);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(found.at(name)[i], values[i], 1e-10) << name << " " << i;
  }
}

TEST(SourceVocabulary, EachSideHasItsRows) {
  const auto context = cpu_context();
  for (const bool tied : {true, false}) {
    const auto model = make_model(*context, separate_config(true, tied), 5);
    const ParameterStore& parameters = model->parameters();
    EXPECT_EQ(parameters.shape(parameters.find("source_embedding.weight"))[0],
              kTargetIds + kSourceIdsInFront);
    EXPECT_EQ(parameters.shape(parameters.find("embedding.weight"))[0], kTargetIds);
    EXPECT_EQ(parameters.shape(parameters.find("output.bias"))[0], kTargetIds);
    EXPECT_EQ(parameters.find("output.weight") == kNoParam, tied);
    const TemporaryDirectory directory;
    save_model(directory / "model", *context, *model);
    const auto loaded = load_model(*context, directory / "model");
    EXPECT_EQ(loaded->config(), model->config());
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id)
      EXPECT_EQ(context->values<float>(loaded->parameters().value(id)),
                context->values<float>(parameters.value(id)));
  }
  EXPECT_NE(to_json(separate_config()).find("\"source_vocabulary\": 20"), std::string::npos);
  // A file of a model without it is as it was.
  EXPECT_EQ(to_json(ModelConfig{}).find("source_vocabulary"), std::string::npos);
}

TEST(SourceVocabulary, OtherModelsDoNotHaveIt) {
  const auto refused = [](auto change) {
    ModelConfig config = separate_config(true);
    change(config);
    expect_error(ErrorCode::invalid_argument, "source_vocabulary", [&] { validate(config); });
  };
  refused([](ModelConfig& c) { c.architecture = Architecture::decoder_lm; });
  refused([](ModelConfig& c) { c.learned_positions = true; });
  refused([](ModelConfig& c) { c.fairseq_positions = true; });
  refused([](ModelConfig& c) { c.relative_buckets = 8; });
  refused([](ModelConfig& c) { c.source_vocabulary = -1; });
}

TEST(SourceVocabulary, IdsAreCheckedOnTheirSide) {
  const auto context = cpu_context();
  const auto model = random_model(*context, separate_config(), 5, DType::f32);
  ScoreOptions options;
  options.tokens.eos = kEos;
  const int32_t last = kTargetIds + kSourceIdsInFront - 1;
  EXPECT_EQ(
      score(*context, *model, std::vector<SentencePair>{{{last, kEos}, {4, kEos}}}, options).size(),
      1u);
  const auto refused = [&](const SentencePair& pair, const std::string& text) {
    expect_error(ErrorCode::invalid_argument, text,
                 [&] { score(*context, *model, std::vector<SentencePair>{pair}, options); });
  };
  refused({{last + 1, kEos}, {4, kEos}},
          "the source of pair 1 has token 20, the vocabulary has 0 to 19");
  refused({{4, kEos}, {static_cast<int32_t>(kTargetIds), kEos}},
          "the target of pair 1 has token 13, the vocabulary has 0 to 12");

  const auto translate = [&](int32_t source, std::vector<int32_t> prefix) {
    DecodeOptions decode;
    decode.tokens.eos = kEos;
    decode.beam = 3;
    const std::vector<std::vector<int32_t>> sources{{source, kEos}}, prefixes{std::move(prefix)};
    decode.prefixes = prefixes;
    return translate_tokens(*context, *model, sources, decode);
  };
  const auto translations = translate(last, {});
  ASSERT_FALSE(translations.at(0).empty());
  for (const Hypothesis& hypothesis : translations.at(0))
    for (const int32_t id : hypothesis.tokens) EXPECT_LT(id, kTargetIds);
  expect_error(ErrorCode::invalid_argument, "has token 20, the vocabulary has 0 to 19",
               [&] { translate(last + 1, {}); });
  expect_error(ErrorCode::invalid_argument, "has token 13, the vocabulary has 0 to 12",
               [&] { translate(last, {static_cast<int32_t>(kTargetIds)}); });

  const Translator translator(*context, *model, std::nullopt);
  model->set_tokens(VocabularyTokens{{.bos = 1, .eos = kEos, .pad = -1, .unk = 0}, {}});
  const LexicalTable table = LexicalTable::learn(std::vector<std::vector<int32_t>>{{4}},
                                                 std::vector<std::vector<int32_t>>{{4}}, 8, 1);
  TranslateOptions shortlisted;
  shortlisted.shortlist.table = &table;
  expect_error(ErrorCode::unsupported, "a shortlist is for one vocabulary", [&] {
    translator.translate_ids({{4, kEos}}, shortlisted);
  });
  expect_error(ErrorCode::invalid_argument, "eos is 12, sources have 0 to 10", [&] {
    ModelConfig config = separate_config();
    config.source_vocabulary = 11;
    const auto smaller = make_model(*context, config, 1);
    smaller->set_tokens(VocabularyTokens{{.bos = 1, .eos = 12, .pad = -1, .unk = 0}, {}});
  });
}

}  // namespace
}  // namespace trafo::testing
