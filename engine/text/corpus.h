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
#include <vector>

namespace trafo {

struct CorpusOptions {
  size_t max_line_bytes = size_t{1} << 20;
};

struct CorpusReport {
  int64_t lines = 0;          // lines of one side
  int64_t pairs = 0;          // pairs kept
  int64_t dropped_empty = 0;  // a side was empty or white space only
  int64_t dropped_long =
      0;  // filled by TokenizedCorpus: a side above max_length, or above the token budget
};

struct ParallelCorpus {
  std::vector<std::string> source;
  std::vector<std::string> target;  // same length
  std::vector<int64_t> line;        // 1-based line each pair came from
  CorpusReport report;
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
  int64_t line_number() const noexcept;      // lines read so far
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
ParallelCorpus make_parallel(std::vector<std::string> source, std::vector<std::string> target,
                             const CorpusOptions& options = {});

}  // namespace trafo
