// Preference pairs: files and columns, tokens, and batches that keep both answers together.
#include <filesystem>
#include <set>

#include "engine/data/batch_packer.h"
#include "engine/data/batcher.h"
#include "engine/data/text_pairs.h"
#include "engine/data/train_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <fstream>

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr int32_t kAnswerEnd = 2;

class Preferences : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // In memory, and left on disk.
  static std::vector<TextCorpus> both_ways(const std::vector<std::string>& paths) {
    LoadOptions disk;
    disk.memory_bytes = 0;
    return {load_preferences(paths), load_preferences(paths, disk)};
  }
  void refused(const std::vector<std::string>& paths, const std::string& text) const {
    LoadOptions disk;
    disk.memory_bytes = 0;
    expect_error(ErrorCode::invalid_argument, text, [&] { load_preferences(paths); });
    expect_error(ErrorCode::invalid_argument, text, [&] { load_preferences(paths, disk); });
  }

  TemporaryDirectory folder_;
};

TEST_F(Preferences, FilesAndColumnsAreTheSamePairs) {
  const std::vector<std::string> files = {write("p", "eins\nzwei\n\ndrei\nvier"),
                                          write("c", "one\ntwo\nx\nthree\n \n"),
                                          write("r", "1\n2\ny\n\nfour\n")};
  const std::string tsv =
      write("t.tsv", "eins\tone\t1\nzwei\ttwo\t2\n\tx\ty\ndrei\tthree\t\nvier\t \tfour\n");
  std::set<uint64_t> fingerprints;
  for (const auto& paths : {files, std::vector<std::string>{tsv}})
    for (const TextCorpus& corpus : both_ways(paths)) {
      EXPECT_EQ(corpus.form(), CorpusForm::preferences);
      ASSERT_EQ(corpus.size(), 2);  // a pair with a blank text is dropped
      EXPECT_EQ(corpus.report().lines, 5);
      EXPECT_EQ(corpus.report().dropped_empty, 3);
      PairBuffers buffers;
      const PairView pair = corpus.view(1, buffers);
      EXPECT_EQ(pair.source, "zwei");
      EXPECT_EQ(pair.target, "two");
      EXPECT_EQ(pair.rejected, "2");
      fingerprints.insert(corpus.fingerprint());
    }
  EXPECT_EQ(fingerprints.size(), 1u);
  EXPECT_NE(load_preferences(std::vector<std::string>{files[0], files[2], files[1]}).fingerprint(),
            *fingerprints.begin());
  EXPECT_EQ(
      TextCorpus(make_preferences({"eins", "zwei", "", "drei", "vier"},
                                  {"one", "two", "x", "three", " "}, {"1", "2", "y", "", "four"}))
          .fingerprint(),
      *fingerprints.begin());
}

TEST_F(Preferences, MistakesAreNamed) {
  const std::string two = write("two", "a\nb\n"), one = write("one", "a\n"),
                    blank = write("b", "\n\n");
  refused({two, two, one}, "the three sides differ in length: ");
  refused({two, two, one}, "two has 2 lines, " + (folder_ / "one").string() + " has 1");
  refused({two, one, two}, "one has 1");
  refused({two, two}, "2 paths: preferences are three files");
  refused({two, "-", "-"}, "standard input cannot be several sides");
  refused({two, two, blank}, "no usable sentence pair");
  refused({write("less.tsv", "a\tb\tc\na\tb\n")},
          "less.tsv:2: 1 tabs, a line must have exactly two");
  refused({write("more.tsv", "a\tb\tc\td\n")}, "more.tsv:1: 3 tabs");
  expect_error(ErrorCode::invalid_argument,
               "the three sides differ in length: 2 prompts, 1 rejected answers", [] {
                 make_preferences({"a", "b"}, {"a", "b"}, {"a"});
               });
  expect_error(ErrorCode::invalid_argument, "rejected answer 2", [] {
    make_preferences({"a", "b"}, {"a", "b"}, {"a", "\xff"});
  });
  const TextCorpus preferences = make_preferences({"a"}, {"b"}, {"c"});
  const TextCorpus parallel = make_parallel({"a"}, {"b"});
  expect_error(ErrorCode::invalid_argument, "cannot be mixed", [&] {
    TextCorpus::mix({{preferences, 1}, {parallel, 1}});
  });
}

