#include "engine/data/corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/core/cancel_scope.h"
#include "engine/core/gzip_stream.h"
#include "engine/core/open_error.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/data/pair_reader.h"
#include "engine/os/file.h"

namespace trafo {
namespace {

constexpr std::string_view kCorpusOrigin = "corpus";
constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

// The bytes of a plain file, a gzip file or standard input.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) {
    if (path == "-") {
      name_ = "standard input";
      descriptor_ = os::kStandardInput;
      return;
    }
    name_ = path;
    must_be_gzip_ = path.ends_with(".gz");
    descriptor_ = os::open_file(path, os::Open::read);
    if (descriptor_ < 0) fail_to_open(kCorpusOrigin, name_, errno);
    owned_ = true;
    os::FileStatus status;
    if (os::file_status(descriptor_, status) == 0 &&
        status.kind == os::FileStatus::Kind::directory) {
      close_all();
      fail(ErrorCode::invalid_argument, kCorpusOrigin, name_, ": is a directory");
    }
  }
  ~ByteSource() { close_all(); }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }

  // Returns the bytes read, 0 at the end. `line` is for messages. CANCELLED if the call is.
  size_t read(char* buffer, size_t size, int64_t line) {
    stop_if_cancelled(cancel_, kCorpusOrigin);
    const size_t got = bytes_.read(
        buffer, size, [&](char* raw, size_t room) { return read_raw(raw, room, line); });
    if (!bytes_.fault().empty() && got == 0)
      fail(ErrorCode::corrupt_file, kCorpusOrigin, name_, ":", line, ": ", bytes_.fault());
    if (must_be_gzip_ && !bytes_.is_gzip())
      fail(ErrorCode::corrupt_file, kCorpusOrigin, name_, ": is named .gz but holds no gzip data");
    return got;
  }

 private:
  size_t read_raw(char* buffer, size_t size, int64_t line) {
    if (cancel_ != nullptr) wait_for_bytes();
    const ptrdiff_t got = os::read_some(descriptor_, buffer, size);
    require(got >= 0, errno == EISDIR ? ErrorCode::invalid_argument : ErrorCode::io, kCorpusOrigin,
            name_, ":", line, ": cannot be read: ", std::strerror(errno));
    if (progress_ != nullptr) progress_->add(got);
    return static_cast<size_t>(got);
  }

  // A pipe may be silent for long.
  void wait_for_bytes() const {
    constexpr int kMilliseconds = 50;
    int ready = 0;
    do {
      stop_if_cancelled(cancel_, kCorpusOrigin);
      ready = os::wait_for_input(descriptor_, kMilliseconds);
    } while (ready == 0 || (ready < 0 && errno == EINTR));
  }

  void close_all() {
    if (owned_) os::close_file(descriptor_);
    owned_ = false;
  }

  std::string name_;
  int descriptor_ = -1;
  bool owned_ = false;
  bool must_be_gzip_ = false;  // its name says so
  GzipStream bytes_;
  // Another thread may read.
  const CancelToken* const cancel_ = CancelScope::token();
  WorkProgress* const progress_ = WorkProgress::current(Work::read_text);
};

namespace {

// `where` names the line or sentence. `line`: its number in its file; 0: it comes from no file.
void check_line(std::string_view text, std::string_view where, const CorpusOptions& options,
                int64_t line = 0) {
  require(text.size() <= options.max_line_bytes, ErrorCode::invalid_argument, kCorpusOrigin, where,
          ": the line is longer than ", options.max_line_bytes, " bytes");
  if (const std::string fault = text_fault(text, line); !fault.empty())
    fail(ErrorCode::invalid_argument, kCorpusOrigin, where, ": ", fault);
}

// Adds pairs and counts the memory that they take.
class PairList {
 public:
  PairList(ParallelCorpus& corpus, const CorpusOptions& options)
      : corpus_(corpus), left_(options.memory_bytes) {}

  struct Texts {
    std::string source, target, rejected;
  };
  void add(Texts&& pair, int64_t line);

