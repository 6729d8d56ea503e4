// Files of token ids of llm.c, nanoGPT and Megatron: their bytes, their documents as rows, damage,
// and text that is written to them.
#include "engine/data/token_files/token_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/data/batcher.h"
#include "engine/data/long_text.h"
#include "engine/data/text_pairs.h"
#include "engine/data/token_files/token_text.h"
#include "engine/data/token_files/token_writer.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using namespace testing;

using Ids = std::vector<int32_t>;
struct Row {
  Ids source, target;
  bool operator==(const Row&) const = default;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << PrintToString(row.source) << " -> " << PrintToString(row.target);
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

template <class T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
  std::string bytes(numbers.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Python's struct.pack wrote these bytes, after the definitions of the three programs:
// write_datafile of llm.c's dev/data/data_common.py, tofile() of numpy.uint16 in nanoGPT's
// prepare.py, and _IndexWriter of Megatron's indexed_dataset.py.
// '<256i', 20240520, 1, 7, 0 ...; '<7H', 50256, 464, 3290, 50256, 65535, 0, 50256
const std::string kTokens = from_hex("50c4d001da0c50c4ffff000050c4");
const std::string kLlmcFile =
    from_hex("88d834010100000007000000") + std::string(1012, '\0') + kTokens;
// '<256i', 20240801, 7, 3, 0 ...; '<3I', 128000, 9906, 128000
const std::string kLlama3File = from_hex("a1d934010700000003000000") + std::string(1012, '\0') +
                                from_hex("00f40100b226000000f40100");
// uint16, sequences of 2, 1 and 3 tokens, documents of sequences 0 and 1, of none, and of 2;
// '<6H', 10, 11, 12, 20, 21, 2
const std::string kIndex = from_hex(
    "4d4d494449445800000100000000000000080300000000000000040000000000000002000000010000000300000000"
    "0000000000000004000000000000000600000000000000000000000000000002000000000000000200000000000000"
    "03"
    "00000000000000");
const std::string kMegatronTokens = from_hex("0a000b000c00140015000200");
// int32, a document of one sequence; '<2i', 70000, 2
const std::string kWideIndex = from_hex(
    "4d4d494449445800000100000000000000040100000000000000020000000000000002000000000000000000000000"
    "000000000000000100000000000000");
const std::string kWideTokens = from_hex("7011010002000000");

class TokenFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }

  static LoadOptions as(CorpusFormat format, int64_t document_end = -1) {
    LoadOptions options;
    options.format = format;
    options.document_end = document_end;
    return options;
  }
  static std::vector<Row> rows(const TextCorpus& corpus) {
    const auto ids = [](std::string_view bytes) {
      Ids numbers(bytes.size() / 4);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      return numbers;
    };
    std::vector<Row> found;
    PairBuffers buffers;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      const PairView pair = corpus.view(i, buffers);
      found.push_back({ids(pair.source), ids(pair.target)});
    }
    return found;
  }
  void refused(ErrorCode code, const std::string& part, const std::string& bytes,
               CorpusFormat format, int64_t document_end = -1) const {
    const std::string path = write("t.bin", bytes);
    expect_error(code, part, [&] { load_monolingual(path, as(format, document_end)); });
  }

  TemporaryDirectory folder_;
};

