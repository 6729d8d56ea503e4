// Files of token ids of other programs.
#include <algorithm>
#include <optional>

#include "engine/data/text_corpus.h"
#include "engine/data/token_files/token_layout.h"
#include "engine/data/token_files/token_text.h"
#include "engine/data/token_files/token_writer.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace trafo::fuzz {
namespace {

constexpr unsigned kFormats = 3, kOnDisk = 4, kHasEnd = 8;

CorpusFormat format_of(unsigned mode) {
  return static_cast<CorpusFormat>(static_cast<unsigned>(CorpusFormat::llm_c) +
                                   (mode & 3) % kFormats);
}

// Every token of the file is in one row, documents without text apart.
void check_rows(const TextCorpus& corpus, size_t file_bytes) {
  PairBuffers buffers;
  size_t tokens = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const PairView row = corpus.view(i, buffers);
    const size_t length = row.target.size() / sizeof(int32_t);
    expect(length > 0 && length <= static_cast<size_t>(kTokenRow), "a row of no or many tokens");
    expect(row.source.size() <= sizeof(int32_t), "a row continues after several tokens");
    expect(i > 0 || row.source.empty(), "the first row continues a document");
    tokens += length;
  }
  expect(2 * tokens <= file_bytes, "more tokens than the file has");
  const CorpusReport report = corpus.report();
  expect(report.lines == report.pairs + report.dropped_empty, "rows that are not counted");
}

std::string from_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// A mode, the length of the index (two bytes), the index and the tokens.
void run_token_files(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte(), low = parts.byte();
  const size_t length = low + 256 * parts.byte();
  const std::string_view rest = parts.rest();
  const std::string_view index = rest.substr(0, length), tokens = rest.substr(index.size());
  LoadOptions options;
  options.format = format_of(mode);
  options.memory_bytes = mode & kOnDisk ? 0 : int64_t{1} << 30;
  if (mode & kHasEnd && options.format != CorpusFormat::megatron) options.document_end = mode >> 4;
  folder().write("t.idx", index);
  const std::string path = folder().write("t.bin", tokens).string();
  std::optional<TextCorpus> corpus;
  if (!attempt([&] { corpus.emplace(load_monolingual(path, options)); })) return;
  check_rows(*corpus, tokens.size());
  attempt([&] { TokenizedCorpus(*corpus, PairEncoding(VocabularyTokens(), 300), {}, 1); });
}

std::vector<Seed> token_files_seeds() {
  TokenizerTrainOptions bytes;
  bytes.kind = "byte";
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(), bytes);
  const TextCorpus text =
      load_monolingual(folder().write("text", "one two\nthree\n\nfour\n").string());
  const unsigned end = static_cast<unsigned>(tokenizer.eos_id()) << 4;
  const std::string path = (folder().path() / "seed.bin").string();
  std::vector<Seed> seeds;
  for (unsigned mode = 0; mode < kFormats; ++mode) {
    write_token_file(text, tokenizer, format_of(mode), path, 1);
    const bool has_index = format_of(mode) == CorpusFormat::megatron;
    const std::string index = has_index ? from_file(folder().path() / "seed.idx") : "";
    for (const unsigned more : {0u, kOnDisk, kHasEnd | end}) {
      const std::string head = {static_cast<char>(mode | more), static_cast<char>(index.size()), 0};
      seeds.push_back({concat("format", mode, "-", more), head + index + from_file(path)});
    }
  }
  return seeds;
}

}  // namespace trafo::fuzz
