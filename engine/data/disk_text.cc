#include "engine/data/disk_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <thread>

#include "engine/core/library_thread.h"
#include "engine/core/open_error.h"
#include "engine/core/status.h"
#include "engine/core/system_file.h"

namespace trafo {
namespace {

constexpr std::string_view kDiskTextOrigin = "corpus";
// The offset and the length of a line in one word.
constexpr int kLengthBits = 21;
static_assert(limits::kTextOffsetBits + kLengthBits == 64);
static_assert(CorpusOptions{}.max_line_bytes < size_t{1} << kLengthBits);

// An open file that is read by pread, after it was filled if it is a temporary one.
class ReadOnlyFile {
 public:
  ReadOnlyFile() = default;
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  ~ReadOnlyFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  void open_path(const std::string& path) {
    name_ = path;
    descriptor_ = open_file(path.c_str(), O_RDONLY);
    if (descriptor_ < 0) fail_to_open(kDiskTextOrigin, path, errno);
    // Taken before the lines are indexed: the file must not change after this.
    watched_ = fstat(descriptor_, &known_) == 0;
  }

  // Opens an unnamed file for reading and writing. Returns its descriptor, which this object owns.
  int make_nameless(const std::string& directory, const std::string& for_name) {
    namespace fs = std::filesystem;
    name_ = for_name;
    std::error_code error;
    const fs::path folder =
        directory.empty() ? fs::temp_directory_path(error) : fs::path(directory);
    fs::create_directories(folder, error);
    std::string path = (folder / "unpacked-XXXXXX").string();
    descriptor_ = away_from_streams(mkostemp(path.data(), O_CLOEXEC));
    require(descriptor_ >= 0, ErrorCode::io, kDiskTextOrigin, for_name, " cannot be unpacked in ",
            folder.string(), ": ", std::strerror(errno));
    unlink(path.c_str());
    return descriptor_;
  }

  void read(uint64_t offset, size_t length, std::string& out) const {
    out.resize(length);
    for (size_t done = 0; done < length;) {
      const ssize_t got = uninterrupted([&] {
        return pread(descriptor_, out.data() + done, length - done,
                     static_cast<off_t>(offset + done));
      });
      require(got >= 0, ErrorCode::io, kDiskTextOrigin, name_,
              ": cannot be read: ", std::strerror(errno));
      if (got == 0) fail_changed();
      done += static_cast<size_t>(got);
    }
  }

  const std::string& name() const { return name_; }

  void check_unchanged() const {
    struct stat now {};
    if (!watched_ || fstat(descriptor_, &now) != 0) return;
    if (now.st_size != known_.st_size || now.st_mtim.tv_sec != known_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != known_.st_mtim.tv_nsec)
      fail_changed();
  }

 private:
  [[noreturn]] void fail_changed() const {
    fail(ErrorCode::io, kDiskTextOrigin, name_,
         ": has changed while it was trained on; stop and start again to read it anew");
  }

