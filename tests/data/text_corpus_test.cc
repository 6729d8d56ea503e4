#include "engine/data/text_corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"
#include "engine/data/batcher.h"
#include "engine/data/disk_text.h"
#include "engine/data/text_pairs.h"
#include "engine/data/train_tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

std::string sentence(ShuffleRng& rng, const char* language) {
  std::string text;
  for (uint64_t words = 1 + rng.below(12); words > 0; --words)
    text += concat(text.empty() ? "" : " ", language, rng.below(40));
  return text;
}

struct PairFiles {
  std::string source, target, tsv;
};

PairFiles random_lines(int count, uint64_t seed = 3) {
  PairFiles lines;
  ShuffleRng rng(seed, 0);
  for (int i = 0; i < count; ++i) {
    // Some empty, some ended as on Windows, some with bytes over 127.
    const std::string source = i % 41 == 7 ? "" : sentence(rng, i % 5 == 0 ? "ü" : "s");
    const std::string target = i % 53 == 9 ? " " : i % 17 == 3 ? source : sentence(rng, "t");
    lines.source += source + (i % 11 == 0 ? "\r\n" : "\n");
    lines.target += target + (i + 1 < count ? "\n" : "");
    lines.tsv += source + "\t" + target + "\n";
  }
  return lines;
}

class TextCorpusTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (directory_.path() / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string write_gzip(const std::string& name, const std::string& text) {
    const std::string path = (directory_.path() / name).string();
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }
  LoadOptions on_disk() const {
    LoadOptions options;
    options.memory_bytes = 0;
    options.unpack_directory = (directory_.path() / "unpacked").string();
    return options;
  }
  static Tokenizer tokenizer_of(const TextCorpus& corpus) {
    TokenizerTrainOptions options;
    options.vocab_size = 90;
    options.hard_vocab_limit = false;
    return train_tokenizer(corpus, options);
  }

  TemporaryDirectory directory_;
};

std::vector<PackedBatchHost> batches(const PairSource& corpus, const BatcherOptions& options,
                                     int epochs = 2) {
  Batcher batcher(corpus, options);
  std::vector<PackedBatchHost> all;
  for (int done = 0; done < epochs; done += all.back().last_in_epoch ? 1 : 0)
    batcher.next(all.emplace_back());
  return all;
}

void expect_same(const std::vector<PackedBatchHost>& a, const std::vector<PackedBatchHost>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].source_ids, b[i].source_ids) << i;
    EXPECT_EQ(a[i].target_in, b[i].target_in) << i;
    EXPECT_EQ(a[i].target_cu_seqlens, b[i].target_cu_seqlens) << i;
    EXPECT_EQ(a[i].sentence_ids, b[i].sentence_ids) << i;
    EXPECT_EQ(a[i].last_in_epoch, b[i].last_in_epoch) << i;
  }
}

// bos before a source, and no eos after it, where a model was trained so.
TEST_F(TextCorpusTest, SourcesHaveTheFrameOfTheModel) {
  const PairFiles lines = random_lines(60);
  const std::string source = write("a.src", lines.source), target = write("a.trg", lines.target);
  const TextCorpus pairs = load_parallel(source, target), text = load_monolingual(target);
  const TextCorpus on_a_disk = load_parallel(source, target, on_disk());
  const Tokenizer tokenizer = tokenizer_of(pairs);
  TokenizedCorpusOptions options;
  options.form = SequenceForm::decoder_only;
  const PairEncoding usual(tokenizer);
  const TokenizedCorpus before(pairs, usual, options), plain(text, usual, options);
  const int32_t bos = tokenizer.bos_id(), eos = tokenizer.eos_id();
  std::set<uint64_t> fingerprints{before.fingerprint()};
  for (const TextFrame frame : {TextFrame{true, true}, {true, false}, {false, false}}) {
    PairEncoding encoding(tokenizer);
    encoding.tokens.frame = frame;
    const TokenizedCorpus framed(pairs, encoding, options);
    ASSERT_EQ(framed.size(), before.size());
    for (int64_t i = 0; i < framed.size(); ++i) {
      std::vector<int32_t> expected(before.source(i).begin(), before.source(i).end() - 1);
      if (frame.begin) expected.insert(expected.begin(), bos);
      if (frame.end) expected.push_back(eos);
      EXPECT_TRUE(std::ranges::equal(framed.source(i), expected)) << i;
      EXPECT_TRUE(std::ranges::equal(framed.target(i), before.target(i))) << i;
    }
    EXPECT_TRUE(fingerprints.insert(framed.fingerprint()).second);
    const TextPairs read(on_a_disk, encoding, options, {}, 2);
    EXPECT_EQ(read.fingerprint(), framed.fingerprint());
    expect_same(batches(read, {}), batches(framed, {}));
    // Plain text follows the token from which a model predicts its first one.
    const TokenizedCorpus framed_text(text, encoding, options);
    for (int64_t i = 0; i < framed_text.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(framed_text.source(i), std::array{frame.begin ? bos : eos}));
      EXPECT_TRUE(std::ranges::equal(framed_text.target(i), plain.target(i)));
    }
  }
  // A pair that fills the model without bos is too long with it.
  int64_t longest = 0;
  for (int64_t i = 0; i < before.size(); ++i)
    longest = std::max(longest, std::ssize(before.source(i)) + std::ssize(before.target(i)) - 1);
  options.max_length = static_cast<int32_t>(longest);
  EXPECT_EQ(TokenizedCorpus(pairs, usual, options).report().dropped_long, 0);
  PairEncoding encoding(tokenizer);
  encoding.tokens.frame.begin = true;
  EXPECT_GT(TokenizedCorpus(pairs, encoding, options).report().dropped_long, 0);
}

