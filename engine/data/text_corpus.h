// Training text: pairs of sentences in memory or left on disk, and mixtures of several corpora.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

// The usable pairs of one corpus. Immutable; any number of threads may read.
class PairText {
 public:
  virtual ~PairText() = default;
  virtual int64_t size() const noexcept = 0;
  // A view of a pair, valid while `buffers` and this object are unchanged. IO if the file on disk
  // cannot be read or has changed.
  virtual PairView view(int64_t pair, PairBuffers& buffers) const = 0;

  // The line of a pair in its file, counted from 0. Lines with an empty side are no pairs.
  int64_t line(int64_t pair) const noexcept;
  // "FILE:LINE" of a pair, for messages.
  virtual std::string place(int64_t pair) const;
  // INVALID_ARGUMENT, naming file and position, if an id of a file of token ids is `vocabulary` or
  // more.
  virtual void check_vocabulary(int64_t /*vocabulary*/) const {}
  const CorpusReport& report() const noexcept { return report_; }
  uint64_t fingerprint() const noexcept { return fingerprint_; }
  CorpusForm form() const noexcept { return form_; }
  CorpusFormat format() const noexcept { return format_; }
  // The views are token ids, each as the four bytes of an int32_t.
  bool has_ids() const noexcept { return has_ids_; }
  // The texts are conversations: JSON, see chat_record.h.
  bool has_chats() const noexcept { return has_chats_; }
  // Preference pairs have one answer each.
  bool labelled() const noexcept { return labelled_; }
  // The file that all pairs are from, for messages; empty: several, or none.
  const std::string& file() const noexcept { return file_; }
  // The text is too large to keep in memory, so its token ids are not kept either.
  bool is_large() const noexcept { return large_; }

 protected:
  // The next pair that is added is `pair`, in line `line`.
  void add_line(int64_t pair, int64_t line);

  CorpusReport report_;
  uint64_t fingerprint_ = 0;
  CorpusForm form_ = CorpusForm::parallel;
  CorpusFormat format_ = CorpusFormat::text;
  bool has_ids_ = false, has_chats_ = false, labelled_ = false;
  std::string file_;
  bool large_ = false;

 private:
  // From `pair` on, so many lines before a pair are no pairs. Ascending, where that number changes:
  // less memory than the pairs themselves take.
  struct Dropped {
    int64_t pair, lines;
  };
  std::vector<Dropped> dropped_;
};

// The pairs that an epoch of a mixture draws. A corpus with n pairs and weight w gives w n draws to
// every epoch, rounded so that e epochs have floor(e w n) of them. No pair is drawn again before
// all others were drawn. Weight 3 draws every pair three times; weight 0.25 draws another quarter
// of the corpus in each of four epochs, in an order that does not depend on the seed.
class EpochMix {
 public:
  EpochMix() = default;
  // The pairs and the weight of each corpus. INVALID_ARGUMENT: a weight is not above 0, or too
  // small for a single pair. UNSUPPORTED: an epoch has more than UINT32_MAX draws.
  explicit EpochMix(std::vector<std::pair<int64_t, double>> corpora);

  int64_t draws(int64_t epoch) const;  // epochs count from 0
  // The pair of a draw, 0 <= draw < draws(epoch), counted through all corpora.
  int64_t pair(int64_t epoch, int64_t draw) const;

 private:
  struct Corpus {
    int64_t size = 0;
    int64_t first = 0;  // its first pair
    double per_epoch = 0;
    std::vector<uint32_t> order;  // empty: as in the file
  };
  static int64_t begin(const Corpus& corpus, int64_t epoch);
  std::vector<Corpus> corpora_;
};