 private:
  ParallelCorpus& corpus_;
  int64_t left_;
};

void PairList::add(Texts&& pair, int64_t line) {
  ParallelCorpus& corpus = corpus_;
  ++corpus.report.lines;
  if (has_blank({pair.source, pair.target, pair.rejected}, corpus.form, corpus.labelled)) {
    ++corpus.report.dropped_empty;
    return;
  }
  ++corpus.report.pairs;
  constexpr auto kOverhead = static_cast<int64_t>(2 * sizeof(std::string) + sizeof(int64_t));
  left_ -= kOverhead +
           static_cast<int64_t>(pair.source.size() + pair.target.size() + pair.rejected.size());
  if (left_ < 0) throw CorpusTooLarge();
  corpus.source.push_back(std::move(pair.source));
  corpus.target.push_back(std::move(pair.target));
  if (corpus.form == CorpusForm::preferences) corpus.rejected.push_back(std::move(pair.rejected));
  corpus.line.push_back(line);
}

// Reads all to the end and names the first two that differ.
[[noreturn]] void fail_uneven(std::span<LineReader> readers) {
  std::string line;
  for (LineReader& reader : readers)
    while (reader.next(line)) {
    }
  for (const LineReader& reader : readers)
    if (reader.line_number() != readers[0].line_number())
      fail_line_counts(static_cast<CorpusForm>(readers.size()), readers[0].name(),
                       readers[0].line_number(), reader.name(), reader.line_number());
  fail(ErrorCode::internal, kCorpusOrigin, "files of equal length");
}

// A 64-bit bijection between multiplications: fast, and good enough to tell texts apart.
uint64_t fold(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25u;
  return hash ^ (hash >> 29);
}

}  // namespace

bool is_blank(std::string_view text) noexcept {
  for (size_t position = 0; position < text.size();)
    if (!is_unicode_space(next_code_point(text, position))) return false;
  return true;
}

void LineHash::add(std::string_view line) noexcept {
  uint64_t hash = fold(value_, line.size());
  const char* bytes = line.data();
  size_t left = line.size();
  for (; left >= 8; bytes += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    hash = fold(hash, word);
  }
  uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, bytes, left);
  value_ = fold(hash, rest);
}

uint64_t corpus_fingerprint(std::span<const LineHash> sides) noexcept {
  // Monolingual text has a source that hashes to 0.
  uint64_t hash = sides.size() == 1 ? fold(0, 0) : 0;
  for (const LineHash& side : sides) hash = fold(hash, side.value());
  return hash;
}

void PairHash::add(const PairView& pair) noexcept {
  if (sides_.size() > 1) sides_.front().add(pair.source);
  sides_[sides_.size() > 1 ? 1 : 0].add(pair.target);
  if (sides_.size() > 2) sides_.back().add(pair.rejected);
}

bool has_blank(const PairView& pair, CorpusForm form, bool labelled) noexcept {
  if (form != CorpusForm::monolingual && is_blank(pair.source)) return true;
  const bool target = is_blank(pair.target);
  if (form != CorpusForm::preferences) return target;
  const bool rejected = is_blank(pair.rejected);
  return labelled ? target && rejected : target || rejected;
}

PairView split_columns(std::string_view line, CorpusForm form, std::string_view file,
                       int64_t number) {
  if (form == CorpusForm::monolingual) return {{}, line};
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs + 1 != static_cast<int>(form))
    fail(ErrorCode::invalid_argument, kCorpusOrigin, file, ":", number, ": ", tabs,
         form == CorpusForm::parallel
             ? " tabs, a line must have exactly one: source, tab, target"
             : " tabs, a line must have exactly two: prompt, tab, chosen answer, tab, rejected "
               "answer");
  const size_t first = line.find('\t'), last = line.rfind('\t');
  const std::string_view source = line.substr(0, first);
  if (form == CorpusForm::parallel) return {source, line.substr(first + 1)};
  return {source, line.substr(first + 1, last - first - 1), line.substr(last + 1)};
}

void require_one_stream(std::span<const std::string> paths) {
  require(std::ranges::count(paths, "-") <= 1, ErrorCode::invalid_argument, kCorpusOrigin,
          "standard input cannot be ", paths.size() > 2 ? "several" : "both",
          " sides; give one TSV instead");
}

std::string joined_names(std::span<const std::string> names) {
  std::string all = names[0];
  for (size_t i = 1; i < names.size(); ++i)
    all += concat(i + 1 < names.size() ? ", " : " and ", names[i]);
  return all;
}

const char* sides_of(CorpusForm form) noexcept {
  return form == CorpusForm::preferences ? "the three sides" : "the two sides";
}

const char* is_identical(bool preferences) noexcept {
  return preferences ? "have two equal answers" : "have the same text on both sides";
}

void fail_line_counts(CorpusForm form, std::string_view source, int64_t source_lines,
                      std::string_view target, int64_t target_lines) {
  fail(ErrorCode::invalid_argument, kCorpusOrigin, sides_of(form), " differ in length: ", source,
       " has ", source_lines, " lines, ", target, " has ", target_lines);
}

void check_usable(const CorpusReport& report, std::string_view name) {
  require(report.lines > 0, ErrorCode::invalid_argument, kCorpusOrigin, name,
          ": is empty (0 lines)");
  require(report.pairs > 0, ErrorCode::invalid_argument, kCorpusOrigin, name,
          ": no usable sentence pair: each of the ", report.lines, " lines has an empty side");
}