TEST_F(TextCorpusTest, OnDiskItGivesTheBatchesOfMemory) {
  const PairFiles lines = random_lines(900);
  const std::string source = write("a.src", lines.source), target = write("a.trg", lines.target);
  const TextCorpus memory = load_parallel(source, target);
  EXPECT_FALSE(memory.is_large());
  const Tokenizer tokenizer = tokenizer_of(memory);
  TokenizedCorpusOptions options;
  options.max_length = 16;
  options.batch_tokens = 200;
  options.max_length_ratio = 3;
  options.drop_identical = true;
  const TokenizedCorpus ids(memory, tokenizer, options, 1);
  EXPECT_GT(ids.report().dropped_empty, 0);
  EXPECT_GT(ids.report().dropped_long, 0);
  EXPECT_GT(ids.report().dropped_ratio, 0);
  EXPECT_GT(ids.report().dropped_identical, 0);

  TokenizedCorpusOptions one_text = options;
  one_text.form = SequenceForm::decoder_only;
  EXPECT_EQ(TextPairs(memory, tokenizer, one_text, {}, 1).fingerprint(),
            TokenizedCorpus(memory, tokenizer, one_text, 1).fingerprint());

  const TextCorpus forms[] = {
      load_parallel(source, target, on_disk()),
      load_parallel(write_gzip("a.src.gz", lines.source), target, on_disk()),
      load_tsv(write("a.tsv", lines.tsv), on_disk())};
  for (const int64_t window : {int64_t{0}, int64_t{100}}) {
    for (const int64_t maxi : {int64_t{0}, int64_t{4}}) {
      BatcherOptions order;
      order.sort_window = window;
      order.maxi_batch = maxi;
      const auto expected = batches(ids, order);
      for (const TextCorpus& form : forms) {
        EXPECT_TRUE(form.is_large());
        EXPECT_EQ(form.size(), memory.size());
        EXPECT_EQ(form.fingerprint(), memory.fingerprint());
        for (const int threads : {1, 3}) {
          const TextPairs pairs(form, tokenizer, options, {}, threads);
          EXPECT_EQ(pairs.fingerprint(), ids.fingerprint());
          const auto got = batches(pairs, order);
          expect_same(got, expected);
          // Counts that a corpus in memory knows beforehand are found during the epoch here.
          const PairDrops& drops = got.back().epoch_drops;
          EXPECT_EQ(drops.too_long, ids.report().dropped_long);
          EXPECT_EQ(drops.ratio, ids.report().dropped_ratio);
          EXPECT_EQ(drops.identical, ids.report().dropped_identical);
        }
      }
    }
  }
  // Nothing of what was unpacked has a name.
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path() / "unpacked"));
}

