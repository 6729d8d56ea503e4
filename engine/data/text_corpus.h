// Training text: pairs of sentences in memory or left on disk, and mixtures of several corpora.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

struct PairView {
  std::string_view source, target;
};

// What views point into that are not of text in memory.
struct PairBuffers {
  std::string source, target;
};

// The usable pairs of one corpus. Immutable; any number of threads may read.
class PairText {
 public:
  virtual ~PairText() = default;
  virtual int64_t size() const noexcept = 0;
  // Valid while `buffers` and this are unchanged. IO if a file on disk cannot be read any more or
  // has changed.
  virtual PairView view(int64_t pair, PairBuffers& buffers) const = 0;

  const CorpusReport& report() const noexcept { return report_; }
  uint64_t fingerprint() const noexcept { return fingerprint_; }
  bool monolingual() const noexcept { return monolingual_; }
  // Its text is more than was to be kept in memory, so its ids are not kept either.
  bool is_large() const noexcept { return large_; }

 protected:
  CorpusReport report_;
  uint64_t fingerprint_ = 0;
  bool monolingual_ = false;
  bool large_ = false;
};

// Which pairs an epoch of several corpora draws. A corpus of n pairs and weight w gives w n draws
// to every epoch, rounded so that e epochs have floor(e w n) of them, and no pair is drawn again
// before all others were: weight 3 is every pair three times, weight 0.25 another quarter of the
// corpus in each of four epochs, in an order that is fixed (not by the seed).
class EpochMix {
 public:
  EpochMix() = default;
  // Pairs and weight of each corpus. INVALID_ARGUMENT for a weight that is not above 0, or too
  // small for a single pair; UNSUPPORTED for an epoch of more than UINT32_MAX draws.
  explicit EpochMix(std::vector<std::pair<int64_t, double>> corpora);

  int64_t draws(int64_t epoch) const;  // of this epoch, counted from 0
  // Number of the pair, counted through all corpora; draw in [0, draws(epoch)).
  int64_t pair(int64_t epoch, int64_t draw) const;

 private:
  struct Corpus {
    int64_t size = 0;
    int64_t first = 0;  // number of its first pair
    double per_epoch = 0;
    std::vector<uint32_t> order;  // empty: as in the file
  };
  static int64_t begin(const Corpus& corpus, int64_t epoch);
  std::vector<Corpus> corpora_;
};

// One or more corpora and how often an epoch draws from each. Copies share the texts.
class TextCorpus {
 public:
  TextCorpus(ParallelCorpus corpus);  // NOLINT(google-explicit-constructor): it is the same text
  explicit TextCorpus(std::shared_ptr<const PairText> text);
  // All of them must be monolingual or none. INVALID_ARGUMENT for weights as EpochMix has it.
  static TextCorpus mix(std::vector<std::pair<TextCorpus, double>> corpora);

  int64_t size() const noexcept { return size_; }  // pairs of all corpora, without weights
  PairView view(int64_t pair, PairBuffers& buffers) const;
  CorpusReport report() const;
  // Of texts, weights and selections.
  uint64_t fingerprint() const;
  bool is_large() const noexcept;  // one of them is
  bool monolingual() const noexcept { return parts_.front().text->monolingual(); }
  EpochMix epochs() const;

  // Takes the `count` pairs with the smallest hashes out, and copies of them as well, so that none
  // of them is trained on: .first is the rest, with weights as they were, .second what was taken
  // (without copies, weight 1). INVALID_ARGUMENT unless 0 < count < size().
  std::pair<TextCorpus, TextCorpus> hold_out(int64_t count) const;

 private:
  struct Part {
    std::shared_ptr<const PairText> text;
    std::shared_ptr<const std::vector<uint32_t>> selection;  // null: all of it
    double weight = 1;
    uint64_t fingerprint = 0;
    int64_t size() const noexcept;
  };
  explicit TextCorpus(std::vector<Part> parts);

  std::vector<Part> parts_;
  int64_t size_ = 0;
};

struct LoadOptions {
  // Files with more text than this, compressed ones with more than a quarter of it, and standard
  // input stay on disk: 16 bytes of memory a pair. Never changes what is trained.
  int64_t memory_bytes = int64_t{256} << 20;
  // Where compressed files and standard input that stay on disk are unpacked, without a name, so
  // that nothing is left; empty: the system's directory for temporary files.
  std::string unpack_directory;
};

// Errors as in corpus.h, and IO if there is no room to unpack.
TextCorpus load_parallel(const std::string& source_path, const std::string& target_path,
                         const LoadOptions& options = {});
TextCorpus load_tsv(const std::string& path, const LoadOptions& options = {});
TextCorpus load_monolingual(const std::string& path, const LoadOptions& options = {});

}  // namespace trafo