bool is_gzip_file(const std::string& path) noexcept {
  os::FileStatus status;
  if (os::status_of(path, status) != 0 || status.kind != os::FileStatus::Kind::regular)
    return false;
  const int descriptor = os::open_file(path, os::Open::read);
  if (descriptor < 0) return false;
  char begin[2];
  const ptrdiff_t got = os::read_at(descriptor, begin, sizeof begin, 0);
  os::close_file(descriptor);
  return got == sizeof begin && GzipStream::begins_gzip({begin, sizeof begin});
}

struct LineReader::Impl {
  Impl(const std::string& path, const CorpusOptions& reader_options)
      : source(path), options(reader_options), buffer(kBufferBytes) {}

  bool fill() {
    before += end;
    begin = 0;
    end = at_end ? 0 : source.read(buffer.data(), buffer.size(), line_number + 1);
    at_end = end == 0;
    if (copy >= 0) write_copy();
    return !at_end;
  }

  void write_copy() const {
    for (size_t done = 0; done < end;) {
      const ptrdiff_t wrote = os::write_some(copy, buffer.data() + done, end - done);
      require(wrote > 0, ErrorCode::io, kCorpusOrigin, source.name(), " cannot be unpacked in ",
              copy_directory, ": ", wrote < 0 ? std::strerror(errno) : "nothing was written");
      done += static_cast<size_t>(wrote);
    }
  }

  ByteSource source;
  CorpusOptions options;
  std::vector<char> buffer;
  size_t begin = 0, end = 0;  // unread part of the buffer
  bool at_end = false;
  int64_t line_number = 0;
  uint64_t before = 0;  // position of the buffer in the file
  uint64_t offset = 0;  // position of the last line
  int copy = -1;
  std::string copy_directory;
};

LineReader::LineReader(std::string path, CorpusOptions options)
    : impl_(std::make_unique<Impl>(path, options)) {}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

int64_t LineReader::line_number() const noexcept {
  return impl_->line_number;
}
uint64_t LineReader::offset() const noexcept {
  return impl_->offset;
}
void LineReader::copy_to(int descriptor, std::string directory) {
  impl_->copy = descriptor;
  impl_->copy_directory = std::move(directory);
}
const std::string& LineReader::name() const noexcept {
  return impl_->source.name();
}

bool LineReader::next(std::string& line) {
  Impl& in = *impl_;
  line.clear();
  if (in.begin == in.end && !in.fill()) return false;
  in.offset = in.before + in.begin;
  const size_t limit = in.options.max_line_bytes;
  bool complete = false;
  do {
    const char* start = in.buffer.data() + in.begin;
    const auto* newline = static_cast<const char*>(std::memchr(start, '\n', in.end - in.begin));
    const size_t length =
        newline == nullptr ? in.end - in.begin : static_cast<size_t>(newline - start);
    line.append(start, length);
    in.begin += length + (newline == nullptr ? 0 : 1);
    complete = newline != nullptr;
    // Stop before an endless line fills the memory. A byte order mark and a CR do not count.
    if (line.size() > limit && line.size() - limit > kByteOrderMark.size() + 1) break;
  } while (!complete && in.fill());
  ++in.line_number;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (in.line_number == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, kByteOrderMark.size());
    in.offset += kByteOrderMark.size();
  }
  check_line(line, concat(name(), ":", in.line_number), in.options, in.line_number);
  return true;
}

int64_t bytes_of_files(std::span<const std::string> paths) noexcept {
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    os::FileStatus status;
    if (path == "-" || os::status_of(path, status) != 0 ||
        status.kind != os::FileStatus::Kind::regular)
      return 0;
    bytes += static_cast<int64_t>(status.size);
  }
  return bytes;
}

