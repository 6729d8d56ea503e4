// Corpora at the edges: files that change or cannot be read, places that are full, parts of mixes,
// options and ids that are refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>

#include "engine/core/checked.h"
#include "engine/data/disk_text.h"
#include "engine/data/text_pairs.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/data/train_tokenizer.h"
#include "engine/decode/lexical_table.h"
#include "engine/os/file.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

// pread reads no more than this at once, as a file system on a network may.
// Several threads read: other tests of this program encode with a pool of them.
static std::mutex pread_mutex;
static size_t most_at_once = SIZE_MAX;
static off_t end_of_reading = 0;  // the furthest that was asked for
static int interruptions = 0;     // of the next calls

extern "C" ssize_t __real_pread(int, void*, size_t, off_t);
extern "C" ssize_t __wrap_pread(int file, void* into, size_t bytes, off_t offset) {
  {
    const std::lock_guard lock(pread_mutex);
    if (interruptions > 0) {
      --interruptions;
      errno = EINTR;
      return -1;
    }
    end_of_reading = std::max(end_of_reading, offset + static_cast<off_t>(bytes));
    bytes = std::min(bytes, most_at_once);
  }
  return __real_pread(file, into, bytes, offset);
}

namespace trafo {
namespace {

namespace fs = std::filesystem;

std::string pairs_of_lines(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i)
    text += concat("source ", i, " word", i % 7, "\ttarget ", i, " word", i % 5, "\n");
  return text;
}

class TextFormsTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string write_gzip(const std::string& name, const std::string& text) {
    const std::string path = (directory_ / name).string();
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }
  TextCorpus corpus_of(int first, int count) {
    return load_tsv(write(concat(first, ".tsv"), pairs_of_lines(first, count)));
  }
  static LoadOptions on_disk() {
    LoadOptions options;
    options.memory_bytes = 0;
    return options;
  }

  TemporaryDirectory directory_;
};

TEST_F(TextFormsTest, WithoutADirectoryToUnpackInTheTemporaryOneIsTaken) {
  const std::string text = pairs_of_lines(0, 20);
  const TextCorpus corpus = load_tsv(write_gzip("packed", text), on_disk());
  EXPECT_TRUE(corpus.is_large());
  PairBuffers buffers;
  EXPECT_EQ(corpus.view(3, buffers).source, "source 3 word3");
}

// The answer of a full file system, by a device that is always full.
TEST_F(TextFormsTest, AFullPlaceToUnpackInIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  LineReader reader(write("a", "one\ntwo\n"));
  reader.copy_to(full, "the place");
  std::string line;
  expect_error(ErrorCode::io, "cannot be unpacked in the place: No space left",
               [&] { reader.next(line); });
  close(full);
}

// The first page of a process's memory is nobody's: opening succeeds, reading does not.
TEST_F(TextFormsTest, AFileThatOpensAndCannotBeRead) {
  for (const char* name : {"/proc/self/mem"})
    expect_error(ErrorCode::io, "cannot be read", [&] { read_lines(name); });
}

TEST_F(TextFormsTest, ALineMayBeReadInPieces) {
  const std::string text = pairs_of_lines(0, 20);
  const TextCorpus corpus = load_tsv(write("a.tsv", text), on_disk());
  most_at_once = 3;
  end_of_reading = 0;
  PairBuffers buffers;
  const PairView pair = corpus.view(7, buffers);
  most_at_once = SIZE_MAX;
  EXPECT_EQ(pair.source, "source 7 word0");
  EXPECT_EQ(pair.target, "target 7 word2");
  EXPECT_EQ(end_of_reading, static_cast<off_t>(text.find("\nsource 8")));
}

// A program may have closed its standard input: the next file that it opens has the number 0.
TEST_F(TextFormsTest, ADescriptorMayBeZero) {
  const std::string path = write("a.tsv", pairs_of_lines(0, 20));
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  PairBuffers buffers;
  std::string source;
  EXPECT_NO_THROW(source = load_tsv(path, on_disk()).view(7, buffers).source);
  EXPECT_EQ(source, "source 7 word0");
  dup2(input, STDIN_FILENO);
  close(input);
}

TEST_F(TextFormsTest, AnInterruptedReadIsRepeated) {
  const std::string path = write("a.tsv", pairs_of_lines(0, 20));
  const TextCorpus corpus = load_tsv(path, on_disk());
  PairBuffers buffers;
  interruptions = 2;
  EXPECT_EQ(corpus.view(7, buffers).source, "source 7 word0");
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char begin[8] = {};
  interruptions = 2;
  EXPECT_EQ(os::read_at(file, begin, 6, 0), 6);
  EXPECT_STREQ(begin, "source");
  close(file);
}