// One or more corpora with weights. Copies share the texts.
class TextCorpus {
 public:
  TextCorpus(ParallelCorpus corpus);  // NOLINT(google-explicit-constructor): the same text
  explicit TextCorpus(std::shared_ptr<const PairText> text);
  // Pairs of token ids; a trainer adds nothing to them. An empty source is for a decoder_lm, which
  // reads eos in its place; a corpus with one counts as monolingual. Pairs with an empty target are
  // dropped and counted. INVALID_ARGUMENT: an id is negative, the sides have different sizes, or no
  // pair is left.
  static TextCorpus of_ids(std::span<const std::vector<int32_t>> sources,
                           std::span<const std::vector<int32_t>> targets);
  // INVALID_ARGUMENT: corpora of different forms, or some but not all labelled, of conversations or
  // of token ids, or a weight
  // that EpochMix refuses.
  static TextCorpus mix(std::vector<std::pair<TextCorpus, double>> corpora);

  int64_t size() const noexcept { return size_; }  // pairs of all corpora, without weights
  PairView view(int64_t pair, PairBuffers& buffers) const;
  CorpusReport report() const;
  // The line of a pair, counted from 0 through all files one after the other; pairs that are held
  // out are counted as if they were a separate file without other lines.
  int64_t line(int64_t pair) const;
  int64_t lines() const noexcept;  // of all files, counted so
  // Depends on texts, weights and selections.
  uint64_t fingerprint() const;
  bool is_large() const noexcept;  // whether one of them is
  CorpusForm form() const noexcept { return parts_.front().text->form(); }
  CorpusFormat format() const noexcept { return parts_.front().text->format(); }  // of the first
  bool monolingual() const noexcept { return form() == CorpusForm::monolingual; }
  bool has_ids() const noexcept { return parts_.front().text->has_ids(); }
  bool has_chats() const noexcept { return parts_.front().text->has_chats(); }
  bool labelled() const noexcept { return parts_.front().text->labelled(); }
  // Of a pair, for messages: "FILE:LINE".
  std::string place(int64_t pair) const;
  // As PairText::check_vocabulary, of all texts.
  void check_vocabulary(int64_t vocabulary) const;
  EpochMix epochs() const;

  // Splits off the `count` pairs with the smallest hashes. .second has them, each once, with
  // weight 1. .first has the other pairs with their weights, without copies of those in .second, so
  // that no held-out pair is trained on. INVALID_ARGUMENT unless 0 < count < size().
  std::pair<TextCorpus, TextCorpus> hold_out(int64_t count) const;

 private:
  struct Part {
    std::shared_ptr<const PairText> text;
    std::shared_ptr<const std::vector<uint32_t>> selection;  // null: all pairs
    double weight = 1;
    uint64_t fingerprint = 0;
    bool held_out = false;  // the dropped lines of `text` belong to the part that it was taken from
    int64_t size() const noexcept;
    int64_t lines() const noexcept;
  };
  explicit TextCorpus(std::vector<Part> parts);

  std::vector<Part> parts_;
  int64_t size_ = 0;
};

struct LoadOptions {
  // Larger files, compressed files larger than a quarter of it, and standard input stay on disk,
  // with 16 bytes of memory a pair. So does a corpus whose pairs take more than this once they are
  // unpacked, with 72 bytes a pair beside their text. Does not change training.
  int64_t memory_bytes = int64_t{256} << 20;
  // Where compressed files and standard input that stay on disk are unpacked, into unnamed files
  // that vanish with the process. Empty: the system's directory for temporary files.
  std::string unpack_directory;
  // JSON lines are one file. Their members choose the form of the corpus. A file of token ids is
  // monolingual.
  CorpusFormat format = CorpusFormat::automatic;
  // Of files of llm.c and nanoGPT: the token that ends a document; negative: there is none.
  int64_t document_end = -1;
};

// Errors as in corpus.h, and IO if there is no space to unpack.
TextCorpus load_parallel(const std::string& source_path, const std::string& target_path,
                         const LoadOptions& options = {});
TextCorpus load_tsv(const std::string& path, const LoadOptions& options = {});
TextCorpus load_monolingual(const std::string& path, const LoadOptions& options = {});
// Three files, or one of JSON lines or of lines PROMPT<tab>CHOSEN<tab>REJECTED.
TextCorpus load_preferences(std::span<const std::string> paths, const LoadOptions& options = {});

}  // namespace trafo
