// The end of a run and the beginning of the next: the mean of checkpoints, which metrics stop a
// run, weights to train on from.
#include <cmath>

#include "engine/models/model_io.h"
#include "engine/train/checkpoint/average.h"
#include "engine/train/checkpoint/run_directory.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class AverageTest : public ::testing::Test {
 protected:
  // A model file of these random weights.
  fs::path save(const std::string& name, const ModelConfig& config, uint64_t seed,
                DType dtype = DType::f32, const SafetensorsMetadata& metadata = {}) {
    const auto model = make_model(*context_, config, seed, dtype);
    save_model(directory_ / name, *context_, *model, metadata);
    return directory_ / name;
  }
  std::vector<float> weights(const fs::path& file) {
    const auto model = load_model(*context_, file);
    return context_->values<float>(model->parameters().flat().detach());
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  TemporaryDirectory directory_;
};

TEST_F(AverageTest, IsTheMeanInFloat64) {
  const ModelConfig config = tiny_config();
  const std::vector<fs::path> files = {save("a", config, 1), save("b", config, 2),
                                       save("c", config, 3)};
  average_models(files, directory_ / "mean");
  const auto a = weights(files[0]), b = weights(files[1]), c = weights(files[2]);
  const auto mean = weights(directory_ / "mean");
  for (size_t i = 0; i < mean.size(); ++i)
    ASSERT_EQ(mean[i], static_cast<float>((double{a[i]} + double{b[i]} + double{c[i]}) / 3)) << i;
  EXPECT_NE(mean, a);
  // The mean of one is it, and a file may stand there more than once.
  average_models({files.data(), 1}, directory_ / "one");
  EXPECT_EQ(weights(directory_ / "one"), a);
  const std::vector<fs::path> twice = {files[0], files[0]};
  average_models(twice, files[0]);  // onto its own
  EXPECT_EQ(weights(files[0]), a);
}

TEST_F(AverageTest, UnlikeModelsAreRefusedByName) {
  const ModelConfig config = tiny_config();
  const fs::path good = save("good", config, 1, DType::f32, {{kTokenizerKey, "01234567"}});
  const auto refused = [&](const fs::path& other, const std::string& text,
                           ErrorCode code = ErrorCode::invalid_argument) {
    const std::vector<fs::path> files = {good, other};
    const Error error = error_of([&] { average_models(files, directory_ / "mean"); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_FALSE(fs::exists(directory_ / "mean"));
  };
  ModelConfig other = config;
  other.decoder_layers = 2;
  refused(save("deep", other, 1), "decoder.cross_kv.bias is [64], not [32]");
  other = tiny_config(Architecture::decoder_lm);
  refused(save("lm", other, 1), "it lacks the tensor decoder.0.cross.");
  other = config;
  other.vocabulary = 30;
  refused(save("words", other, 1), " is [30, 16], not [24, 16]");
  other = config;
  other.heads = 4;
  refused(save("heads", other, 1), "heads is 4");
  refused(save("wide", config, 1, DType::f64), "is float64, not float32");
  refused(save("foreign", config, 1, DType::f32, {{kTokenizerKey, "76543210"}}),
          "another vocabulary");
  other = config;
  other.tied_embeddings = !config.tied_embeddings;
  refused(save("untied", other, 1), config.tied_embeddings ? "besides" : "it lacks the tensor");
  refused(directory_ / "nowhere", "nowhere", ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { average_models({}, directory_ / "mean"); }).code(),
            ErrorCode::invalid_argument);
}

TEST_F(AverageTest, ARunEndsWithTheMeanOfItsNewestCheckpoints) {
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.after_updates = 20;
  options.save_freq = {5, PeriodUnit::updates};
  options.valid_freq = {100, PeriodUnit::updates};
  options.keep_last = 1;  // more are kept, for the mean
  const Reference reference = uncut(data, options, 20);
  options.average_last = 3;
  const fs::path run = directory_ / "run";
  Process process(data, options, run);
  TrainEvent averaged;
  std::vector<TrainEventKind> kinds;
  const TrainCallback callback = [&](const TrainEvent& event) {
    kinds.push_back(event.kind);
    if (event.kind == TrainEventKind::averaged) averaged = event;
    return 0;
  };
  EXPECT_EQ(process.run->run(callback).reason, StopReason::limit);
  const std::vector<TrainEventKind> end = {TrainEventKind::validating, TrainEventKind::averaged,
                                           TrainEventKind::finished};
  ASSERT_GE(kinds.size(), end.size());
  EXPECT_TRUE(std::equal(end.begin(), end.end(), kinds.end() - 3));
  EXPECT_EQ(averaged.message, "10, 15, 20");
  EXPECT_EQ(averaged.path, (run / "ckpt/averaged" / kModelFile).string());
  const std::vector<fs::path> files = {run / "ckpt/10" / kModelFile, run / "ckpt/15" / kModelFile,
                                       run / "ckpt/20" / kModelFile};
  average_models(files, directory_ / "mean");
  EXPECT_EQ(slurp(averaged.path), slurp(directory_ / "mean"));
  ASSERT_EQ(averaged.metrics.size(), 1u);
  const auto mean = load_model(*context_, averaged.path);
  EXPECT_EQ(averaged.metrics[0].value,
            mean_cross_entropy(*context_, *mean, *data.valid, data.tokens));
  // The run itself is as without.
  EXPECT_TRUE(process.weights() == reference.weights);
  EXPECT_EQ(timeless(process.run->state()), reference.state);

  // Done again for nothing new it says so no more, and a higher limit goes on and averages anew.
  kinds.clear();
  process.run->run(callback);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), TrainEventKind::averaged), 0);
  process.run.reset();
  options.after_updates = 25;
  Process longer(data, options, run);
  longer.run->run(callback);
  EXPECT_EQ(averaged.message, "15, 20, 25");
  longer.run.reset();
  EXPECT_EQ(RunDirectory(run).average(2).updates, (std::vector<int64_t>{20, 25}));
}