TEST_F(TokenFiles, BytesOfTheOtherPrograms) {
  const std::string llmc = write("gpt2.bin", kLlmcFile), wide = write("llama3.bin", kLlama3File),
                    raw = write("raw.bin", kTokens);
  const std::vector<Row> split = {{{}, {464, 3290, 50256}}, {{}, {65535, 0, 50256}}};
  for (const TextCorpus& corpus : {load_monolingual(llmc, as(CorpusFormat::llm_c, 50256)),
                                   load_tsv(llmc, as(CorpusFormat::llm_c, 50256)),
                                   load_monolingual(raw, as(CorpusFormat::nanogpt, 50256))}) {
    EXPECT_TRUE(corpus.has_ids() && corpus.monolingual());
    EXPECT_EQ(rows(corpus), split);
    // The end in front of the first document is one without text.
    EXPECT_EQ(corpus.report().lines, 3);
    EXPECT_EQ(corpus.report().dropped_empty, 1);
    EXPECT_EQ(corpus.line(1), 2);
    EXPECT_TRUE(corpus.place(1).ends_with(".bin: the text from token 4 on")) << corpus.place(1);
  }
  EXPECT_EQ(rows(load_monolingual(raw, as(CorpusFormat::nanogpt))),
            (std::vector<Row>{{{}, {50256, 464, 3290, 50256, 65535, 0, 50256}}}));
  EXPECT_EQ(rows(load_monolingual(wide, as(CorpusFormat::llm_c, 128000))),
            (std::vector<Row>{{{}, {9906, 128000}}}));

  write("m.idx", kIndex);
  const TextCorpus megatron =
      load_monolingual(write("m.bin", kMegatronTokens), as(CorpusFormat::megatron));
  EXPECT_EQ(rows(megatron), (std::vector<Row>{{{}, {10, 11, 12}}, {{}, {20, 21, 2}}}));
  EXPECT_EQ(megatron.report().lines, 3);
  EXPECT_EQ(megatron.report().dropped_empty, 1);
  write("w.idx", kWideIndex);
  EXPECT_EQ(rows(load_monolingual(write("w.bin", kWideTokens), as(CorpusFormat::megatron))),
            (std::vector<Row>{{{}, {70000, 2}}}));
}

// Whether a document is longer than a row or ends at its border, each token is learned once, after
// the token before it.
TEST_F(TokenFiles, LongDocumentsGoOnInTheNextRow) {
  constexpr int64_t kRow = kTokenRow;
  constexpr uint16_t kEnd = 7;
  for (const int64_t length : {kRow - 1, kRow, kRow + 1, 2 * kRow, 2 * kRow + 5}) {
    std::vector<uint16_t> tokens;
    for (int64_t i = 0; i + 1 < length; ++i) tokens.push_back(static_cast<uint16_t>(8 + i % 1000));
    tokens.push_back(kEnd);
    tokens.insert(tokens.end(), {100, 101, kEnd});
    const TextCorpus corpus = load_monolingual(write("long.bin", bytes_of_numbers(tokens)),
                                               as(CorpusFormat::nanogpt, kEnd));
    const int64_t expected = (length + kRow - 1) / kRow;
    const std::vector<Row> found = rows(corpus);
    ASSERT_EQ(std::ssize(found), expected + 1) << length;
    Ids joined;
    for (size_t i = 0; i < found.size(); ++i) {
      const bool goes_on = i > 0 && i + 1 < found.size();
      EXPECT_EQ(found[i].source, goes_on ? Ids{joined.back()} : Ids{}) << length << " " << i;
      EXPECT_LE(std::ssize(found[i].target), kRow);
      joined.insert(joined.end(), found[i].target.begin(), found[i].target.end());
    }
    EXPECT_EQ(joined, Ids(tokens.begin(), tokens.end())) << length;
  }
  // The same documents by an index.
  std::vector<int32_t> tokens(kRow + 3);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  write("long.idx", from_hex("4d4d494449445800000100000000000000") + '\x04' +
                        bytes_of_numbers<uint64_t>({2, 3}) +
                        bytes_of_numbers<int32_t>({static_cast<int32_t>(kRow), 3}) +
                        bytes_of_numbers<int64_t>({0, 4 * kRow}) +
                        bytes_of_numbers<int64_t>({0, 1, 2}));
  const std::vector<Row> found = rows(
      load_monolingual(write("long.bin", bytes_of_numbers(tokens)), as(CorpusFormat::megatron)));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(std::ssize(found[0].target), kRow);
  EXPECT_EQ(found[1], (Row{{},
                           {static_cast<int32_t>(kRow), static_cast<int32_t>(kRow) + 1,
                            static_cast<int32_t>(kRow) + 2}}));
}