TEST_F(TextFormsTest, AnyChangeOfAFileIsNoticed) {
  const std::string path = write("a.tsv", pairs_of_lines(0, 100));
  PairBuffers buffers;
  const auto changed_by = [&](const auto& change) {
    const TextCorpus corpus = load_tsv(path, on_disk());
    corpus.view(0, buffers);
    struct stat before {};
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    timespec times[2] = {before.st_atim, before.st_mtim};
    change(times[1]);
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    expect_error(ErrorCode::io, "has changed while", [&] { corpus.view(0, buffers); });
  };
  changed_by([](timespec& time) { time.tv_sec -= 10; });
  changed_by([](timespec& time) { time.tv_nsec = (time.tv_nsec + 1000) % 1000000000; });
  // Between two looks at it, what is not there any more is noticed too.
  const TextCorpus corpus = load_tsv(path, on_disk());
  corpus.view(1, buffers);
  fs::resize_file(path, 10);
  expect_error(ErrorCode::io, "has changed while", [&] { corpus.view(99, buffers); });
}

TEST_F(TextFormsTest, StandardInputIsOneSide) {
  for (const LoadOptions& options : {LoadOptions{}, on_disk()})
    expect_error(ErrorCode::invalid_argument, "standard input cannot be both sides",
                 [&] { load_parallel("-", "-", options); });
  expect_error(ErrorCode::invalid_argument, "standard input cannot be both sides", [] {
    read_sides(std::vector<std::string>{"-", "-"});
  });
  const std::string lines = write("lines", "one\ntwo\n"), other = write("other", "eins\nzwei\n");
  const int saved = dup(STDIN_FILENO);
  for (const bool source : {true, false}) {
    for (const bool disk : {true, false}) {
      const int file = open(lines.c_str(), O_RDONLY | O_CLOEXEC);
      dup2(file, STDIN_FILENO);
      close(file);
      const std::string a = source ? "-" : other, b = source ? other : "-";
      const TextCorpus corpus = disk ? load_parallel(a, b, on_disk())
                                     : TextCorpus(read_sides(std::vector<std::string>{a, b}));
      PairBuffers buffers;
      const PairView pair = corpus.view(1, buffers);
      EXPECT_EQ(pair.source, source ? "two" : "zwei");
      EXPECT_EQ(pair.target, source ? "zwei" : "two");
    }
  }
  dup2(saved, STDIN_FILENO);
  close(saved);
}

// A corpus of as many pairs as it says, all alike.
class Claimed final : public PairText {
 public:
  explicit Claimed(int64_t size) : size_(size) {}
  int64_t size() const noexcept override { return size_; }
  PairView view(int64_t, PairBuffers&) const override { return {"a", "b"}; }

 private:
  int64_t size_;
};

TEST(TextCorpusSize, IsAtLeastOneAndFitsIntoADraw) {
  expect_error(ErrorCode::invalid_argument, "there is no sentence pair",
               [] { TextCorpus(std::make_shared<const Claimed>(0)); });
  EXPECT_EQ(TextCorpus(std::make_shared<const Claimed>(UINT32_MAX)).size(), UINT32_MAX);
  expect_error(ErrorCode::unsupported, "pairs are more than the limit of 4294967295",
               [] { TextCorpus(std::make_shared<const Claimed>(int64_t{UINT32_MAX} + 1)); });
  expect_error(ErrorCode::invalid_argument, "a mix of no corpora", [] { TextCorpus::mix({}); });
}

