#include "engine/data/disk_text.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "engine/core/library_thread.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/data/pair_reader.h"
#include "engine/data/read_only_file.h"
#include "engine/os/file.h"

namespace trafo {
namespace {

constexpr std::string_view kDiskTextOrigin = "corpus";
// The offset and the length of a line in one word.
constexpr int kLengthBits = 21;
static_assert(limits::kTextOffsetBits + kLengthBits == 64);
static_assert(CorpusOptions{}.max_line_bytes < size_t{1} << kLengthBits);

// One file of the corpus.
struct Side {
  ReadOnlyFile file;
  std::vector<uint64_t> lines;

  void add(uint64_t offset, size_t length) {
    require(offset >> limits::kTextOffsetBits == 0, ErrorCode::unsupported, kDiskTextOrigin,
            file.name(), ": is longer than 8 TiB");
    lines.push_back(offset << kLengthBits | length);
  }
  void read(int64_t line, std::string& out) const {
    const uint64_t word = lines[static_cast<size_t>(line)];
    file.read(word >> kLengthBits, word & ((uint64_t{1} << kLengthBits) - 1), out);
  }
};

// Opens `path` for the index pass and for later.
std::unique_ptr<LineReader> open_side(const std::string& path, const std::string& unpack_directory,
                                      Side& side) {
  auto reader = std::make_unique<LineReader>(path);
  os::FileStatus status;
  const bool plain = path != "-" && os::status_of(path, status) == 0 &&
                     status.kind == os::FileStatus::Kind::regular && !is_gzip_file(path);
  if (plain)
    side.file.open_path(path);
  else
    reader->copy_to(
        side.file.make_nameless(unpack_directory, reader->name()),
        unpack_directory.empty() ? "the directory for temporary files" : unpack_directory);
  return reader;
}

class SideFiles final : public PairText {
 public:
  SideFiles(std::span<const std::string> paths, const LoadOptions& options) : sides_(paths.size()) {
    require_one_stream(paths);
    WorkProgress progress(Work::read_text, bytes_of_files(paths));
    form_ = static_cast<CorpusForm>(paths.size());
    std::vector<std::unique_ptr<LineReader>> readers;
    for (size_t i = 0; i < paths.size(); ++i)
      readers.push_back(open_side(paths[i], options.unpack_directory, sides_[i]));
    std::vector<Scan> scans(paths.size());
    {
      std::vector<std::jthread> others;
      for (size_t i = 1; i < paths.size(); ++i)
        others.push_back(
            start_thread<std::jthread>([&, i] { scans[i].run(*readers[i], sides_[i], options); }));
      scans[0].run(*readers[0], sides_[0], options);
    }
    // The error that reading the files line by line would have met first.
    const Scan* first = nullptr;
    for (const Scan& scan : scans)
      if (scan.error && (first == nullptr || scan.blank.size() < first->blank.size()))
        first = &scan;
    if (first != nullptr) std::rethrow_exception(first->error);
    progress.finish();
    std::vector<std::string> names;
    for (const auto& reader : readers) {
      if (reader->line_number() != readers[0]->line_number())
        fail_line_counts(static_cast<CorpusForm>(sides_.size()), readers[0]->name(),
                         readers[0]->line_number(), reader->name(), reader->line_number());
      names.push_back(reader->name());
    }
    const size_t lines = sides_[0].lines.size();
    size_t kept = 0;
    for (size_t i = 0; i < lines; ++i) {
      if (std::ranges::any_of(scans, [i](const Scan& scan) { return bool{scan.blank[i]}; }))
        continue;
      for (Side& side : sides_) side.lines[kept] = side.lines[i];
      add_line(static_cast<int64_t>(kept), static_cast<int64_t>(i));
      ++kept;
    }
    for (Side& side : sides_) {
      side.lines.resize(kept);
      side.lines.shrink_to_fit();
    }
    report_.lines = static_cast<int64_t>(lines);
    report_.pairs = static_cast<int64_t>(kept);
    report_.dropped_empty = report_.lines - report_.pairs;
    int64_t bytes = 0;
    std::vector<LineHash> hashes;
    for (const Scan& scan : scans) {
      bytes += scan.bytes;
      hashes.push_back(scan.hash);
    }
    large_ = bytes > options.memory_bytes;
    fingerprint_ = corpus_fingerprint(hashes);
    check_usable(report_, joined_names(names));
  }

  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override {
    // Checked now and then: a file that is edited in place keeps some of its lines.
    if (pair % 64 == 0)
      for (const Side& side : sides_) side.file.check_unchanged();
    sides_[0].read(pair, buffers.source);
    sides_[1].read(pair, buffers.target);
    if (form_ != CorpusForm::preferences) return {buffers.source, buffers.target};
    sides_[2].read(pair, buffers.rejected);
    return {buffers.source, buffers.target, buffers.rejected};
  }

 private:
  struct Scan {
    std::vector<bool> blank;
    LineHash hash;
    int64_t bytes = 0;
    std::exception_ptr error;

    void run(LineReader& reader, Side& side, const LoadOptions& options) {
      try {
        bool judged = false;
        for (std::string line; reader.next(line);) {
          if (!judged && !line.empty()) {
            refuse_records(line, reader.name(), reader.line_number(), options.format);
            judged = true;
          }
          side.add(reader.offset(), line.size());
          blank.push_back(is_blank(line));
          hash.add(line);
          bytes += static_cast<int64_t>(line.size());
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
  };

  std::vector<Side> sides_;
};

// Columns, JSON lines, CSV or monolingual.
class OneFile final : public PairText {
 public:
  OneFile(const std::string& path, CorpusForm form, const LoadOptions& options) {
    WorkProgress progress(Work::read_text, bytes_of_files({&path, 1}));
    const auto reader = open_side(path, options.unpack_directory, side_);
    PairReader lines(*reader, form, options.format);
    lines_ = lines.form();
    form_ = lines_.form;
    format_ = lines_.format();
    has_chats_ = lines_.has_chats();
    labelled_ = lines_.labelled();
    file_ = reader->name();
    PairHash hash(form_);
    int64_t bytes = 0;
    for (PairView pair; lines.next(pair);) {
      ++report_.lines;
      hash.add(pair);
      if (has_blank(pair, form_, labelled_)) {
        ++report_.dropped_empty;
        continue;
      }
      add_line(report_.pairs, lines.line_number() - 1);
      ++report_.pairs;
      side_.add(lines.offset(), lines.bytes());
      bytes += static_cast<int64_t>(lines.bytes());
    }
    progress.finish();
    large_ = bytes > options.memory_bytes;
    side_.lines.shrink_to_fit();
    fingerprint_ = hash.fingerprint();
    check_usable(report_, reader->name());
  }

  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override {
    if (pair % 64 == 0) side_.file.check_unchanged();
    side_.read(pair, buffers.line);
    try {
      return lines_.split(buffers.line, side_.file.name(), line(pair) + 1, buffers);
    } catch (const Error&) {  // the line was checked when the file was opened
      side_.file.fail_changed();
    }
  }

 private:
  Side side_;
  LineForm lines_;
};

}  // namespace

std::shared_ptr<const PairText> open_sides(std::span<const std::string> paths,
                                           const LoadOptions& options) {
  return std::make_shared<const SideFiles>(paths, options);
}

std::shared_ptr<const PairText> open_columns(const std::string& path, CorpusForm form,
                                             const LoadOptions& options) {
  return std::make_shared<const OneFile>(path, form, options);
}

}  // namespace trafo