TEST_F(Preferences, PairsThatAreHeldOutKeepTheirAnswers) {
  std::vector<std::string> prompts, chosen, rejected;
  for (int i = 0; i < 40; ++i) {
    prompts.push_back("p" + std::to_string(i / 4));  // the answers tell pairs apart
    chosen.push_back("c" + std::to_string(i / 2));
    rejected.push_back("r" + std::to_string(i));
  }
  const auto [rest, held] = TextCorpus(make_preferences(prompts, chosen, rejected)).hold_out(10);
  EXPECT_EQ(held.size(), 10);
  EXPECT_EQ(rest.size(), 30);
  EXPECT_EQ(held.form(), CorpusForm::preferences);
  PairBuffers buffers;
  for (int64_t i = 0; i < held.size(); ++i) {
    const PairView pair = held.view(i, buffers);
    const size_t number = std::stoul(std::string(pair.rejected.substr(1)));
    EXPECT_EQ(pair.source, prompts[number]);
    EXPECT_EQ(pair.target, chosen[number]);
  }
}

TEST_F(Preferences, TokensAreTheSameFromTextAndFromMemory) {
  std::vector<std::string> prompts, chosen, rejected;
  for (int i = 0; i < 30; ++i) {
    prompts.push_back("Frage " + std::to_string(i));
    chosen.push_back("gute Antwort " + std::to_string(i * i));
    rejected.push_back(i % 7 == 0 ? chosen.back() : "schlechte " + std::to_string(i));
  }
  const TextCorpus text = make_preferences(prompts, chosen, rejected);
  TokenizerTrainOptions vocabulary;
  vocabulary.vocab_size = 60;
  vocabulary.hard_vocab_limit = false;
  const Tokenizer tokenizer = train_tokenizer(text, vocabulary);
  TokenizedCorpusOptions options;
  options.drop_identical = true;  // of both answers
  const TokenizedCorpus memory(text, tokenizer, options);
  const TextPairs read(text, tokenizer, options, {}, 2);
  EXPECT_TRUE(memory.preferences() && read.preferences());
  EXPECT_EQ(memory.fingerprint(), read.fingerprint());
  EXPECT_EQ(memory.report().dropped_identical, 5);
  std::vector<uint32_t> draws(30);
  for (uint32_t i = 0; i < 30; ++i) draws[i] = i;
  PairBlock a, b;
  memory.read(draws, 0, a, nullptr);
  read.read(draws, 0, b, nullptr);
  EXPECT_EQ(b.dropped.identical, 5);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_TRUE(std::ranges::equal(a.tokens[i].source, b.tokens[i].source));
    EXPECT_TRUE(std::ranges::equal(a.tokens[i].target, b.tokens[i].target));
    EXPECT_TRUE(std::ranges::equal(a.tokens[i].rejected, b.tokens[i].rejected));
    EXPECT_EQ(a.tokens[i].rejected.empty(), i % 7 == 0);
    if (i % 7 == 0) continue;
    EXPECT_EQ(a.tokens[i].rejected.back(), tokenizer.eos_id());
    EXPECT_EQ(tokenizer.decode(a.tokens[i].rejected.first(a.tokens[i].rejected.size() - 1)),
              rejected[i]);
  }
}

// Ids 10 * pair + side, with lengths that differ.
TokenizedCorpus numbered(SequenceForm form, int32_t batch_tokens, int64_t pairs = 25,
                         bool answers_apart = false) {
  std::vector<int32_t> ids[3];
  std::vector<int64_t> ends[3] = {{0}, {0}, {0}};
  for (int64_t i = 0; i < pairs; ++i)
    for (int64_t side = 0; side < 3; ++side) {
      ids[side].insert(ids[side].end(), static_cast<size_t>(1 + (i * (side + 2)) % 5),
                       static_cast<int32_t>(10 * i + side + 3));
      ends[side].push_back(static_cast<int64_t>(ids[side].size()));
    }
  TokenizedCorpusOptions options{
      .form = form, .max_length = 32, .batch_tokens = batch_tokens, .answers_apart = answers_apart};
  return TokenizedCorpus(ids[0], ends[0], ids[1], ends[1], 1000, kAnswerEnd, options, ids[2],
                         ends[2]);
}