TEST_F(TextFormsTest, APartOfAMixMayHaveNothingToHoldOut) {
  const TextCorpus mixed =
      TextCorpus::mix({{corpus_of(0, 400), 1}, {corpus_of(1000, 1), 2}, {corpus_of(2000, 1), 1}});
  const auto [rest, held] = mixed.hold_out(5);
  EXPECT_EQ(held.size(), 5);
  EXPECT_EQ(rest.size(), 397);
  // Of what was held out, pairs are held out again.
  const auto [more, last] = held.hold_out(2);
  EXPECT_EQ(more.size(), 3);
  EXPECT_EQ(last.size(), 2);
  PairBuffers buffers;
  std::vector<std::string> seen;
  for (const TextCorpus* part : {&more, &last})
    for (int64_t i = 0; i < part->size(); ++i) seen.emplace_back(part->view(i, buffers).source);
  std::vector<std::string> all;
  for (int64_t i = 0; i < held.size(); ++i) all.emplace_back(held.view(i, buffers).source);
  std::sort(seen.begin(), seen.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(seen, all);
}

TEST_F(TextFormsTest, TheHalvesOfACorpusHaveFingerprintsOfTheirOwn) {
  const auto [rest, held] = corpus_of(0, 400).hold_out(200);
  ASSERT_EQ(rest.size(), held.size());
  EXPECT_NE(rest.fingerprint(), held.fingerprint());
}

TEST_F(TextFormsTest, TheWeightOfASingleCorpusIsPartOfItsFingerprint) {
  const TextCorpus corpus = corpus_of(0, 10);
  EXPECT_EQ(TextCorpus::mix({{corpus, 1}}).fingerprint(), corpus.fingerprint());
  EXPECT_NE(TextCorpus::mix({{corpus, 2}}).fingerprint(), corpus.fingerprint());
}

TEST_F(TextFormsTest, OneSideAloneMayBeSampled) {
  const TextCorpus corpus = corpus_of(0, 40);
  TokenizerTrainOptions train;
  train.vocab_size = 60;
  train.hard_vocab_limit = false;
  const Tokenizer tokenizer = train_tokenizer(corpus, train);
  std::vector<uint32_t> draws(40);
  for (uint32_t i = 0; i < 40; ++i) draws[i] = i;
  const auto read = [&](const SubwordSampling& sampling) {
    const TextPairs pairs(corpus, tokenizer, {}, sampling, 1);
    EXPECT_EQ(pairs.varies(), sampling.source_alpha > 0 || sampling.target_alpha > 0);
    PairBlock block;
    pairs.read(draws, 0, block, nullptr);
    std::pair<std::vector<int32_t>, std::vector<int32_t>> ids;
    for (const PairTokens& pair : block.tokens) {
      ids.first.insert(ids.first.end(), pair.source.begin(), pair.source.end());
      ids.second.insert(ids.second.end(), pair.target.begin(), pair.target.end());
    }
    return ids;
  };
  const auto plain = read({}), target = read({0, 0.2, 1}), source = read({0.2, 0, 1});
  EXPECT_EQ(target.first, plain.first);
  EXPECT_NE(target.second, plain.second);
  EXPECT_NE(source.first, plain.first);
  EXPECT_EQ(source.second, plain.second);
}

// ---- ids that were made elsewhere ----

struct IdsWithOffsets {
  std::vector<int32_t> source{4, 5, 6}, target{7, 8, 9};
  std::vector<int64_t> source_offsets{0, 1, 3}, target_offsets{0, 2, 3};

  TokenizedCorpus made(const TokenizedCorpusOptions& options = {}) const {
    return TokenizedCorpus(source, source_offsets, target, target_offsets, 10, 2, options);
  }
};

TEST(TokenizedIds, OffsetsAndIdsAreChecked) {
  EXPECT_EQ(IdsWithOffsets().made().size(), 2);
  const auto refused = [](const char* text, const auto& change) {
    IdsWithOffsets ids;
    change(ids);
    expect_error(ErrorCode::invalid_argument, text, [&] { ids.made(); });
  };
  const char* offsets = "source offsets must start at 0";
  refused(offsets, [](IdsWithOffsets& ids) { ids.source_offsets.clear(); });
  refused(offsets, [](IdsWithOffsets& ids) { ids.source_offsets[0] = 1; });
  refused(offsets, [](IdsWithOffsets& ids) { ids.source_offsets[2] = 2; });
  refused(offsets, [](IdsWithOffsets& ids) { ids.source_offsets = {0, 3, 1, 3}; });
  refused("target offsets", [](IdsWithOffsets& ids) { ids.target_offsets = {0, 4, 3}; });
  refused("2 source sentences, 1 target", [](IdsWithOffsets& ids) { ids.target_offsets = {0, 3}; });
  refused("source token 1 is 10", [](IdsWithOffsets& ids) { ids.source[1] = 10; });
  refused("target token 2 is -1", [](IdsWithOffsets& ids) { ids.target[2] = -1; });
  refused("no sentence pair is left", [](IdsWithOffsets& ids) {
    ids.source_offsets = ids.target_offsets = {0};
    ids.source.clear();
    ids.target.clear();
  });
}

TEST(TokenizedIds, OptionsHaveLimits) {
  const auto refused = [](const char* text, const auto& change) {
    TokenizedCorpusOptions options;
    change(options);
    expect_error(ErrorCode::invalid_argument, text, [&] { IdsWithOffsets().made(options); });
  };
  refused("max_length is 1", [](auto& options) { options.max_length = 1; });
  refused("batch_tokens is 1", [](auto& options) { options.batch_tokens = 1; });
  refused("batch_tokens is", [](auto& options) { options.batch_tokens = (1 << 28) + 1; });
  for (const double ratio : {0.5, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()})
    refused("max_length_ratio is", [&](auto& options) { options.max_length_ratio = ratio; });
}

TEST(TokenizedIds, WhereNothingIsLeftEveryReasonIsTold) {
  IdsWithOffsets ids;
  TokenizedCorpusOptions options;
  options.max_length_ratio = 1.5;
  expect_error(ErrorCode::invalid_argument, "2 differ too much in length",
               [&] { ids.made(options); });
  ids.target = ids.source;
  ids.target_offsets = ids.source_offsets;
  options.drop_identical = true;
  expect_error(ErrorCode::invalid_argument, "2 have the same text on both sides",
               [&] { ids.made(options); });
}

// ---- lexical tables, sums ----

// Three chunks of pairs for two threads. While the first thread is in a chunk, it sets the token,
// and takes it back when the other thread has left the third chunk out.
class TextUnderCancel final : public PairText {
 public:
  explicit TextUnderCancel(CancelToken& token) : token_(token) {
    report_.lines = report_.pairs = 3 * 128;
  }
  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t, PairBuffers&) const override {
    if (std::this_thread::get_id() == first_)
      std::call_once(once_, [this] {
        wait_for(other_reads_);
        token_.cancel();
        wait_for(other_ended_);
        token_.reset();
      });
    else
      wait_until_cancelled();
    return {"a", "b"};
  }

 private:
  struct AtEndOfThread {
    std::atomic<bool>* ended = nullptr;
    ~AtEndOfThread() {
      if (ended != nullptr) *ended = true;
    }
  };
  static void wait_for(const std::atomic<bool>& event) {
    while (!event) std::this_thread::yield();
  }
  void wait_until_cancelled() const {
    thread_local AtEndOfThread end;
    end.ended = &other_ended_;
    other_reads_ = true;
    while (!token_.is_cancelled()) std::this_thread::yield();
  }

  CancelToken& token_;
  const std::thread::id first_ = std::this_thread::get_id();
  mutable std::once_flag once_;
  mutable std::atomic<bool> other_reads_{false}, other_ended_{false};
};

