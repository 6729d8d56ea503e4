#include "engine/data/text_corpus.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/core/checked.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"
#include "engine/data/disk_text.h"
#include "engine/data/token_files/token_layout.h"
#include "engine/data/token_files/token_text.h"
#include "engine/os/file.h"

namespace trafo {
namespace {

constexpr std::string_view kTextCorpusOrigin = "corpus";
constexpr uint64_t kOrderSeed = 0x5eed0fc0;  // of fractional weights

class MemoryText final : public PairText {
 public:
  explicit MemoryText(ParallelCorpus corpus) : corpus_(std::move(corpus)) {
    report_ = corpus_.report;
    fingerprint_ = corpus_.fingerprint;
    form_ = corpus_.form;
    format_ = corpus_.format;
    has_chats_ = corpus_.has_chats;
    labelled_ = corpus_.labelled;
    file_ = corpus_.file;
    for (size_t i = 0; i < corpus_.line.size(); ++i)
      add_line(static_cast<int64_t>(i), corpus_.line[i] - 1);
  }
  int64_t size() const noexcept override { return static_cast<int64_t>(corpus_.source.size()); }
  PairView view(int64_t pair, PairBuffers&) const override {
    const auto i = static_cast<size_t>(pair);
    return {corpus_.source[i], corpus_.target[i],
            form_ == CorpusForm::preferences ? std::string_view(corpus_.rejected[i])
                                             : std::string_view()};
  }

 private:
  ParallelCorpus corpus_;
};

class IdPairs final : public PairText {
 public:
  IdPairs(std::span<const std::vector<int32_t>> sources,
          std::span<const std::vector<int32_t>> targets) {
    require(sources.size() == targets.size(), ErrorCode::invalid_argument, kTextCorpusOrigin,
            "there are ", sources.size(), " sources and ", targets.size(), " targets");
    has_ids_ = true;
    LineHash hashes[2];
    for (size_t i = 0; i < targets.size(); ++i) {
      const std::span<const int32_t> sides[] = {sources[i], targets[i]};
      for (size_t side = 0; side < 2; ++side) {
        for (const int32_t id : sides[side])
          require(id >= 0, ErrorCode::invalid_argument, kTextCorpusOrigin, "the ",
                  side == 0 ? "source" : "target", " of pair ", i + 1, " has the id ", id);
        hashes[side].add(bytes_of(sides[side]));
      }
      if (targets[i].empty()) {
        ++report_.dropped_empty;
        continue;
      }
      if (sources[i].empty()) form_ = CorpusForm::monolingual;
      add_line(size(), static_cast<int64_t>(i));
      for (const std::span<const int32_t> side : sides) {
        ids_.insert(ids_.end(), side.begin(), side.end());
        ends_.push_back(ids_.size());
      }
    }
    report_.lines = static_cast<int64_t>(targets.size());
    report_.pairs = size();
    check_usable(report_, "the corpus of token ids");
    fingerprint_ = corpus_fingerprint(hashes);
  }
  int64_t size() const noexcept override { return static_cast<int64_t>(ends_.size() / 2); }
  std::string place(int64_t pair) const override { return concat("pair ", line(pair) + 1); }
  PairView view(int64_t pair, PairBuffers&) const override {
    const auto source = static_cast<size_t>(2 * pair);
    return {side(source), side(source + 1), {}};
  }

 private:
  static std::string_view bytes_of(std::span<const int32_t> ids) {
    return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()};
  }
  std::string_view side(size_t number) const {
    const size_t begin = number == 0 ? 0 : ends_[number - 1];
    return bytes_of(std::span(ids_).subspan(begin, ends_[number] - begin));
  }

  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;  // of the source and of the target of each pair, in ids_
};

// FNV-1a with a final mix, so that the pairs with the smallest hashes are a fair sample.
uint64_t pair_hash(const PairView& pair) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    hash = (hash ^ '\t') * 0x100000001B3u;
  };
  add(pair.source);
  add(pair.target);
  if (!pair.rejected.empty()) add(pair.rejected);
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 32);
}

// Bytes of text to expect; -1: unknown before it is read.
int64_t expected_bytes(const std::string& path) {
  using Kind = os::FileStatus::Kind;
  os::FileStatus status;
  if (path == "-") return -1;
  if (os::status_of(path, status) != 0) return 0;  // opening it will say why
  if (status.kind == Kind::directory) return 0;
  if (status.kind != Kind::regular) return -1;
  const auto bytes = static_cast<int64_t>(status.size);
  return is_gzip_file(path) ? checked_mul(bytes, int64_t{4}, kTextCorpusOrigin) : bytes;
}