TEST(PreferenceBatches, BothAnswersOfAPairAreNeighbours) {
  for (const auto form : {SequenceForm::encoder_decoder, SequenceForm::decoder_only}) {
    const TokenizedCorpus corpus = numbered(form, 30);
    BatcherOptions order;
    Batcher batcher(corpus, order);
    order.lanes = 2;
    order.own = {1, 2};
    Batcher counting(corpus, order);
    std::multiset<int64_t> pairs;
    PackedBatchHost batch, counted;
    do {
      batcher.next(batch);
      counting.next(counted);
      EXPECT_EQ(counted.counts().sentences, batch.counts().sentences);
      EXPECT_EQ(counted.counts().target_tokens, batch.counts().target_tokens);
      EXPECT_EQ(counted.counts().source_tokens, batch.counts().source_tokens);
      EXPECT_EQ(counted.label_count, batch.label_count);
      EXPECT_LE(batch.counts().target_tokens, 30);
      ASSERT_EQ(batch.sentences() % 2, 0);
      ASSERT_EQ(batch.target_sentences.size(), batch.target_in.size());
      for (int64_t s = 0; s < batch.sentences(); ++s) {
        const auto sentence = static_cast<size_t>(s);
        const int64_t pair = batch.sentence_ids[sentence];
        EXPECT_EQ(pair, batch.sentence_ids[sentence / 2 * 2]);
        pairs.insert(pair);
        const int32_t begin = batch.target_cu_seqlens[sentence];
        const int32_t end = batch.target_cu_seqlens[sentence + 1];
        // The last label before </s> says whose answer it is.
        EXPECT_EQ(batch.target_out[static_cast<size_t>(end) - 2], 10 * pair + 4 + s % 2);
        for (int32_t t = begin; t < end; ++t)
          EXPECT_EQ(batch.target_sentences[static_cast<size_t>(t)], s);
      }
    } while (!batch.last_in_epoch);
    EXPECT_EQ(pairs.size(), 50u);
    for (const int64_t pair : pairs) EXPECT_EQ(pairs.count(pair), 2u);
  }
}

TEST(PreferenceBatches, TheRejectedAnswersMayBeLeftOut) {
  const TokenizedCorpus corpus = numbered(SequenceForm::encoder_decoder, 30);
  BatcherOptions order;
  order.rejected = false;
  order.shuffle = false;
  Batcher batcher(corpus, order);
  int64_t sentences = 0;
  PackedBatchHost batch;
  do {
    batcher.next(batch);
    sentences += batch.sentences();
    EXPECT_TRUE(batch.target_sentences.empty());
    for (size_t s = 0; s < batch.sentence_ids.size(); ++s)
      EXPECT_EQ(batch.target_out[static_cast<size_t>(batch.target_cu_seqlens[s + 1]) - 2],
                10 * batch.sentence_ids[s] + 4);
  } while (!batch.last_in_epoch);
  EXPECT_EQ(sentences, 25);
}

// A pair fits a batch with both answers, or is dropped.
TEST(PreferenceBatches, PairsThatNoBatchCanHoldAreDropped) {
  const auto kept = [](SequenceForm form, int32_t max_length, int32_t batch_tokens) {
    const std::vector<int32_t> prompt(3, 4), chosen(4, 5), rejected(6, 6);
    const TokenizedCorpusOptions options{
        .form = form, .max_length = max_length, .batch_tokens = batch_tokens};
    PairDrops drops;
    return keep_pair(options, CorpusForm::preferences, {prompt, chosen, rejected}, false, drops,
                     {.source_begin = {}, .source_end = 2, .target_end = 2});
  };
  using enum SequenceForm;
  // Sequences of 5 and 7 tokens and sources of 4; streams of 8 and 10 tokens.
  EXPECT_TRUE(kept(encoder_decoder, 7, 12));
  EXPECT_FALSE(kept(encoder_decoder, 6, 12));
  EXPECT_FALSE(kept(encoder_decoder, 7, 11));
  EXPECT_TRUE(kept(decoder_only, 10, 18));
  EXPECT_FALSE(kept(decoder_only, 9, 18));
  EXPECT_FALSE(kept(decoder_only, 10, 17));
}