  std::string name_;
  int descriptor_ = -1;
  bool watched_ = false;
  struct stat known_ {};
};

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
  struct stat info {};
  const bool plain =
      path != "-" && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && !is_gzip_file(path);
  if (plain)
    side.file.open_path(path);
  else
    reader->copy_to(
        side.file.make_nameless(unpack_directory, reader->name()),
        unpack_directory.empty() ? "the directory for temporary files" : unpack_directory);
  return reader;
}

class ParallelFiles final : public PairText {
 public:
  ParallelFiles(const std::string& source_path, const std::string& target_path,
                const LoadOptions& options) {
    require(source_path != "-" || target_path != "-", ErrorCode::invalid_argument, kDiskTextOrigin,
            "standard input cannot be both sides; give one TSV instead");
    const auto source = open_side(source_path, options.unpack_directory, sides_[0]);
    const auto target = open_side(target_path, options.unpack_directory, sides_[1]);
    Scan scans[2];
    {
      const auto other = start_thread<std::jthread>([&] { scans[1].run(*target, sides_[1]); });
      scans[0].run(*source, sides_[0]);
    }
    // The error that reading both files line by line would have met first.
    if (scans[0].error || scans[1].error) {
      const bool second =
          !scans[0].error || (scans[1].error && scans[1].blank.size() < scans[0].blank.size());
      std::rethrow_exception(scans[second ? 1 : 0].error);
    }
    if (source->line_number() != target->line_number())
      fail_line_counts(source->name(), source->line_number(), target->name(),
                       target->line_number());
    const size_t lines = sides_[0].lines.size();
    size_t kept = 0;
    for (size_t i = 0; i < lines; ++i) {
      if (scans[0].blank[i] || scans[1].blank[i]) continue;
      sides_[0].lines[kept] = sides_[0].lines[i];
      sides_[1].lines[kept] = sides_[1].lines[i];
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
    large_ = scans[0].bytes + scans[1].bytes > options.memory_bytes;
    fingerprint_ = corpus_fingerprint(scans[0].hash.value(), scans[1].hash.value());
    check_usable(report_, concat(source->name(), " and ", target->name()));
  }

  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override {
    // Checked now and then: a file that is edited in place keeps some of its lines.
    if (pair % 64 == 0)
      for (const Side& side : sides_) side.file.check_unchanged();
    sides_[0].read(pair, buffers.source);
    sides_[1].read(pair, buffers.target);
    return {buffers.source, buffers.target};
  }

 private:
  struct Scan {
    std::vector<bool> blank;
    LineHash hash;
    int64_t bytes = 0;
    std::exception_ptr error;

    void run(LineReader& reader, Side& side) {
      try {
        for (std::string line; reader.next(line);) {
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

  Side sides_[2];
};

// TSV or monolingual.
class OneFile final : public PairText {
 public:
  OneFile(const std::string& path, const LoadOptions& options, bool one_sided) {
    monolingual_ = one_sided;
    const auto reader = open_side(path, options.unpack_directory, side_);
    LineHash source_hash, target_hash;
    int64_t bytes = 0;
    for (std::string line; reader->next(line);) {
      ++report_.lines;
      PairView pair{{}, line};
      if (!monolingual_) {
        std::tie(pair.source, pair.target) = split_tsv(line, reader->name(), reader->line_number());
        source_hash.add(pair.source);
      }
      target_hash.add(pair.target);
      if (is_blank(pair.target) || (!monolingual_ && is_blank(pair.source))) {
        ++report_.dropped_empty;
        continue;
      }
      add_line(report_.pairs, report_.lines - 1);
      ++report_.pairs;
      side_.add(reader->offset(), line.size());
      bytes += static_cast<int64_t>(line.size());
    }
    large_ = bytes > options.memory_bytes;
    side_.lines.shrink_to_fit();
    fingerprint_ = corpus_fingerprint(monolingual_ ? 0 : source_hash.value(), target_hash.value());
    check_usable(report_, reader->name());
  }

  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override {
    if (pair % 64 == 0) side_.file.check_unchanged();
    side_.read(pair, buffers.target);
    const std::string_view line = buffers.target;
    if (monolingual_) return {{}, line};
    const size_t tab = std::min(line.find('\t'), line.size());
    return {line.substr(0, tab), line.substr(std::min(tab + 1, line.size()))};
  }

 private:
  Side side_;
};

}  // namespace

std::shared_ptr<const PairText> open_parallel(const std::string& source_path,
                                              const std::string& target_path,
                                              const LoadOptions& options) {
  return std::make_shared<const ParallelFiles>(source_path, target_path, options);
}

std::shared_ptr<const PairText> open_tsv(const std::string& path, const LoadOptions& options) {
  return std::make_shared<const OneFile>(path, options, false);
}

std::shared_ptr<const PairText> open_monolingual(const std::string& path,
                                                 const LoadOptions& options) {
  return std::make_shared<const OneFile>(path, options, true);
}

}  // namespace trafo