bool stays_on_disk(std::span<const std::string> paths, const LoadOptions& options) {
  int64_t sum = 0;
  for (const std::string& path : paths) {
    const int64_t bytes = expected_bytes(path);
    if (bytes < 0) return true;
    sum = checked_add(sum, bytes, kTextCorpusOrigin);
  }
  return sum > options.memory_bytes;
}

}  // namespace

int64_t PairText::line(int64_t pair) const noexcept {
  const auto after = std::upper_bound(
      dropped_.begin(), dropped_.end(), pair,
      [](int64_t wanted, const Dropped& dropped) { return wanted < dropped.pair; });
  return after == dropped_.begin() ? pair : pair + std::prev(after)->lines;
}

std::string PairText::place(int64_t pair) const {
  return concat(file_.empty() ? "line " : file_ + ":", line(pair) + 1);
}

void PairText::add_line(int64_t pair, int64_t line) {
  const int64_t lines = line - pair;
  if (lines != (dropped_.empty() ? 0 : dropped_.back().lines)) dropped_.push_back({pair, lines});
}

// --- epochs ---

EpochMix::EpochMix(std::vector<std::pair<int64_t, double>> corpora) {
  int64_t first = 0;
  double draws = 0;
  for (size_t i = 0; i < corpora.size(); ++i) {
    const auto [size, weight] = corpora[i];
    require(std::isfinite(weight) && weight > 0 && weight <= 1e6, ErrorCode::invalid_argument,
            kTextCorpusOrigin, "the weight of corpus ", i + 1, " is ", weight,
            ", it must be above 0 and at most a million");
    Corpus corpus{size, first, weight * static_cast<double>(size), {}};
    require(corpus.per_epoch >= 1, ErrorCode::invalid_argument, kTextCorpusOrigin,
            "the weight of corpus ", i + 1, ", ", weight, ", is too small: of its ", size,
            " pairs an epoch would not have one");
    draws += std::ceil(corpus.per_epoch);
    // Checked before any allocation: the shuffle of an epoch counts its draws in 32 bits.
    require(draws <= double{UINT32_MAX}, ErrorCode::unsupported, kTextCorpusOrigin,
            "with these weights an epoch draws ", static_cast<int64_t>(draws),
            " pairs, more than the limit of ", UINT32_MAX);
    if (weight != std::floor(weight)) {
      corpus.order.resize(static_cast<size_t>(size));
      std::iota(corpus.order.begin(), corpus.order.end(), 0u);
      ShuffleRng(kOrderSeed, i).shuffle(corpus.order);
    }
    first += size;
    corpora_.push_back(std::move(corpus));
  }
}

int64_t EpochMix::begin(const Corpus& corpus, int64_t epoch) {
  return static_cast<int64_t>(std::floor(static_cast<double>(epoch) * corpus.per_epoch));
}

int64_t EpochMix::draws(int64_t epoch) const {
  int64_t sum = 0;
  for (const Corpus& corpus : corpora_) sum += begin(corpus, epoch + 1) - begin(corpus, epoch);
  return sum;
}

int64_t EpochMix::pair(int64_t epoch, int64_t draw) const {
  for (const Corpus& corpus : corpora_) {
    const int64_t start = begin(corpus, epoch);
    const int64_t count = begin(corpus, epoch + 1) - start;
    if (draw >= count) {
      draw -= count;
      continue;
    }
    const int64_t place = (start + draw) % corpus.size;
    return corpus.first +
           (corpus.order.empty() ? place : int64_t{corpus.order[static_cast<size_t>(place)]});
  }
  fail(ErrorCode::internal, kTextCorpusOrigin, "draw out of range");
}

// --- corpora ---

int64_t TextCorpus::Part::size() const noexcept {
  return selection ? static_cast<int64_t>(selection->size()) : text->size();
}

TextCorpus::TextCorpus(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (const Part& part : parts_) size_ += part.size();
  require(size_ > 0, ErrorCode::invalid_argument, kTextCorpusOrigin, "there is no sentence pair");
  require(size_ <= int64_t{UINT32_MAX}, ErrorCode::unsupported, kTextCorpusOrigin, size_,
          " pairs are more than the limit of ", UINT32_MAX);
}

TextCorpus::TextCorpus(std::shared_ptr<const PairText> text) {
  const uint64_t fingerprint = text->fingerprint();
  *this = TextCorpus({Part{std::move(text), nullptr, 1, fingerprint}});
}

