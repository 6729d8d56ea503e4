// Text corpora: lines from plain files, gzip files and standard input, checked, as sentence pairs.
//
// Every reader strips the line end (LF or CR LF) and a byte order mark at the start of the file,
// and accepts a missing last line end. Errors name file, line and reason:
//   NOT_FOUND         there is no such file
//   IO                it cannot be read
//   INVALID_ARGUMENT  a directory; invalid UTF-8 (line and byte); a NUL byte; a long line;
//                     files with different line counts (both are named); a TSV line without exactly
//                     one tab; a file without lines; a corpus without a usable pair
//   CORRUPT_FILE      truncated or damaged gzip; a file named .gz that is not gzip
// gzip is known by its first bytes, whatever the name of the file. "-" is standard input, which can
// be read once. Both sides may be the same file (a copying task).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/limits.h"

namespace trafo {

struct CorpusOptions {
  size_t max_line_bytes = limits::kLineBytes;
  // Memory limit for the pairs of a ParallelCorpus. The size of a compressed file says little about
  // it.
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Thrown where pairs take more than CorpusOptions::memory_bytes.
struct CorpusTooLarge {};

struct CorpusReport {
  int64_t lines = 0;          // lines of one side
  int64_t pairs = 0;          // pairs kept
  int64_t dropped_empty = 0;  // a side is empty or white space
  // Counted when pairs are tokenised:
  int64_t dropped_long = 0;       // a side is longer than max_length or the token budget
  int64_t dropped_ratio = 0;      // one side is more than max_length_ratio times as long
  int64_t dropped_identical = 0;  // both sides are the same text
};

// The hash of a sequence of lines. It shows whether a corpus was edited after training began.
class LineHash {
 public:
  void add(std::string_view line) noexcept;
  uint64_t value() const noexcept { return value_; }

 private:
  uint64_t value_ = 0x9e3779b97f4a7c15u;
};
// The fingerprint of a corpus from the hashes of its sides.
uint64_t corpus_fingerprint(uint64_t source, uint64_t target) noexcept;

struct ParallelCorpus {
  std::vector<std::string> source;
  std::vector<std::string> target;  // same length
  std::vector<int64_t> line;        // the line of each pair, counted from 1
  CorpusReport report;
  bool monolingual = false;  // text without sources
  uint64_t fingerprint = 0;  // of all lines, dropped pairs included
};

// True for a regular file that begins as gzip does.
bool is_gzip_file(const std::string& path) noexcept;

// Streams one file. Needs memory for one line and a fixed buffer.
class LineReader {
 public:
  explicit LineReader(std::string path, CorpusOptions options = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  // Reads the next line; false at the end of the file. `line` keeps its capacity.
  bool next(std::string& line);
  int64_t line_number() const noexcept;  // lines read so far
  // The position of the last line in the decompressed file, in bytes.
  uint64_t offset() const noexcept;
  // Copies all bytes that are read to this descriptor, so that offset() is a position in that file.
  // Call it before the first next(). IO, naming `directory`, if a write fails.
  void copy_to(int descriptor, std::string directory);
  const std::string& name() const noexcept;  // for messages: the path, or "standard input"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All lines of a file, empty ones included; none for an empty file. For translation input and
// validation references.
std::vector<std::string> read_lines(const std::string& path, const CorpusOptions& options = {});

// Pairs with an empty side are dropped and counted. Throws CorpusTooLarge.
ParallelCorpus read_parallel(const std::string& source_path, const std::string& target_path,
                             const CorpusOptions& options = {});
ParallelCorpus read_tsv(const std::string& path, const CorpusOptions& options = {});
// One sentence or text a line, without sources.
ParallelCorpus read_monolingual(const std::string& path, const CorpusOptions& options = {});
ParallelCorpus make_parallel(std::vector<std::string> source, std::vector<std::string> target,
                             const CorpusOptions& options = {});

bool is_blank(std::string_view text) noexcept;
// Splits SOURCE<tab>TARGET. INVALID_ARGUMENT, naming file and line, unless there is just one tab.
std::pair<std::string_view, std::string_view> split_tsv(std::string_view line,
                                                        std::string_view file, int64_t number);
// INVALID_ARGUMENT naming both files.
[[noreturn]] void fail_line_counts(std::string_view source, int64_t source_lines,
                                   std::string_view target, int64_t target_lines);
// INVALID_ARGUMENT if there are no lines, or no pair without an empty side.
void check_usable(const CorpusReport& report, std::string_view name);

}  // namespace trafo
