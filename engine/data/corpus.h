// Text corpora: lines from plain or gzip files and standard input, checked, as parallel sentence
// pairs.
//
// Every reader strips the line end (LF or CR LF) and a byte order mark at the start of the file,
// and accepts a missing last line end. Errors name file, line and reason:
//   IO                unreadable, or not there
//   INVALID_ARGUMENT  directory, invalid UTF-8 (line and byte), NUL byte, line over the limit,
//   differing line counts (both),
//                     a TSV line without exactly one tab, a file without lines, a corpus without a
//                     usable pair
//   CORRUPT_FILE      truncated or damaged gzip
// "-" is standard input, which can be read once. The same file on both sides is allowed (a copying
// task).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/limits.h"

namespace trafo {

struct CorpusOptions {
  size_t max_line_bytes = limits::kLineBytes;
};

struct CorpusReport {
  int64_t lines = 0;          // lines of one side
  int64_t pairs = 0;          // pairs kept
  int64_t dropped_empty = 0;  // a side was empty or white space only
  // Filled where pairs are cut into pieces:
  int64_t dropped_long = 0;       // a side above max_length, or above the token budget
  int64_t dropped_ratio = 0;      // one side more than max_length_ratio times as long as the other
  int64_t dropped_identical = 0;  // both sides the same text
};

// Hash of a sequence of lines: tells an edited corpus from the one that was trained on.
class LineHash {
 public:
  void add(std::string_view line) noexcept;
  uint64_t value() const noexcept { return value_; }

 private:
  uint64_t value_ = 0x9e3779b97f4a7c15u;
};
// Of a corpus by the hashes of its sides.
uint64_t corpus_fingerprint(uint64_t source, uint64_t target) noexcept;

struct ParallelCorpus {
  std::vector<std::string> source;
  std::vector<std::string> target;  // same length
  std::vector<int64_t> line;        // 1-based line each pair came from
  CorpusReport report;
  bool monolingual = false;  // all sources are empty, and meant to be
  uint64_t fingerprint = 0;  // of all lines, those of dropped pairs too
};

// Streams one file; holds at most one line plus a fixed buffer.
class LineReader {
 public:
  explicit LineReader(std::string path, CorpusOptions options = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  // false at the end of the file; `line` keeps its capacity.
  bool next(std::string& line);
  int64_t line_number() const noexcept;  // lines read so far
  // Where the text of the last line begins, in the bytes of the file after decompression.
  uint64_t offset() const noexcept;
  // From here on, all bytes read are written to this descriptor as well: offset() is a place in
  // that file then. IO, naming `directory`, if they cannot be. Before the first next().
  void copy_to(int descriptor, std::string directory);
  const std::string& name() const noexcept;  // for messages: the path, or "standard input"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All lines; empty ones are kept, and so is an empty file's empty list. For translation input and
// validation references.
std::vector<std::string> read_lines(const std::string& path, const CorpusOptions& options = {});

// Pairs with an empty side are dropped and counted.
ParallelCorpus read_parallel(const std::string& source_path, const std::string& target_path,
                             const CorpusOptions& options = {});
ParallelCorpus read_tsv(const std::string& path, const CorpusOptions& options = {});
// One sentence or text a line, no source.
ParallelCorpus read_monolingual(const std::string& path, const CorpusOptions& options = {});
ParallelCorpus make_parallel(std::vector<std::string> source, std::vector<std::string> target,
                             const CorpusOptions& options = {});

bool is_blank(std::string_view text) noexcept;
// Splits SOURCE<tab>TARGET; INVALID_ARGUMENT naming file and line unless there is exactly one tab.
std::pair<std::string_view, std::string_view> split_tsv(std::string_view line,
                                                        std::string_view file, int64_t number);
// INVALID_ARGUMENT naming both files.
[[noreturn]] void fail_line_counts(std::string_view source, int64_t source_lines,
                                   std::string_view target, int64_t target_lines);
// INVALID_ARGUMENT if nothing, or nothing but empty sides, was read.
void check_usable(const CorpusReport& report, std::string_view name);

}  // namespace trafo
