#include <zlib.h>

#include <functional>

#include "engine/core/limits.h"
#include "engine/data/text_corpus.h"
#include "engine/decode/lexical_table.h"
#include "tests/interop/interop_support.h"
#include "tests/reliability/refusals.h"
#include "tests/support/memory_meter.h"

namespace trafo::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class Costs {
 public:
  explicit Costs(Suite& suite) : suite_(suite) {
    std::printf("%-52s %10s %10s\n", "text", "MiB taken", "allowed");
  }

  void expect(const std::string& what, int64_t allowed, const std::function<void()>& use) {
    suite_.tried();
    reset_memory_peak();
    try {
      use();
    } catch (const std::exception& error) {
      suite_.failed(concat(what, ": ", error.what()));
    }
    const int64_t peak = memory_peak();
    std::printf("%-52s %10.1f %10.1f\n", what.c_str(),
                static_cast<double>(peak) / static_cast<double>(kMiB),
                static_cast<double>(allowed) / static_cast<double>(kMiB));
    suite_.require(peak <= allowed, concat(what, ": ", peak, " bytes, ", allowed, " are allowed"));
  }

 private:
  Suite& suite_;
};

// `unit` again and again, packed.
std::string pack(const fs::path& file, const std::string& unit, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < 1000; ++i) text += unit;
  gzFile packed = gzopen(file.c_str(), "wb");
  for (int64_t i = 0; i < times; i += 1000)
    gzwrite(packed, text.data(), static_cast<unsigned>(text.size()));
  gzclose(packed);
  return file.string();
}

// gzip makes a text a thousand times smaller. In memory, the pairs of these would take 142 MiB.
void try_packed_corpora(Costs& costs, const fs::path& folder) {
  constexpr int64_t kPairs = 2'000'000;
  LoadOptions options;
  options.memory_bytes = 8 * kMiB;
  options.unpack_directory = folder.string();
  const std::string source = pack(folder / "source.gz", "a\n", kPairs),
                    target = pack(folder / "target.gz", "b\n", kPairs),
                    both = pack(folder / "both.gz", "a\tb\n", kPairs);
  // Where a line begins is known of each side, and a list of them grows by doubling.
  const auto allowed = [&](int64_t sides) {
    return options.memory_bytes + 3 * 8 * sides * kPairs + 8 * kMiB;
  };
  const auto size = [](const TextCorpus& corpus) {
    require(corpus.size() == kPairs, ErrorCode::internal, "test", corpus.size(), " pairs");
  };
  const auto bytes = [](const std::string& file) {
    return concat(" of ", fs::file_size(file), " bytes, packed");
  };
  costs.expect(concat("corpus, two files", bytes(source)), allowed(2),
               [&] { size(load_parallel(source, target, options)); });
  costs.expect(concat("corpus, TSV", bytes(both)), allowed(1),
               [&] { size(load_tsv(both, options)); });
  costs.expect(concat("corpus, monolingual", bytes(source)), allowed(1),
               [&] { size(load_monolingual(source, options)); });
}

// A short line that a model makes long is normalised, encoded and refused within the promise.
void try_growing_texts(Costs& costs) {
  const Tokenizer hostile =
      Tokenizer::from_bytes(model_of_a_long_letter(limits::kMappedBytes), "hostile");
  const auto allowed = static_cast<int64_t>(limits::kRefusalBytes);
  costs.expect("a line of 63 letters that become 63 KiB", allowed,
               [&] { hostile.encode(std::string(63, 'a')); });
  costs.expect("a line of 100 letters, beyond the limit", allowed, [&] {
    expect_error(ErrorCode::corrupt_file, "the limit is",
                 [&] { hostile.encode(std::string(100, 'a')); });
  });
}

// A pair of lines of 16 KiB beside short ones.
void try_long_pairs(Costs& costs) {
  const std::vector<std::vector<int32_t>> lines = {std::vector<int32_t>(8, 5),
                                                   std::vector<int32_t>(6000, 6)};
  std::vector<std::vector<int32_t>> pairs = lines;
  for (size_t i = 0; i < pairs[1].size(); ++i) pairs[1][i] = static_cast<int32_t>(4 + i);
  costs.expect("a shortlist of a pair of 6,000 tokens", 64 * kMiB,
               [&] { LexicalTable::learn(pairs, pairs, 6100, 100); });
}

}  // namespace

void try_costly_texts(Suite& suite) {
  const TemporaryDirectory folder;
  Costs costs(suite);
  try_packed_corpora(costs, folder.path());
  try_growing_texts(costs);
  try_long_pairs(costs);
}

}  // namespace trafo::testing