TEST_F(TextCorpusTest, APositionIsFoundAgainInEveryWindow) {
  const PairFiles lines = random_lines(400);
  const TextCorpus corpus =
      load_parallel(write("a", lines.source), write("b", lines.target), on_disk());
  const Tokenizer tokenizer = tokenizer_of(corpus);
  TokenizedCorpusOptions options;
  options.max_length = 40;
  options.batch_tokens = 150;
  const TextPairs pairs(corpus, tokenizer, options, {.source_alpha = 0.3, .target_alpha = 0.5}, 2);
  BatcherOptions order;
  order.sort_window = 70;
  order.maxi_batch = 5;
  Batcher original(pairs, order);
  std::vector<BatcherState> states;
  std::vector<PackedBatchHost> all;
  for (int epochs = 0; epochs < 3; epochs += all.back().last_in_epoch ? 1 : 0) {
    states.push_back(original.state());
    original.next(all.emplace_back());
  }
  std::map<int64_t, std::set<std::vector<int32_t>>> targets;  // of each pair in three epochs
  for (const PackedBatchHost& batch : all)
    for (size_t i = 0; i < batch.sentence_ids.size(); ++i)
      targets[batch.sentence_ids[i]].insert(
          {batch.target_out.begin() + batch.target_cu_seqlens[i],
           batch.target_out.begin() + batch.target_cu_seqlens[i + 1]});
  const auto varied = std::count_if(targets.begin(), targets.end(),
                                    [](const auto& each) { return each.second.size() == 3; });
  EXPECT_GT(varied, 100);
  for (size_t cut = 0; cut < all.size(); cut += 13) {
    PrefetchingBatcher again(pairs, order, 3);
    again.seek(states[cut]);
    std::vector<PackedBatchHost> rest, expected;
    for (size_t i = cut; i < std::min(all.size(), cut + 9); ++i) {
      EXPECT_EQ(again.state(), states[i]);
      again.next(rest.emplace_back());
      expected.push_back(all[i]);
    }
    expect_same(rest, expected);
  }
}

template <class Function>
std::string message_or_none(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return concat(error_code_name(error.code()), " ", error.message());
  }
  return "no error";
}

TEST_F(TextCorpusTest, ErrorsAreTheSameOnDisk) {
  const auto same = [&](const std::string& source, const std::string& target) {
    const std::string a = write("x.src", source), b = write("x.trg", target);
    const std::string memory = message_or_none([&] { load_parallel(a, b); });
    EXPECT_NE(memory, "no error");
    EXPECT_EQ(memory, message_or_none([&] { load_parallel(a, b, on_disk()); }));
  };
  same("a\nb\n", "a\n");
  same("a\n", "a\nb\n");
  same("a\nb\xff\nc", "a\nb\nc\xff");
  same("a\nb\nc\xff", "a\nb\xff\nc");
  same("a\nb\xff\n", "a\nb\xfe\n");  // in one line: the source is named
  same("a\nb\nc\xff", "a\n");
  same("a\n", "a\nb\nc\xff");
  same("a\n", std::string("b\0", 2));
  same("", "");
  same("a\n", " \n");
  same("a\n", std::string((1 << 20) + 1, 'x'));
  const std::string tsv = write("x.tsv", "a\tb\nnone\n");
  EXPECT_EQ(message_or_none([&] { load_tsv(tsv); }),
            message_or_none([&] { load_tsv(tsv, on_disk()); }));
  const std::string gone = (directory_.path() / "none").string();
  EXPECT_EQ(message_or_none([&] { load_tsv(gone); }),
            message_or_none([&] { load_tsv(gone, on_disk()); }));
  LoadOptions nowhere = on_disk();
  nowhere.unpack_directory = tsv;  // not a directory
  const std::string full =
      message_or_none([&] { load_tsv(write_gzip("y.gz", "a\tb\n"), nowhere); });
  EXPECT_NE(full.find("cannot be unpacked in"), std::string::npos) << full;
}

TEST_F(TextCorpusTest, AFileThatIsEditedWhileItIsReadIsAnError) {
  const PairFiles lines = random_lines(200);
  const std::string source = write("a", lines.source), target = write("b", lines.target);
  const TextCorpus corpus = load_parallel(source, target, on_disk());
  PairBuffers buffers;
  corpus.view(0, buffers);
  std::ofstream(source, std::ios::app) << "one more\n";
  // Later pairs are checked now and then.
  for (const int64_t pair : {0, 64, 128})
    EXPECT_NE(message_or_none([&] { corpus.view(pair, buffers); }).find("has changed while"),
              std::string::npos)
        << pair;
}