TEST_F(AverageTest, AMeanNeedsARunDirectory) {
  TrainOptions options = quick_options();
  options.average_last = 2;
  const Error error = error_of([&] { Process(copy_data(), options); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "average_last needs a run directory")) << error.what();
}

// --- which metrics stop a run ---

// BLEU stays at 0 for the first updates, while the cross-entropy falls at each.
TEST_F(AverageTest, TheMetricsThatStopARunAreChosen) {
  std::vector<std::string> text;
  const char* words[] = {"ein", "hund", "katze", "haus", "sieht", "rot", "und", "baum"};
  PhiloxStream random(3, 1);
  for (int i = 0; i < 40; ++i) {
    text.emplace_back();
    for (uint32_t j = 0; j < 3 + random.next_u32() % 4; ++j)
      text.back().append(words[random.next_u32() % 8]).append(" ");
  }
  const ParallelCorpus train = make_parallel(text, text);
  const ParallelCorpus valid =
      make_parallel({text.begin(), text.begin() + 5}, {text.begin(), text.begin() + 5});
  TokenizerTrainOptions vocabulary;
  vocabulary.vocab_size = 60;
  vocabulary.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(text, vocabulary);
  ModelConfig config = tiny_config(Architecture::encoder_decoder, 0);
  config.vocabulary = tokenizer.vocab_size();
  config.max_positions = 64;
  TrainOptions options = quick_options();
  options.learning_rate = 1e-4;
  options.warmup = 1;
  options.early_stopping = 3;
  options.after_updates = 12;
  options.valid_freq = {1, PeriodUnit::updates};
  struct Case {
    std::vector<std::string> metrics;
    StoppingMetrics on;
    bool stops;
  };
  const Case cases[] = {{{"bleu", "ce-mean-words"}, StoppingMetrics::first, true},
                        {{"ce-mean-words", "bleu"}, StoppingMetrics::first, false},
                        {{"ce-mean-words", "bleu"}, StoppingMetrics::any, true},
                        {{"bleu", "ce-mean-words"}, StoppingMetrics::all, false}};
  for (const Case& each : cases) {
    options.valid_metrics = each.metrics;
    options.early_stopping_on = each.on;
    const TrainingData data = prepare_data(train, &valid, tokenizer, spec_of(config), options, 1);
    Process uncut(data, options, std::nullopt, 1, config);
    const StopReason reason = uncut.run->run().reason;
    EXPECT_EQ(reason, each.stops ? StopReason::early_stopping : StopReason::limit);
    EXPECT_EQ(uncut.run->state().trainer.update, each.stops ? 4 : 12);
    // The counts are in the checkpoints.
    const TemporaryDirectory directory;
    StopReason last = StopReason::none;
    for (int i = 0; i < 30 && last != reason; ++i) {
      Process process(data, options, directory.path(), 1, config, i == 0 ? 5 : 99);
      last = process.run->run({}, nullptr, 1).reason;
      process.run->save();
      if (last != reason) continue;
      EXPECT_EQ(process.weights(), uncut.weights());
      EXPECT_EQ(timeless(process.run->state()), timeless(uncut.run->state()));
    }
    EXPECT_EQ(last, reason);
  }
}