TEST_F(TokenFiles, DamageIsNamedWithFileAndPlace) {
  using enum CorpusFormat;
  const auto corrupt = [&](const std::string& part, const std::string& bytes, CorpusFormat format) {
    refused(ErrorCode::corrupt_file, part, bytes, format);
  };
  const auto changed = [](std::string bytes, size_t at, const std::string& with) {
    return bytes.replace(at, with.size(), with);
  };
  const std::string count = from_hex("08000000"), negative = from_hex("ffffffff");
  corrupt("t.bin: has 1023 bytes, the header of llm.c has 1024", kLlmcFile.substr(0, 1023), llm_c);
  corrupt(
      "t.bin: begins with 20240521; token files of llm.c begin with 20240520 (GPT-2) or 20240801",
      changed(kLlmcFile, 0, from_hex("89")), llm_c);
  corrupt("t.bin: has version 2 of llm.c's format 20240520, it must be 1",
          changed(kLlmcFile, 4, from_hex("02")), llm_c);
  corrupt("t.bin: its header says 8 tokens of 2 bytes, and there are 14 bytes after it",
          changed(kLlmcFile, 8, count), llm_c);
  corrupt("its header says -1 tokens", changed(kLlmcFile, 8, negative), llm_c);
  corrupt("there are 13 bytes after it", kLlmcFile.substr(0, 1037), llm_c);
  corrupt("t.bin: token 1 is 4294967295, which no vocabulary has",
          changed(kLlama3File, 1028, negative), llm_c);
  corrupt("t.bin: has 13 bytes, and a token of nanoGPT has 2", kTokens.substr(1), nanogpt);
  refused(ErrorCode::invalid_argument, "t.bin: has 0 tokens and no document", "", nanogpt);
  refused(ErrorCode::invalid_argument, "has 1 tokens and no document", kTokens.substr(0, 2),
          nanogpt, 50256);
  refused(ErrorCode::invalid_argument, "document_end is 2147483648", kTokens, nanogpt,
          int64_t{1} << 31);
}

TEST_F(TokenFiles, DamagedIndices) {
  const auto index = [&](const std::string& part, const std::string& bytes,
                         const std::string& tokens = kMegatronTokens) {
    write("t.idx", bytes);
    refused(ErrorCode::corrupt_file, part, tokens, CorpusFormat::megatron);
  };
  const auto changed = [](size_t at, const std::string& hex) {
    std::string bytes = kIndex;
    return bytes.replace(at, hex.size() / 2, from_hex(hex));
  };
  index("t.idx: has 33 bytes, the header of Megatron's index has 34", kIndex.substr(0, 33));
  index("t.idx: does not begin with MMIDIDX", changed(8, "01"));
  index("t.idx: has version 2, it must be 1", changed(9, "02"));
  index("t.idx: has tokens of type 5, they must be 4 (int32) or 8 (uint16)", changed(17, "05"));
  index("t.idx: its header says 4 sequences", changed(18, "04"));
  index("its header says 18446744073709551615 sequences", changed(18, "ffffffffffffffff"));
  index("4 borders of documents of 8, and there are 69 bytes", kIndex + '\0');
  index("sequence 1 begins at byte 3, it must be 4, where the one before it ends",
        changed(54, "03"));
  index("sequence 0 has -1 tokens", changed(34, "ffffffff"));
  index("sequence 2 has 4 tokens, and ", changed(42, "04"));
  index("t.bin has 3 left", changed(42, "04"));
  index("border 0 of the documents is sequence 1, it must be 0", changed(70, "01"));
  index("border 2 of the documents is sequence 1, it must be 2 to 3", changed(86, "01"));
  index("border 3 of the documents is sequence 9, it must be 2 to 3", changed(94, "09"));
  index("the last border of the documents is sequence 2, it must be 3", changed(94, "02"));
  index("t.bin: has 14 bytes, ", kIndex, kMegatronTokens + "ab");
  index("t.bin: token 0 is -2, which no vocabulary has", kWideIndex, from_hex("feffffff02000000"));
  // Each beginning of a file is refused, and so is a file without its index.
  for (size_t size = 0; size < kIndex.size(); ++size) {
    write("t.idx", kIndex.substr(0, size));
    refused(ErrorCode::corrupt_file, "t.idx: ", kMegatronTokens, CorpusFormat::megatron);
  }
  const std::string alone = write("alone.bin", kMegatronTokens);
  expect_error(ErrorCode::not_found, "alone.idx",
               [&] { load_monolingual(alone, as(CorpusFormat::megatron)); });
}