TextCorpus::TextCorpus(ParallelCorpus corpus)
    : TextCorpus(std::make_shared<const MemoryText>(std::move(corpus))) {}

TextCorpus TextCorpus::of_ids(std::span<const std::vector<int32_t>> sources,
                              std::span<const std::vector<int32_t>> targets) {
  return TextCorpus(std::make_shared<const IdPairs>(sources, targets));
}

TextCorpus TextCorpus::mix(std::vector<std::pair<TextCorpus, double>> corpora) {
  require(!corpora.empty(), ErrorCode::invalid_argument, kTextCorpusOrigin, "a mix of no corpora");
  const CorpusForm form = corpora.front().first.form();
  const bool of_ids = corpora.front().first.has_ids();
  const bool of_chats = corpora.front().first.has_chats();
  const bool labelled = corpora.front().first.labelled();
  std::vector<Part> parts;
  for (auto& [corpus, weight] : corpora) {
    require(corpus.form() == form, ErrorCode::invalid_argument, kTextCorpusOrigin,
            "corpora of different forms (monolingual, parallel, preferences) cannot be mixed");
    require(corpus.has_ids() == of_ids, ErrorCode::invalid_argument, kTextCorpusOrigin,
            "corpora of text and of token ids cannot be mixed");
    require(corpus.has_chats() == of_chats, ErrorCode::invalid_argument, kTextCorpusOrigin,
            "corpora of conversations and of other text cannot be mixed");
    require(corpus.labelled() == labelled, ErrorCode::invalid_argument, kTextCorpusOrigin,
            "corpora of preference pairs and of labelled answers cannot be mixed");
    for (Part& part : corpus.parts_) {
      part.weight *= weight;
      parts.push_back(std::move(part));
    }
  }
  TextCorpus result(std::move(parts));
  result.epochs();  // checks the weights
  return result;
}

PairView TextCorpus::view(int64_t pair, PairBuffers& buffers) const {
  for (const Part& part : parts_) {
    if (pair < part.size()) {
      const int64_t place =
          part.selection ? int64_t{(*part.selection)[static_cast<size_t>(pair)]} : pair;
      return part.text->view(place, buffers);
    }
    pair -= part.size();
  }
  fail(ErrorCode::internal, kTextCorpusOrigin, "pair out of range");
}

int64_t TextCorpus::Part::lines() const noexcept {
  if (selection || size() == 0) return size();
  return std::max(text->report().lines, text->line(size() - 1) + 1);
}

int64_t TextCorpus::line(int64_t pair) const {
  int64_t before = 0;
  for (const Part& part : parts_) {
    if (pair < part.size()) return before + (part.selection ? pair : part.text->line(pair));
    pair -= part.size();
    before += part.lines();
  }
  fail(ErrorCode::internal, kTextCorpusOrigin, "pair out of range");
}

std::string TextCorpus::place(int64_t pair) const {
  for (const Part& part : parts_) {
    if (pair < part.size()) {
      return part.text->place(part.selection ? int64_t{(*part.selection)[static_cast<size_t>(pair)]}
                                             : pair);
    }
    pair -= part.size();
  }
  fail(ErrorCode::internal, kTextCorpusOrigin, "pair out of range");
}

void TextCorpus::check_vocabulary(int64_t vocabulary) const {
  for (const Part& part : parts_) part.text->check_vocabulary(vocabulary);
}

int64_t TextCorpus::lines() const noexcept {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.lines();
  return sum;
}

CorpusReport TextCorpus::report() const {
  CorpusReport sum;
  for (const Part& part : parts_) {
    sum.lines += part.held_out ? part.size() : part.text->report().lines;
    sum.dropped_empty += part.held_out ? 0 : part.text->report().dropped_empty;
    sum.pairs += part.size();
  }
  return sum;
}

uint64_t TextCorpus::fingerprint() const {
  if (parts_.size() == 1 && parts_[0].weight == 1) return parts_[0].fingerprint;
  uint64_t hash = 0;
  for (const Part& part : parts_) {
    // In millionths, so that a weight keeps its value when it is written as text and read back.
    const auto weight = static_cast<uint64_t>(std::llround(part.weight * 1e6));
    hash = mix_bits(mix_bits(hash + part.fingerprint) ^ weight) + 1;
  }
  return hash;
}

bool TextCorpus::is_large() const noexcept {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.text->is_large(); });
}

EpochMix TextCorpus::epochs() const {
  std::vector<std::pair<int64_t, double>> corpora;
  for (const Part& part : parts_) corpora.emplace_back(part.size(), part.weight);
  return EpochMix(std::move(corpora));
}