TEST_F(TextCorpusTest, ACorpusOnDiskClosesItsFiles) {
  const PairFiles lines = random_lines(20);
  const std::string source = write("a", lines.source), target = write("b", lines.target);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  {
    const TextCorpus corpus = load_parallel(source, target, on_disk());
    EXPECT_EQ(open_files(), before + 2);
  }
  EXPECT_EQ(open_files(), before);
}

// Text that can be read only once is not tried in memory first.
TEST_F(TextCorpusTest, ALargeTextOfANamedPipeStaysOnDisk) {
  const std::string path = (directory_.path() / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "one\ntwo\n\nfour\n"; });
  LoadOptions options = on_disk();
  options.memory_bytes = 100;
  const TextCorpus corpus = load_monolingual(path, options);
  writer.join();
  PairBuffers buffers;
  EXPECT_EQ(corpus.view(2, buffers).target, "four");
  EXPECT_EQ(corpus.report().lines, 4);
  EXPECT_EQ(corpus.report().pairs, 3);
  EXPECT_EQ(corpus.report().dropped_empty, 1);
}

TEST_F(TextCorpusTest, PairsKnowTheirLines) {
  const std::string source = write("a.src", "\nb\n\n\ne\nf\ng\n"),
                    target = write("a.trg", "A\nB\n\nD\nE\n \nG\n"),
                    tsv = write("a.tsv", "\tA\nb\tB\n\t\n\tD\ne\tE\nf\t \ng\tG\n");
  const TextCorpus forms[] = {load_parallel(source, target),
                              load_parallel(source, target, on_disk()), load_tsv(tsv),
                              load_tsv(tsv, on_disk())};
  for (const TextCorpus& corpus : forms) {
    ASSERT_EQ(corpus.size(), 3);
    EXPECT_EQ(corpus.lines(), 7);
    EXPECT_EQ(corpus.line(0), 1);
    EXPECT_EQ(corpus.line(1), 4);
    EXPECT_EQ(corpus.line(2), 6);
    const TextCorpus mix = TextCorpus::mix({{corpus, 1}, {corpus, 2}});
    EXPECT_EQ(mix.lines(), 14);
    EXPECT_EQ(mix.line(2), 6);
    EXPECT_EQ(mix.line(3), 8);
    EXPECT_EQ(mix.line(5), 13);
    const TextCorpus held = mix.hold_out(2).second;
    EXPECT_EQ(held.lines(), held.size());
    EXPECT_EQ(held.line(held.size() - 1), held.size() - 1);
  }
  const TextCorpus all = load_monolingual(write("a", "one\ntwo\n"));
  EXPECT_EQ(all.line(1), 1);
  EXPECT_EQ(all.lines(), 2);
}

TEST_F(TextCorpusTest, FingerprintsNoticeAnyEdit) {
  const PairFiles lines = random_lines(50);
  std::set<uint64_t> prints;
  std::string edited = lines.source;
  const auto print = [&](const LoadOptions& options) {
    return load_parallel(write("a", edited), write("b", lines.target), options).fingerprint();
  };
  prints.insert(print({}));
  EXPECT_EQ(print(on_disk()), *prints.begin());
  edited[2] ^= 1;
  prints.insert(print({}));
  const size_t line = lines.source.find('\n', 40);
  edited = lines.source.substr(line + 1) + lines.source.substr(0, line + 1);  // another order
  prints.insert(print(on_disk()));
  EXPECT_EQ(prints.size(), 3u);
}

// Checkpoints hold them: a run of an earlier release resumes with the same text only if they stay.
TEST_F(TextCorpusTest, FingerprintsAreThoseOfEarlierReleases) {
  const std::string source = write("a", "Ein Hund läuft über die Straße.\nzwei\n\nacht Byte\n");
  const std::string target = write("b", "A dog runs across the street.\ntwo\n\n8 bytes.\n");
  EXPECT_EQ(load_parallel(source, target).fingerprint(), 492067262464663385u);
  EXPECT_EQ(load_monolingual(source).fingerprint(), 289652435655563890u);
  const auto [kept, held] = load_parallel(source, target).hold_out(1);
  EXPECT_EQ(kept.fingerprint(), 3680466059619761750u);
  EXPECT_EQ(held.fingerprint(), 543217151617930686u);
}

TEST_F(TextCorpusTest, CopiesAloneCannotBeHeldOut) {
  const TextCorpus copies = load_monolingual(write("a", "one\none\none\none\n"));
  expect_error(ErrorCode::invalid_argument,
               "all 4 pairs are copies of the 1 that would be held out",
               [&] { copies.hold_out(2); });
}