std::vector<std::string> read_lines(const std::string& path, const CorpusOptions& options) {
  LineReader reader(path, options);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

ParallelCorpus read_sides(std::span<const std::string> paths, const CorpusOptions& options) {
  require_one_stream(paths);
  WorkProgress progress(Work::read_text, bytes_of_files(paths));
  std::vector<LineReader> readers;
  for (const std::string& path : paths) readers.emplace_back(path, options);
  ParallelCorpus corpus;
  corpus.form = static_cast<CorpusForm>(paths.size());
  PairList pairs(corpus, options);
  PairHash hash(corpus.form);
  std::string lines[3];
  bool judged[3] = {};
  while (true) {
    size_t ended = 0;
    for (size_t i = 0; i < readers.size(); ++i) {
      if (!readers[i].next(lines[i])) ++ended;
      if (judged[i] || lines[i].empty()) continue;
      refuse_records(lines[i], readers[i].name(), readers[i].line_number(), options.format);
      judged[i] = true;
    }
    if (ended == readers.size()) break;
    if (ended > 0) fail_uneven(readers);
    hash.add({lines[0], lines[1], lines[2]});
    pairs.add({lines[0], lines[1], lines[2]}, readers[0].line_number());
  }
  progress.finish();
  std::vector<std::string> names;
  for (const LineReader& reader : readers) names.push_back(reader.name());
  check_usable(corpus.report, joined_names(names));
  corpus.fingerprint = hash.fingerprint();
  return corpus;
}

ParallelCorpus read_columns(const std::string& path, CorpusForm form,
                            const CorpusOptions& options) {
  WorkProgress progress(Work::read_text, bytes_of_files({&path, 1}));
  LineReader reader(path, options);
  PairReader lines(reader, form, options.format);
  ParallelCorpus corpus;
  corpus.form = lines.form().form;
  corpus.format = lines.form().format();
  corpus.has_chats = lines.form().has_chats();
  corpus.labelled = lines.form().labelled();
  corpus.file = reader.name();
  PairList pairs(corpus, options);
  PairHash hash(corpus.form);
  for (PairView pair; lines.next(pair);) {
    hash.add(pair);
    pairs.add({std::string(pair.source), std::string(pair.target), std::string(pair.rejected)},
              lines.line_number());
  }
  progress.finish();
  check_usable(corpus.report, reader.name());
  corpus.fingerprint = hash.fingerprint();
  return corpus;
}

namespace {

struct NamedSide {
  const char* one;  // the name of a text, for messages
  std::vector<std::string> texts;
};

ParallelCorpus make_corpus(std::span<NamedSide> sides, const CorpusOptions& options,
                           bool labelled = false) {
  ParallelCorpus corpus;
  corpus.form = static_cast<CorpusForm>(sides.size());
  corpus.labelled = labelled;
  const size_t count = sides[0].texts.size();
  for (const NamedSide& side : sides.subspan(1))
    require(side.texts.size() == count, ErrorCode::invalid_argument, kCorpusOrigin,
            sides_of(corpus.form), " differ in length: ", count, " ", sides[0].one, "s, ",
            side.texts.size(), " ", side.one, "s");
  PairList pairs(corpus, options);
  PairHash hash(corpus.form);
  for (size_t i = 0; i < count; ++i) {
    PairList::Texts texts;
    std::string* const of_pair[] = {&texts.source, &texts.target, &texts.rejected};
    for (size_t side = 0; side < sides.size(); ++side) {
      *of_pair[side] = std::move(sides[side].texts[i]);
      check_line(*of_pair[side], concat(sides[side].one, " ", i + 1), options);
    }
    hash.add({texts.source, texts.target, texts.rejected});
    pairs.add(std::move(texts), static_cast<int64_t>(i) + 1);
  }
  check_usable(corpus.report, "the corpus");
  corpus.fingerprint = hash.fingerprint();
  return corpus;
}

}  // namespace

ParallelCorpus make_parallel(std::vector<std::string> source, std::vector<std::string> target,
                             const CorpusOptions& options) {
  NamedSide sides[] = {{"source sentence", std::move(source)},
                       {"target sentence", std::move(target)}};
  return make_corpus(sides, options);
}

ParallelCorpus make_preferences(std::vector<std::string> prompt, std::vector<std::string> chosen,
                                std::vector<std::string> rejected, const CorpusOptions& options) {
  NamedSide sides[] = {{"prompt", std::move(prompt)},
                       {"chosen answer", std::move(chosen)},
                       {"rejected answer", std::move(rejected)}};
  return make_corpus(sides, options);
}

ParallelCorpus make_labelled(std::vector<std::string> prompt, std::vector<std::string> answer,
                             const std::vector<bool>& labels, const CorpusOptions& options) {
  require(prompt.size() == labels.size() && answer.size() == labels.size(),
          ErrorCode::invalid_argument, kCorpusOrigin, "there are ", prompt.size(), " prompts, ",
          answer.size(), " answers and ", labels.size(), " labels");
  std::vector<std::string> rejected(answer.size());
  for (size_t i = 0; i < answer.size(); ++i)
    if (!labels[i]) std::swap(answer[i], rejected[i]);
  NamedSide sides[] = {{"prompt", std::move(prompt)},
                       {"desirable answer", std::move(answer)},
                       {"undesirable answer", std::move(rejected)}};
  return make_corpus(sides, options, true);
}

}  // namespace trafo
