// Encoders: labels of texts, labels of words and masked tokens are learned, and data that does not
// fit is refused.
#include "engine/models/encoder_head.h"
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "engine/train/run/training_data.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kWordLines =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\nsun\n##ny\nsea\nis\na\n";
const std::vector<std::string> kColours = {"cold", "warm"};

Tokenizer encoder_pieces() {
  return load_vocab_txt(kWordLines, "vocab.txt",
                        {{"tokenizer_config.json",
                          R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})"}});
}

ModelConfig encoder_config(EncoderHead head, int64_t labels, bool modern) {
  ModelConfig config = tiny_config(Architecture::decoder_lm, 0);
  config.architecture = Architecture::encoder;
  config.vocabulary = encoder_pieces().vocab_size();
  config.encoder_head = head;
  config.labels = labels;
  if (modern) {
    config.decoder_layers = 2;
    config = modernbert_of(config, head, 2);
    config.labels = labels;
    config.classifier_pooling = Pooling::mean;
    return config;
  }
  config.pre_norm = false;
  config.token_types = 2;
  return config;
}

// A model that knows names and frame as an import leaves them.
std::unique_ptr<Model> encoder_of(Context& context, EncoderHead head,
                                  const std::vector<std::string>& labels, bool modern = false) {
  auto model = make_model(context, encoder_config(head, std::ssize(labels), modern), 5);
  if (!labels.empty()) model->set_labels(labels);
  VocabularyTokens tokens = encoder_pieces().tokens();
  tokens.frame = {.begin = true, .end = true};
  model->set_tokens(tokens);
  return model;
}

TrainOptions encoder_options(ObjectiveKind objective) {
  TrainOptions options = quick_options();
  options.objective = objective;
  options.batch_tokens = 256;
  options.valid_metrics = objective == ObjectiveKind::classification
                              ? std::vector<std::string>{"accuracy", "ce-mean-words"}
                              : std::vector<std::string>{"ce-mean-words"};
  return options;
}

// Texts of two to six words. Each word is warm (red, sun, sunny) or cold.
ParallelCorpus coloured_texts(int count, bool of_words) {
  PhiloxStream random(3, 1);
  constexpr std::pair<const char*, int> kWords[] = {{"red", 1}, {"green", 0}, {"blue", 0},
                                                    {"sun", 1}, {"sunny", 1}, {"sea", 0}};
  std::vector<std::string> texts, labels;
  for (int i = 0; i < count; ++i) {
    std::string text, of_text;
    int first = -1;
    for (uint32_t k = 2 + random.next_u32() % 5; k > 0; --k) {
      const auto& [word, warm] = kWords[random.next_u32() % std::size(kWords)];
      text += concat(text.empty() ? "" : " ", word);
      of_text += concat(of_text.empty() ? "" : " ", kColours[static_cast<size_t>(warm)]);
      if (first < 0) first = warm;
    }
    texts.push_back(text);
    labels.push_back(of_words ? of_text : kColours[static_cast<size_t>(first)]);
  }
  return make_parallel(texts, labels);
}

// Trains on `train`, measures on `valid` at the end.
std::map<std::string, double> metrics_after(EncoderHead head, ObjectiveKind objective,
                                            const TextCorpus& train, const TextCorpus& valid,
                                            int64_t updates, bool modern = false) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const bool labelled = objective == ObjectiveKind::classification;
  const auto model =
      encoder_of(*context, head, labelled ? kColours : std::vector<std::string>{}, modern);
  TrainOptions options = encoder_options(objective);
  options.after_updates = updates;
  options.valid_freq = {updates, PeriodUnit::updates};
  const TrainingData data =
      prepare_data(&train, &valid, training_encoding(*model, encoder_pieces(), options),
                   model->spec(), options, 1);
  TrainingRun run(*context, *model, data, options, std::nullopt);
  std::map<std::string, double> metrics;
  run.run([&](const TrainEvent& event) {
    for (const MetricValue& metric : event.metrics) metrics[metric.name] = metric.value;
    return 0;
  });
  return metrics;
}

TEST(EncoderTraining, LabelsOfTextsAreLearned) {
  const auto found = metrics_after(EncoderHead::sequence, ObjectiveKind::classification,
                                   TextCorpus(coloured_texts(200, false)),
                                   TextCorpus(coloured_texts(40, false)), 200);
  EXPECT_EQ(found.at("accuracy"), 1);
  EXPECT_LT(found.at("ce-mean-words"), 0.1);
}

TEST(EncoderTraining, ModernBertLearnsLabelsOfTextsAndOfWords) {
  for (const bool of_words : {false, true}) {
    const auto found =
        metrics_after(of_words ? EncoderHead::token : EncoderHead::sequence,
                      ObjectiveKind::classification, TextCorpus(coloured_texts(200, of_words)),
                      TextCorpus(coloured_texts(40, of_words)), 200, true);
    EXPECT_EQ(found.at("accuracy"), 1) << of_words;
  }
}

TEST(EncoderTraining, LabelsOfWordsAreLearned) {
  const auto found = metrics_after(EncoderHead::token, ObjectiveKind::classification,
                                   TextCorpus(coloured_texts(200, true)),
                                   TextCorpus(coloured_texts(40, true)), 150);
  EXPECT_EQ(found.at("accuracy"), 1);
}