TEST(EpochMix, WeightsAreHowOftenAPairIsDrawn) {
  const EpochMix mix({{10, 1.0}, {7, 3.0}, {9, 0.25}});
  std::map<int64_t, int> total;
  int64_t draws = 0;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    draws += mix.draws(epoch);
    std::map<int64_t, int> counts;
    for (int64_t i = 0; i < mix.draws(epoch); ++i) ++counts[mix.pair(epoch, i)];
    for (int64_t pair = 0; pair < 26; ++pair) {
      if (pair < 17) {
        EXPECT_EQ(counts[pair], pair < 10 ? 1 : 3) << pair;
      }
      total[pair] += counts[pair];
    }
  }
  EXPECT_EQ(draws, 4 * (10 + 21) + 9);
  for (int64_t pair = 17; pair < 26; ++pair) EXPECT_EQ(total[pair], 1) << pair;  // each quarter
  for (const double bad : {0.0, -1.0, 1e7, 0.05}) EXPECT_THROW(EpochMix({{10, bad}}), Error);
  // Draws are numbered in 32 bits: 2^32 - 1 of them, of all corpora together.
  EXPECT_EQ(EpochMix({{(int64_t{1} << 31) - 1, 2.0}, {1, 1.0}}).draws(0), int64_t{UINT32_MAX});
  EXPECT_THROW(EpochMix({{(int64_t{1} << 31) - 1, 2.0}, {1, 2.0}}), Error);
  EXPECT_THROW(EpochMix({{int64_t{1} << 24, 1000.0}}), Error);
}

TEST_F(TextCorpusTest, MixesAreTrainedOnAlikeInMemoryAndOnDisk) {
  const PairFiles one = random_lines(150, 1), two = random_lines(60, 2);
  const auto mixed = [&](const LoadOptions& options) {
    return TextCorpus::mix(
        {{load_parallel(write("a", one.source), write("b", one.target), options), 0.5},
         {load_parallel(write("c", two.source), write("d", two.target), options), 2}});
  };
  const TextCorpus memory = mixed({}), disk = mixed(on_disk());
  EXPECT_EQ(memory.fingerprint(), disk.fingerprint());
  const Tokenizer tokenizer = tokenizer_of(memory);
  TokenizedCorpusOptions options;
  options.batch_tokens = 300;
  expect_same(batches(TokenizedCorpus(memory, tokenizer, options), {}, 4),
              batches(TextPairs(disk, tokenizer, options, {}, 2), {}, 4));
  EXPECT_NE(memory.fingerprint(),
            TextCorpus::mix({{load_parallel(write("a", one.source), write("b", one.target)), 1},
                             {load_parallel(write("c", two.source), write("d", two.target)), 2}})
                .fingerprint());
}

TEST_F(TextCorpusTest, DroppedPairsAreCountedOnceWhenSomeAreHeldOut) {
  const PairFiles lines = random_lines(60);
  const TextCorpus corpus = load_parallel(write("s", lines.source), write("t", lines.target));
  ASSERT_EQ(corpus.report().dropped_empty, 3);
  const auto [rest, held] = corpus.hold_out(10);
  EXPECT_EQ(rest.report().dropped_empty, 3);
  EXPECT_EQ(held.report().dropped_empty, 0);
  EXPECT_EQ(held.report().lines, held.report().pairs);
  const auto [more, last] = held.hold_out(2);
  EXPECT_EQ(more.report().dropped_empty + last.report().dropped_empty, 0);
}

TEST_F(TextCorpusTest, HeldOutPairsAreNotTrainedOn) {
  PairFiles lines = random_lines(300);
  lines.source += lines.source;  // every pair twice
  lines.target += "\n" + lines.target;
  const auto check = [&](const TextCorpus& corpus) {
    const auto [rest, held] = corpus.hold_out(20);
    std::set<std::pair<std::string, std::string>> out;
    PairBuffers buffers;
    for (int64_t i = 0; i < held.size(); ++i) {
      const PairView pair = held.view(i, buffers);
      EXPECT_TRUE(out.emplace(pair.source, pair.target).second) << "a copy is held out";
    }
    EXPECT_GE(out.size(), 10u);
    EXPECT_EQ(corpus.size(), rest.size() + 2 * held.size());
    for (int64_t i = 0; i < rest.size(); ++i) {
      const PairView pair = rest.view(i, buffers);
      EXPECT_FALSE(out.contains({std::string(pair.source), std::string(pair.target)}));
    }
    EXPECT_NE(rest.fingerprint(), held.fingerprint());
    EXPECT_THROW(corpus.hold_out(0), Error);
    EXPECT_NE(message_or_none([&] { corpus.hold_out(corpus.size()); }).find("cannot hold out"),
              std::string::npos);
    return rest.fingerprint();
  };
  const std::string source = write("a", lines.source), target = write("b", lines.target);
  EXPECT_EQ(check(load_parallel(source, target)), check(load_parallel(source, target, on_disk())));
}