TEST_F(TokenFiles, OtherFilesAndUsesAreRefused) {
  const LoadOptions options = as(CorpusFormat::nanogpt);
  const auto refuses = [&](const std::string& part, const auto& call) {
    expect_error(ErrorCode::invalid_argument, part, call);
  };
  const std::string file = write("t.bin", kTokens);
  refuses("not from standard input", [&] { load_monolingual("-", options); });
  refuses("is no regular file", [&] { load_monolingual(folder_.path().string(), options); });
  refuses("is named .gz", [&] { load_monolingual(write("t.gz", kTokens), options); });
  refuses("2 paths: a file of token ids", [&] { load_parallel(file, file, options); });
  refuses("1 paths of preferences", [&] { load_preferences({{file}}, options); });
  refuses("are NAME.bin and NAME.idx: give NAME.bin",
          [&] { load_monolingual(write("t.idx", kIndex), as(CorpusFormat::megatron)); });
  refuses("Megatron's index says where documents end",
          [&] { load_monolingual(file, as(CorpusFormat::megatron, 2)); });
  expect_error(ErrorCode::not_found, "none.bin",
               [&] { load_monolingual(path_of("none.bin"), options); });
  refuses("cannot be mixed", [&] {
    TextCorpus::mix({{load_monolingual(file, options), 1.0},
                     {load_monolingual(write("a.txt", "text\n")), 1.0}});
  });
  // An id that the model does not have is found before the first batch, with its place.
  VocabularyTokens tokens;
  refuses("t.bin: token 4 is 65535, the vocabulary has 0 to 50256", [&] {
    TokenizedCorpus(load_monolingual(file, as(CorpusFormat::nanogpt, 50256)),
                    PairEncoding(tokens, 50257), {});
  });
  // A file that changes under a run is an error.
  const TextCorpus corpus = load_monolingual(file, options);
  write("t.bin", kTokens.substr(0, 4));
  PairBuffers buffers;
  expect_error(ErrorCode::io, "has changed", [&] { corpus.view(0, buffers); });
}

class WrittenTokenFiles : public TokenFiles {
 protected:
  WrittenTokenFiles() {
    std::string lines;
    for (int i = 0; i < 400; ++i)
      for (int word = 0; word < 1 + i % 37; ++word)
        lines += concat("w", (i * 7 + word * 13) % 50, word == i % 37 ? "\n" : " ");
    text_.emplace(load_monolingual(write("text.txt", lines)));
    TokenizerTrainOptions options;
    options.vocab_size = 120;
    options.hard_vocab_limit = false;
    std::vector<std::string> words;
    PairBuffers buffers;
    for (int64_t i = 0; i < text_->size(); ++i) words.emplace_back(text_->view(i, buffers).target);
    tokenizer_.emplace(Tokenizer::train(std::span<const std::string>(words), options));
  }
  static TokenizedCorpusOptions windows() {
    TokenizedCorpusOptions options;
    options.form = SequenceForm::decoder_only;
    options.max_length = 16;
    options.window_stride = 12;
    options.batch_tokens = 64;
    return options;
  }
  // The batches of two epochs.
  static std::vector<PackedBatchHost> batches(const PairSource& corpus) {
    Batcher batcher(corpus, {.seed = 3, .sort_window = 64});
    std::vector<PackedBatchHost> all;
    for (int epochs = 0; epochs < 2; epochs += all.back().last_in_epoch)
      batcher.next(all.emplace_back());
    return all;
  }

  std::optional<TextCorpus> text_;
  std::optional<Tokenizer> tokenizer_;
};