std::pair<TextCorpus, TextCorpus> TextCorpus::hold_out(int64_t count) const {
  require(count > 0 && count < size_, ErrorCode::invalid_argument, kTextCorpusOrigin,
          "cannot hold out ", count, " of ", size_, " pairs");
  std::vector<uint64_t> hashes(static_cast<size_t>(size_));
  PairBuffers buffers;
  for (int64_t i = 0; i < size_; ++i) hashes[static_cast<size_t>(i)] = pair_hash(view(i, buffers));
  std::vector<uint64_t> sorted = hashes;
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end());
  const uint64_t threshold = sorted[static_cast<size_t>(count - 1)];
  sorted = {};
  std::vector<Part> kept, held;
  std::set<uint64_t> seen;
  size_t i = 0;
  for (const Part& part : parts_) {
    std::vector<uint32_t> inside, outside;
    for (int64_t pair = 0; pair < part.size(); ++pair, ++i) {
      const uint32_t place = part.selection ? (*part.selection)[static_cast<size_t>(pair)]
                                            : static_cast<uint32_t>(pair);
      if (hashes[i] > threshold)
        inside.push_back(place);
      else if (seen.insert(hashes[i]).second)  // copies are in neither part
        outside.push_back(place);
    }
    const auto add = [&](std::vector<Part>& parts, std::vector<uint32_t>& selection, double weight,
                         uint64_t which) {
      if (selection.empty()) return;
      const auto size = static_cast<uint64_t>(selection.size());
      parts.push_back(
          {part.text, std::make_shared<const std::vector<uint32_t>>(std::move(selection)), weight,
           mix_bits(part.fingerprint ^ mix_bits(2 * size + which)), part.held_out || which == 1});
    };
    add(kept, inside, part.weight, 0);
    add(held, outside, 1, 1);
  }
  require(!kept.empty(), ErrorCode::invalid_argument, kTextCorpusOrigin, "all ", size_,
          " pairs are copies of the ", seen.size(), " that would be held out");
  return {TextCorpus(std::move(kept)), TextCorpus(std::move(held))};
}

// --- files ---

namespace {

// Reads the files to memory. If that turns out to be too much, they stay on disk after all. One
// file has a column for each text of the form.
TextCorpus load(std::span<const std::string> paths, CorpusForm form, const LoadOptions& options) {
  if (is_token_format(options.format)) {
    require(paths.size() == 1 && form != CorpusForm::preferences, ErrorCode::invalid_argument,
            kTextCorpusOrigin, paths.size(), " paths",
            form == CorpusForm::preferences ? " of preferences" : "",
            ": a file of token ids is one text without a source");
    return TextCorpus(open_token_file(paths[0], options));
  }
  const bool columns = paths.size() == 1;
  require(
      columns || options.format == CorpusFormat::automatic || options.format == CorpusFormat::text,
      ErrorCode::invalid_argument, kTextCorpusOrigin, paths.size(),
      options.format == CorpusFormat::csv ? " paths: CSV is one file"
                                          : " paths: JSON lines are one file");
  if (!stays_on_disk(paths, options)) {
    CorpusOptions reading;
    reading.memory_bytes = options.memory_bytes;
    reading.format = options.format;
    try {
      return columns ? read_columns(paths[0], form, reading) : read_sides(paths, reading);
    } catch (const CorpusTooLarge&) {
    }
  }
  return TextCorpus(columns ? open_columns(paths[0], form, options) : open_sides(paths, options));
}

}  // namespace

TextCorpus load_parallel(const std::string& source_path, const std::string& target_path,
                         const LoadOptions& options) {
  const std::string paths[] = {source_path, target_path};
  return load(paths, CorpusForm::parallel, options);
}

TextCorpus load_tsv(const std::string& path, const LoadOptions& options) {
  return load({&path, 1}, CorpusForm::parallel, options);
}

TextCorpus load_monolingual(const std::string& path, const LoadOptions& options) {
  return load({&path, 1}, CorpusForm::monolingual, options);
}

TextCorpus load_preferences(std::span<const std::string> paths, const LoadOptions& options) {
  require(paths.size() == 1 || paths.size() == 3, ErrorCode::invalid_argument, kTextCorpusOrigin,
          paths.size(),
          " paths: preferences are three files (prompts, chosen, rejected), or one "
          "TSV file of three columns");
  return load(paths, CorpusForm::preferences, options);
}

}  // namespace trafo