TEST_F(Preferences, LabelledAnswersArePairsWithOneAnswer) {
  const std::string path = write("l.jsonl",
                                 R"({"prompt": "p", "completion": "a", "label": true}
{"prompt": "q", "completion": "b", "label": false}
{"prompt": "q", "completion": " ", "label": false}
{"prompt": " ", "completion": "c", "label": true}
)");
  std::set<uint64_t> fingerprints;
  std::vector<TextCorpus> corpora = both_ways({path});
  corpora.emplace_back(
      make_labelled({"p", "q", "q", " "}, {"a", "b", " ", "c"}, {true, false, false, true}));
  for (const TextCorpus& corpus : corpora) {
    EXPECT_EQ(corpus.form(), CorpusForm::preferences);
    EXPECT_TRUE(corpus.labelled());
    ASSERT_EQ(corpus.size(), 2);
    EXPECT_EQ(corpus.report().dropped_empty, 2);
    PairBuffers buffers;
    EXPECT_EQ(corpus.view(0, buffers).target, "a");
    EXPECT_EQ(corpus.view(0, buffers).rejected, "");
    EXPECT_EQ(corpus.view(1, buffers).target, "");
    EXPECT_EQ(corpus.view(1, buffers).rejected, "b");
    EXPECT_EQ(corpus.hold_out(1).second.size(), 1);
  }
  for (const TextCorpus& corpus : both_ways({path})) fingerprints.insert(corpus.fingerprint());
  EXPECT_EQ(fingerprints.size(), 1u);
  expect_error(ErrorCode::corrupt_file, "l.jsonl:2: label is not", [&] {
    load_preferences(std::vector<std::string>{
        write("l.jsonl",
              "{\"prompt\": \"p\", \"completion\": \"a\", \"label\": true}\n"
              "{\"prompt\": \"p\", \"completion\": \"a\", \"label\": 1}\n")});
  });
  // A label that is neither is no label.
  EXPECT_EQ(
      load_tsv(write("s.jsonl", R"({"prompt": "p", "completion": "a", "label": "x"})")).form(),
      CorpusForm::parallel);
  expect_error(ErrorCode::invalid_argument, "labelled answers cannot be mixed", [&] {
    TextCorpus::mix({{corpora[0], 1}, {make_preferences({"a"}, {"b"}, {"c"}), 1}});
  });
  expect_error(ErrorCode::invalid_argument, "there are 1 prompts, 2 answers and 1 labels", [] {
    make_labelled({"a"}, {"b", "c"}, {true});
  });
}