// Training on the file has the batches of training on the text, from memory and from disk.
TEST_F(WrittenTokenFiles, TrainAsTheirText) {
  const PairEncoding encoding(*tokenizer_);
  const std::vector<PackedBatchHost> expected =
      batches(TokenizedCorpus(*text_, encoding, windows(), 1));
  ASSERT_GT(expected.size(), 40u);
  for (const CorpusFormat format :
       {CorpusFormat::llm_c, CorpusFormat::nanogpt, CorpusFormat::megatron}) {
    const std::string path = path_of(concat("f", static_cast<int>(format), ".bin"));
    const TokenFileSize size = write_token_file(*text_, *tokenizer_, format, path, 2);
    LoadOptions options = as(format, format == CorpusFormat::megatron ? -1 : tokenizer_->eos_id());
    const TextCorpus file = load_monolingual(path, options);
    EXPECT_EQ(size.documents, text_->size());
    EXPECT_EQ(file.size(), text_->size());
    EXPECT_FALSE(file.is_large());
    options.memory_bytes = 0;
    const TextCorpus large = load_monolingual(path, options);
    EXPECT_TRUE(large.is_large());
    EXPECT_EQ(large.fingerprint(), file.fingerprint());
    VocabularyTokens tokens;
    tokens.special.eos = tokenizer_->eos_id();
    const TokenizedCorpus in_memory(file, encoding, windows(), 1);
    const TextPairs on_disk(large, PairEncoding(tokens, tokenizer_->vocab_size()), windows(), {},
                            2);
    for (const PairSource* source :
         {static_cast<const PairSource*>(&in_memory), static_cast<const PairSource*>(&on_disk)}) {
      const std::vector<PackedBatchHost> found = batches(*source);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].target_in, expected[i].target_in) << i;
        EXPECT_EQ(found[i].target_out, expected[i].target_out) << i;
        EXPECT_EQ(found[i].target_weights, expected[i].target_weights) << i;
        EXPECT_EQ(found[i].target_cu_seqlens, expected[i].target_cu_seqlens) << i;
      }
    }
    int64_t all = 0;
    for (const Row& row : rows(file)) all += std::ssize(row.target);
    EXPECT_EQ(size.tokens, all);
  }
}

TEST_F(WrittenTokenFiles, BytesAreThoseOfTheFormats) {
  const TextCorpus two = load_monolingual(write("two.txt", "w1 w2\nw3\n"));
  Ids ids[2] = {tokenizer_->encode("w1 w2"), tokenizer_->encode("w3")};
  std::vector<uint16_t> tokens;
  for (Ids& each : ids) {
    each.push_back(tokenizer_->eos_id());
    tokens.insert(tokens.end(), each.begin(), each.end());
  }
  const std::string body = bytes_of_numbers(tokens);
  const auto count = static_cast<int32_t>(tokens.size()),
             first = static_cast<int32_t>(ids[0].size());
  write_token_file(two, *tokenizer_, CorpusFormat::nanogpt, path_of("n.bin"), 1);
  EXPECT_EQ(read("n.bin"), body);
  write_token_file(two, *tokenizer_, CorpusFormat::llm_c, path_of("l.bin"), 1);
  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = count;
  EXPECT_EQ(read("l.bin"), bytes_of_numbers(header) + body);
  write_token_file(two, *tokenizer_, CorpusFormat::megatron, path_of("m.bin"), 1);
  EXPECT_EQ(read("m.bin"), body);
  EXPECT_EQ(read("m.idx"), from_hex("4d4d494449445800000100000000000000") + '\x08' +
                               bytes_of_numbers<uint64_t>({2, 3}) +
                               bytes_of_numbers<int32_t>({first, count - first}) +
                               bytes_of_numbers<int64_t>({0, 2 * first}) +
                               bytes_of_numbers<int64_t>({0, 1, 2}));
  // Nothing is beside the files, and what was there is replaced whole.
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(WrittenTokenFiles, OtherCorporaAreRefused) {
  const std::string path = write("kept.bin", "kept");
  const auto refuses = [&](const std::string& part, const TextCorpus& corpus, CorpusFormat format,
                           const std::string& to) {
    expect_error(ErrorCode::invalid_argument, part,
                 [&] { write_token_file(corpus, *tokenizer_, format, to, 1); });
  };
  const TextCorpus pairs = load_tsv(write("p.tsv", "a\tb\n"));
  refuses("and the corpus has pairs", pairs, CorpusFormat::nanogpt, path);
  refuses("and the corpus has token ids", TextCorpus::of_ids({{Ids{}}}, {{Ids{1}}}),
          CorpusFormat::nanogpt, path);
  refuses(
      "and the corpus has conversations",
      load_monolingual(write(
          "c.jsonl",
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})")),
      CorpusFormat::nanogpt, path);
  refuses("not one of files of token ids", *text_, CorpusFormat::csv, path);
  refuses("give NAME.bin", *text_, CorpusFormat::megatron, path_of("kept"));
  CancelToken cancel;
  cancel.cancel();
  for (const CorpusFormat format : {CorpusFormat::llm_c, CorpusFormat::nanogpt})
    expect_error(ErrorCode::cancelled, "cancelled",
                 [&] { write_token_file(*text_, *tokenizer_, format, path, 1, &cancel); });
  EXPECT_EQ(read("kept.bin"), "kept");
}

}  // namespace
}  // namespace trafo