// The size of a compressed file says little about its text: what counts is what it takes unpacked.
TEST_F(TextCorpusTest, CompressedTextIsCountedUnpacked) {
  std::string lines, tsv;
  for (int i = 0; i < 200'000; ++i) {
    lines += "a\n";
    tsv += "a\tb\n";
  }
  LoadOptions options;
  options.memory_bytes = 4 << 20;
  options.unpack_directory = directory_.path().string();
  const std::string source = write_gzip("a.gz", lines), target = write_gzip("b.gz", lines),
                    both = write_gzip("c.gz", tsv), plain = write("plain", lines);
  ASSERT_LT(std::filesystem::file_size(source), 1000u);
  for (int form = 0; form < 4; ++form) {
    const TextCorpus corpus = form == 0   ? load_parallel(source, target, options)
                              : form == 1 ? load_tsv(both, options)
                              : form == 2 ? load_monolingual(source, options)
                                          : load_monolingual(plain, options);
    // 200,000 pairs with 72 bytes each are 14 MB: they are read from the disk.
    PairBuffers buffers;
    const auto is_of_disk = [&](const TextCorpus& text) {
      const char* bytes = text.view(5, buffers).target.data();
      const auto has = [bytes](const std::string& read) {
        return bytes >= read.data() && bytes <= read.data() + read.size();
      };
      return has(buffers.line) || has(buffers.target);
    };
    EXPECT_TRUE(is_of_disk(corpus)) << form;
    EXPECT_EQ(corpus.size(), 200'000);
    LoadOptions large;
    const TextCorpus in_memory = form == 0   ? load_parallel(source, target, large)
                                 : form == 1 ? load_tsv(both, large)
                                             : load_monolingual(source, large);
    EXPECT_FALSE(is_of_disk(in_memory));
    EXPECT_EQ(corpus.fingerprint(), in_memory.fingerprint());
  }
}

TEST_F(TextCorpusTest, MonolingualTextIsAStreamAfterEos) {
  const std::string path = write("m", "one two\n\nthree\n");
  for (const LoadOptions& load : {LoadOptions{}, on_disk()}) {
    const TextCorpus text = load_monolingual(path, load);
    EXPECT_TRUE(text.monolingual());
    EXPECT_EQ(text.report().dropped_empty, 1);
    TokenizerTrainOptions train;
    train.vocab_size = 30;
    train.hard_vocab_limit = false;
    const Tokenizer tokenizer = train_tokenizer(text, train);
    TokenizedCorpusOptions options;
    options.form = SequenceForm::decoder_only;
    options.drop_identical = true;  // says nothing about text without a source
    const TextPairs pairs(text, tokenizer, options, {}, 1);
    BatcherOptions order;
    order.shuffle = false;
    const PackedBatchHost batch = batches(pairs, order, 1).front();
    ASSERT_EQ(batch.sentences(), 2);
    std::vector<int32_t> in{tokenizer.eos_id()}, out = tokenizer.encode("three");
    in.insert(in.end(), out.begin(), out.end());
    out.push_back(tokenizer.eos_id());
    const auto length = static_cast<std::ptrdiff_t>(in.size());
    EXPECT_EQ(std::vector<int32_t>(batch.target_in.begin(), batch.target_in.begin() + length), in);
    EXPECT_EQ(std::vector<int32_t>(batch.target_out.begin(), batch.target_out.begin() + length),
              out);
    EXPECT_EQ(batch.target_weights, std::vector<float>(batch.target_in.size(), 1.0f));
  }
  EXPECT_THROW(TextCorpus::mix({{load_monolingual(path), 1}, {load_parallel(path, path), 1}}),
               Error);
}

}  // namespace
}  // namespace trafo
