// Training on windows over long texts.
#include <cmath>
#include <fstream>

#include "engine/decode/scorer.h"
#include "engine/train/run/validation.h"
#include "tests/support/errors.h"
#include "tests/train/long_text_support.h"

namespace trafo {
namespace {

using namespace testing;

const ModelConfig kConfig = tiny_config(Architecture::decoder_lm);

// The loss of the windows of a text is the sum over its tokens, each predicted from the tokens
// between the start of its window and itself.
TEST(LongTextTraining, TheLossIsThatOfEachTokenInItsContext) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = make_model(*context, kConfig, 5);
  for (const int64_t stride : {5, 20, 32}) {
    TrainOptions options = window_options();
    options.window_stride = stride;
    const TrainingData data = long_text_data(options);
    const TokenizedCorpus& corpus = *data.valid;
    const int64_t length = options.max_length;
    std::vector<SentencePair> tokens;  // a pair for each token: its context, itself
    bool cut = false;
    for (int64_t text = 0; text < corpus.size(); ++text) {
      std::vector<int32_t> x(corpus.source(text).begin(), corpus.source(text).end());
      x.insert(x.end(), corpus.target(text).begin(), corpus.target(text).end());
      cut = cut || std::ssize(x) > 2 * length;
      for (int64_t token = 1; token < std::ssize(x); ++token) {
        int64_t begin = 0;
        while (token - begin > length) begin += stride;
        tokens.push_back({{x.begin() + begin, x.begin() + token}, {x[static_cast<size_t>(token)]}});
      }
    }
    ASSERT_TRUE(cut);
    double sum = 0;
    for (const PairScore& each :
         score(*context, *model, tokens, {.tokens = kTokens, .ended = false}))
      sum -= each.log_probability;
    const double mean = sum / static_cast<double>(tokens.size());
    EXPECT_NEAR(mean_cross_entropy(*context, *model, corpus, kTokens), mean, 1e-5 * mean);
  }
}

TEST(LongTextTraining, OptionsThatDoNotFitAreNamed) {
  const auto refused = [](const TrainOptions& options, const std::string& text) {
    const Error error = error_of([&] { long_text_data(options); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  TrainOptions options = window_options();
  options.window_stride = options.max_length + 1;
  refused(options, "window_stride must be at most max_length");
  options = window_options();
  options.long_lines = LongLines::drop;
  refused(options, "window_stride must be at most max_length, and is for long_lines window only");
  options = window_options();
  options.batch_tokens = options.max_length - 1;
  refused(options, "batch_tokens must be at least max_length, 32, with long_lines window");

  options = window_options();
  VocabularyTokens tokens;
  tokens.special = kTokens;
  const std::vector<std::vector<int32_t>> side{{5, 2}};
  const TextCorpus pairs = TextCorpus::of_ids(side, side);
  const auto prepare = [&](Architecture architecture) {
    prepare_data(&pairs, nullptr, PairEncoding(tokens, kVocabulary),
                 spec_of(tiny_config(architecture)), options, 1);
  };
  EXPECT_TRUE(mentions(error_of([&] { prepare(Architecture::encoder_decoder); }),
                       "long_lines is window, which is for a decoder-lm"));
  EXPECT_TRUE(mentions(error_of([&] { prepare(Architecture::decoder_lm); }),
                       "long_lines is window, which is for text without a source"));
}

TEST(LongTextTraining, TheStartSaysWhatWasCut) {
  for (const LongLines lines : {LongLines::drop, LongLines::window}) {
    TrainOptions options = window_options();
    options.long_lines = lines;
    if (lines == LongLines::drop) options.window_stride = 0;
    options.after_epochs = 1;
    const TrainingData data = long_text_data(options);
    const CorpusReport& report = data.train->report();
    std::string said;
    Process process(data, options, std::nullopt, 1, kConfig);
    const RunSummary summary = process.run->run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::started) said = event.message;
      return 0;
    });
    const bool windows = lines == LongLines::window;
    const std::string text =
        windows ? concat("training corpus: ", report.cut, " of 30 texts, over 32 tokens, cut into ",
                         report.windows, " windows")
                : concat("training corpus: ", report.dropped_long, " of 30 pairs left out");
    EXPECT_GT(windows ? report.cut : report.dropped_long, 10);
    EXPECT_NE(said.find(text), std::string::npos) << said;
    int64_t tokens = 0;
    const auto& corpus = dynamic_cast<const TokenizedCorpus&>(*data.train);
    for (int64_t i = 0; i < corpus.size(); ++i) tokens += std::ssize(corpus.target(i));
    EXPECT_EQ(summary.state.target_tokens, tokens) << "each token once";
  }
}

TEST(LongTextTraining, ARunResumesWithTheSameBits) {
  constexpr int64_t kUpdates = 60;
  TrainOptions options = window_options();
  options.maxi_batch = 5;
  const TrainingData data = long_text_data(options);
  const Reference reference = uncut(data, options, kUpdates, 1, kConfig);
  EXPECT_TRUE(uncut(data, options, kUpdates, 3, kConfig).weights == reference.weights);
  options.after_updates = kUpdates;
  for (const int64_t cut : {7, 23, 44, 59}) {
    const TemporaryDirectory directory;
    Process(data, options, directory.path(), 1, kConfig).run->run({}, nullptr, cut);
    Process process(data, options, directory.path(), 1, kConfig, 99);
    EXPECT_TRUE(process.run->resumed());
    process.run->run();
    EXPECT_TRUE(process.weights() == reference.weights) << "cut at " << cut;
    EXPECT_EQ(timeless(process.run->state()), reference.state) << "cut at " << cut;
    // Not with other windows.
    TrainOptions other = options;
    other.window_stride = 21;
    process.run.reset();
    EXPECT_TRUE(mentions(
        error_of([&] { Process(long_text_data(other), other, directory.path(), 1, kConfig); }),
        "window_stride was 20 and is 21 now"));
  }
}

// A corpus on disk is tokenised during the epoch, and its counts survive a stop.
TEST(LongTextTraining, ACorpusOnDiskTrainsTheSame) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "text").string();
  {
    PhiloxStream random(9, 7);
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 40; ++i) {
      for (uint32_t letters = 1 + random.next_u32() % 90; letters > 0; --letters)
        file << static_cast<char>('a' + random.next_u32() % 5);
      file << '\n';
    }
  }
  TokenizerTrainOptions bytes;
  bytes.kind = "byte";
  bytes.vocab_size = 259;
  const std::vector<std::string> lines{"a"};
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(lines), bytes);
  ModelConfig config = kConfig;
  config.vocabulary = tokenizer.vocab_size();
  TrainOptions options = window_options();
  options.after_epochs = 2;
  options.maxi_batch = 6;
  const auto data_of = [&](const TextCorpus& text) {
    return prepare_data(&text, &text, tokenizer, spec_of(config), options, 2);
  };
  const TrainingData memory = data_of(load_monolingual(path));
  const TrainingData disk =
      data_of(load_monolingual(path, {.memory_bytes = 0, .unpack_directory = {}}));
  const CorpusReport& report = memory.train->report();
  EXPECT_GT(report.cut, 20);
  EXPECT_EQ(disk.train->report().cut, 0) << "it is not known before they are read";
  Process expected(memory, options, std::nullopt, 1, config);
  expected.run->run();
  const TemporaryDirectory directory;
  std::vector<std::string> epochs;
  const TrainCallback callback = [&](const TrainEvent& event) {
    if (event.kind == TrainEventKind::epoch) epochs.push_back(event.message);
    return 0;
  };
  for (bool done = false; !done;) {
    Process process(disk, options, directory.path(), 1, config);
    done = process.run->run(callback, nullptr, 7).reason == StopReason::limit;
    process.run->save();
    if (done) {
      EXPECT_TRUE(process.weights() == expected.weights());
    }
  }
  ASSERT_EQ(epochs.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(epochs[i],
              concat("epoch ", i + 1, ": ", report.cut, " of 40 texts, over 32 tokens, cut into ",
                     report.windows, " windows"));
}

}  // namespace
}  // namespace trafo