// The rows of a batch: who has which answers, and what counts.
TEST(LabelledBatches, EachAnswerIsBesideOneToAnotherPrompt) {
  for (const auto form : {SequenceForm::encoder_decoder, SequenceForm::decoder_only}) {
    const TokenizedCorpus corpus = numbered(form, 60, 25, true);
    BatcherOptions order;
    Batcher batcher(corpus, order);
    order.lanes = 2;
    order.own = {1, 2};
    Batcher counting(corpus, order);
    std::multiset<std::pair<int64_t, bool>> seen;
    PackedBatchHost batch, counted;
    do {
      batcher.next(batch);
      counting.next(counted);
      EXPECT_EQ(counted.counts().sentences, batch.counts().sentences);
      EXPECT_EQ(counted.counts().target_tokens, batch.counts().target_tokens);
      EXPECT_EQ(counted.counts().source_tokens, batch.counts().source_tokens);
      EXPECT_EQ(counted.label_count, batch.label_count);
      EXPECT_LE(batch.counts().target_tokens, 60);
      ASSERT_EQ(batch.target_weights.size(), batch.target_out.size());
      ASSERT_EQ(batch.target_sentences.size(), batch.target_out.size());
      int64_t labels = 0, rows = batch.sentences() / 2;
      std::vector<int32_t> own(static_cast<size_t>(rows)), other(own);
      bool chosen_first = true, chosen = true;
      for (int64_t s = 0; s < batch.sentences(); ++s) {
        const auto row = static_cast<size_t>(s / 2), sentence = static_cast<size_t>(s);
        EXPECT_EQ(batch.sentence_ids[sentence], batch.sentence_ids[2 * row]);
        const int32_t begin = batch.target_cu_seqlens[sentence];
        const auto last = static_cast<size_t>(batch.target_cu_seqlens[sentence + 1]) - 1;
        EXPECT_EQ(batch.target_out[last], kAnswerEnd);
        const int32_t word = batch.target_out[last - 1];
        for (auto t = static_cast<size_t>(begin); t <= last; ++t) {
          EXPECT_EQ(batch.target_sentences[t], s);
          EXPECT_EQ(batch.target_weights[t] > 0,
                    batch.target_weights[last] > 0 && batch.target_out[t] != kIgnoreLabel);
          if (batch.target_out[t] == kIgnoreLabel) continue;
          EXPECT_TRUE(batch.target_out[t] == word || t == last);  // none of the prompt
          labels += batch.target_weights[t] > 0;
        }
        if (batch.target_weights[last] == 0) {
          other[row] = word;
          continue;
        }
        own[row] = word;
        chosen = s % 2 == 0;
        EXPECT_TRUE(chosen_first || !chosen);  // chosen answers come first
        chosen_first = chosen;
        EXPECT_EQ(word, 10 * batch.sentence_ids[sentence] + (chosen ? 4 : 5));
        seen.insert({batch.sentence_ids[sentence], chosen});
      }
      EXPECT_EQ(labels, batch.label_count);
      for (size_t row = 0; row < own.size() && own.size() > 1; ++row)
        EXPECT_EQ(other[row], own[(row + own.size() - 1) % own.size()]);
      if (own.size() == 1) {
        EXPECT_NE(other[0], own[0]);
      }
    } while (!batch.last_in_epoch);
    EXPECT_EQ(seen.size(), 50u);
    EXPECT_EQ((std::set<std::pair<int64_t, bool>>(seen.begin(), seen.end()).size()), 50u);
  }
}

// An answer to another prompt is cut to max_length.
TEST(LabelledBatches, AnAnswerToALongerPromptIsCut) {
  const std::vector<int32_t> source{5, 6, 7, 8, 9, 3, 4}, target{10, 11, 12, 13, 14, 15, 16, 17};
  const std::vector<int64_t> source_ends{0, 6, 7}, target_ends{0, 1, 8};
  const TokenizedCorpus corpus(source, source_ends, target, target_ends, 100, kAnswerEnd,
                               {.form = SequenceForm::decoder_only,
                                .max_length = 10,
                                .batch_tokens = 80,
                                .answers_apart = true},
                               target, target_ends);
  Batcher batcher(corpus, {.shuffle = false});
  PackedBatchHost batch;
  batcher.next(batch);
  ASSERT_EQ(batch.sentences(), 8);
  EXPECT_EQ(batch.max_target_len, 10);
  EXPECT_LE(batch.counts().target_tokens, 2 * (8 + 8 + 9 + 9));
}

TEST(LabelledBatches, CrossEntropyIsOfDesirableAnswers) {
  const TokenizedCorpus corpus = numbered(SequenceForm::decoder_only, 60, 25, true);
  BatcherOptions order;
  order.rejected = false;
  Batcher batcher(corpus, order);
  PackedBatchHost batch;
  int64_t sentences = 0;
  do {
    batcher.next(batch);
    sentences += batch.sentences();
    EXPECT_TRUE(batch.target_sentences.empty());
  } while (!batch.last_in_epoch);
  EXPECT_EQ(sentences, 25);
}

}  // namespace
}  // namespace trafo