TEST_F(AverageTest, StatesHaveTheCountOfEveryMetric) {
  RunState state;
  state.best = {{"bleu", BestMetric{1, 2}}, {"chrf", std::nullopt}};
  state.stalled = 3;
  state.stalled_by_metric = {{"bleu", 3}, {"chrf", 1}};
  RunIdentity identity;
  identity.options = "{}";
  std::string text = encode_state(state, identity);
  EXPECT_EQ(decode_state(text, "a state").state.stalled_by_metric, state.stalled_by_metric);
  const size_t begin = text.find("  \"stalled_by_metric\""), end = text.find("},", begin);
  ASSERT_NE(begin, std::string::npos);
  text.erase(begin, end + 3 - begin);
  expect_error(ErrorCode::corrupt_file, "there is no stalled_by_metric",
               [&] { decode_state(text, "a state"); });
}

// --- weights to train on from ---

TEST_F(AverageTest, PretrainedWeightsAreTakenByName) {
  const ModelConfig config = tiny_config();
  const fs::path file = save("pretrained", config, 3);
  ModelConfig mine = config;
  mine.dropout = 0.05;
  mine.max_positions = 50;
  const auto model = make_model(*context_, mine, 4);
  load_pretrained(*context_, SafetensorsReader::open(file), *model);
  EXPECT_EQ(context_->values<float>(model->parameters().flat().detach()), weights(file));

  const auto refused = [&](const ModelConfig& wanted, const std::string& text) {
    const auto other = make_model(*context_, wanted, 4);
    const auto before = weight_bytes(*context_, *other);
    const Error error =
        error_of([&] { load_pretrained(*context_, SafetensorsReader::open(file), *other); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_EQ(weight_bytes(*context_, *other), before);
  };
  ModelConfig other = config;
  other.vocabulary = 30;
  refused(other, "vocabulary is 24 in the checkpoint, 30 here");
  refused(other, " is [24, 16], the model's [30, 16]");
  other = config;
  other.decoder_layers = 2;
  refused(other, "it lacks the tensor decoder.1.");
  other = config;
  other.heads = 4;  // no tensor tells
  refused(other, "heads is 2 in the checkpoint, 4 here");
  other = config;
  other.pre_norm = false;
  refused(other, "pre_norm is true");
  // Positions that are learned are tensors.
  const ModelConfig lm = tiny_config(Architecture::decoder_lm);
  const fs::path positions = save("lm", lm, 3);
  other = lm;
  other.max_positions = 40;
  const auto longer = make_model(*context_, other, 4);
  EXPECT_TRUE(mentions(
      error_of([&] { load_pretrained(*context_, SafetensorsReader::open(positions), *longer); }),
      " is [32, 16], the model's [40, 16]"));
}

}  // namespace
}  // namespace trafo