// Pairs that were left out while the token was set may not be taken for empty ones.
TEST(TokenizedCorpusCancel, ATokenThatIsTakenBackLosesNoPairs) {
  TokenizerTrainOptions bytes;
  bytes.kind = "byte";
  bytes.vocab_size = 259;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(), bytes);
  CancelToken token;
  const TextCorpus corpus(std::make_shared<TextUnderCancel>(token));
  expect_error(ErrorCode::cancelled, "cancelled",
               [&] { TokenizedCorpus(corpus, tokenizer, {}, 2, &token); });
  EXPECT_FALSE(token.is_cancelled());
}

TEST(LexicalTableLimits, LinesAndProbabilitiesAreChecked) {
  const std::vector<std::string> text = {"a b c d"};
  TokenizerTrainOptions train;
  train.vocab_size = 12;
  train.hard_vocab_limit = false;
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(text), train);
  const auto refused = [&](const std::string& content, const char* why) {
    std::istringstream in(content);
    expect_error(ErrorCode::invalid_argument, why,
                 [&] { LexicalTable::read(in, "lex", tokenizer); });
  };
  const char* wanted = "lex:1 wants TARGET SOURCE PROBABILITY";
  for (const char* line : {"a", "a b", "a b -1", "a b inf", "a b nan", "a b 0.5x", "a b 1e999"})
    refused(line, wanted);
  refused("\r\na b\n", "lex:2 wants");
  refused("a b 0.5\n" + std::string(limits::kLineBytes + 1, 'x'), "lex:2: the line is longer than");
  std::istringstream broken("a b 0.5\n");
  broken.setstate(std::ios::badbit);
  expect_error(ErrorCode::io, "lex: cannot be read",
               [&] { LexicalTable::read(broken, "lex", tokenizer); });

  const std::vector<std::vector<int32_t>> one{{4}}, two{{4}, {5}};
  expect_error(ErrorCode::invalid_argument, "there are 1 sources and 2 targets",
               [&] { LexicalTable::learn(one, two, 10, 3); });
  expect_error(ErrorCode::invalid_argument, "best must be 1 or more",
               [&] { LexicalTable::learn(one, one, 10, 0); });
}

TEST(Checked, SumsAndProductsThatOverflowAreErrors) {
  EXPECT_EQ(checked_add<int64_t>(INT64_MAX - 1, 1, "test"), INT64_MAX);
  expect_error(ErrorCode::invalid_argument, "overflows",
               [] { checked_add<int64_t>(INT64_MAX, 1, "test"); });
  EXPECT_EQ(checked_mul<int64_t>(INT64_MAX, 1, "test"), INT64_MAX);
  expect_error(ErrorCode::invalid_argument, "overflows",
               [] { checked_mul<int64_t>(INT64_MAX, 2, "test"); });
}

}  // namespace
}  // namespace trafo