TEST(EncoderTraining, MaskedTokensAreLearned) {
  // Every second word follows from the one before.
  const auto texts = [](int count) {
    PhiloxStream random(5, 2);
    ParallelCorpus corpus;
    corpus.form = CorpusForm::monolingual;
    for (int i = 0; i < count; ++i) {
      std::string text;
      for (int k = 0; k < 3; ++k)
        text += concat(k > 0 ? " " : "", random.next_u32() % 2 == 0 ? "red sun" : "blue sea");
      corpus.source.emplace_back();
      corpus.target.push_back(text);
      corpus.line.push_back(i + 1);
    }
    corpus.report.lines = corpus.report.pairs = count;
    return TextCorpus(std::move(corpus));
  };
  const auto found =
      metrics_after(EncoderHead::masked_lm, ObjectiveKind::masked_lm, texts(200), texts(60), 400);
  EXPECT_LT(found.at("ce-mean-words"), 0.7);  // log(13) is 2.6, a coin between four words 1.4
}

TEST(EncoderTraining, WordsInSeveralTokensHaveOneLabel) {
  VocabularyTokens tokens = encoder_pieces().tokens();
  tokens.frame = {.begin = true, .end = true};
  const LabelledText text =
      encode_labelled(encoder_pieces(), tokens, {kColours, true}, "Sunny  sea", "warm\tcold");
  EXPECT_EQ(text.source, (std::vector<int32_t>{2, 8, 9, 10, 3}));
  EXPECT_EQ(text.learned, (std::vector<uint8_t>{0, 1, 0, 1, 0}));
  EXPECT_EQ(text.target[1], 1);
  EXPECT_EQ(text.target[3], 0);
  EXPECT_EQ(encode_labelled(encoder_pieces(), tokens, {kColours, false}, "sea", " warm ").target,
            (std::vector<int32_t>{1}));
}

TEST(EncoderTraining, OtherDataIsRefused) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto refused = [&](EncoderHead head, const ParallelCorpus& corpus, const char* text,
                           ObjectiveKind objective = ObjectiveKind::classification) {
    expect_error(ErrorCode::invalid_argument, text, [&] {
      const auto model = encoder_of(
          *context, head, head == EncoderHead::masked_lm ? std::vector<std::string>{} : kColours);
      const TrainOptions options = encoder_options(objective);
      const TrainingData data =
          prepare_data(corpus, nullptr, training_encoding(*model, encoder_pieces(), options),
                       model->spec(), options, 1);
      TrainingRun(*context, *model, data, options, std::nullopt);
    });
  };
  refused(EncoderHead::sequence, make_parallel({"red", "sea"}, {"warm", "wet"}),
          "line 2: the label 'wet' is not one of the model's, cold, warm");
  refused(EncoderHead::token, make_parallel({"red sea"}, {"warm"}),
          "line 1: the text has 2 words and 1 labels");
  refused(EncoderHead::masked_lm, make_parallel({"red"}, {"warm"}), "learns from plain text",
          ObjectiveKind::masked_lm);
  refused(EncoderHead::sequence, make_parallel({"red"}, {"warm"}), "no encoder with the head",
          ObjectiveKind::masked_lm);
  refused(EncoderHead::sequence, make_parallel({"red"}, {"warm"}), "classification or masked-lm",
          ObjectiveKind::cross_entropy);
}

TEST(EncoderHeads, AnotherHeadKeepsTheOtherWeights) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = encoder_of(*context, EncoderHead::masked_lm, {});
  const auto labelled = with_head(*context, *model, EncoderHead::sequence, kColours, 3);
  EXPECT_EQ(labelled->labels(), kColours);
  EXPECT_EQ(labelled->tokens(), model->tokens());
  const ParameterStore &from = model->parameters(), &to = labelled->parameters();
  const auto values = [&](const ParameterStore& store, const char* name) {
    return context->values<float>(store.value(store.find(name)));
  };
  for (const char* name : {"embedding.weight", "token_types.weight", "encoder.0.ffn.down.weight"})
    EXPECT_EQ(values(to, name), values(from, name)) << name;
  EXPECT_EQ(to.find("head.weight"), kNoParam);
  EXPECT_EQ(to.shape(to.find("output.weight")), (Shape{2, model->spec().width()}));
  const auto back = with_head(*context, *labelled, EncoderHead::none, {}, 3);
  EXPECT_FALSE(back->has_output());
  EXPECT_EQ(values(back->parameters(), "pooler.weight"), values(to, "pooler.weight"));
  expect_error(ErrorCode::invalid_argument, "twice", [&] {
    with_head(*context, *model, EncoderHead::token, {"a", "a"}, 1);
  });
  expect_error(ErrorCode::invalid_argument, "labels",
               [&] { with_head(*context, *model, EncoderHead::token, {}, 1); });
  const auto decoder = make_model(*context, tiny_config(), 1);
  expect_error(ErrorCode::invalid_argument, "no encoder",
               [&] { with_head(*context, *decoder, EncoderHead::none, {}, 1); });
}

TEST(EncoderHeads, LabelsComeWithPretrainedWeights) {
  const TemporaryDirectory folder;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = encoder_of(*context, EncoderHead::sequence, kColours);
  save_model(folder / "model.safetensors", *context, *model);
  const auto fresh = make_model(*context, model->config(), 9);
  EXPECT_EQ(fresh->labels(), (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  load_pretrained(*context, SafetensorsReader::open(folder / "model.safetensors"), *fresh);
  EXPECT_EQ(fresh->labels(), kColours);
}

}  // namespace
}  // namespace trafo
