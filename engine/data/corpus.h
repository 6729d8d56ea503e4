// Text corpora: lines from plain files, gzip files and standard input, checked, as sentence pairs.
// A line of text has one side or, as columns, all of them. A line of JSON is a record
// (json_record.h), and so are one or several lines of CSV (csv_record.h).
//
// Every reader strips the line end (LF or CR LF) and a byte order mark at the start of the file,
// and accepts a missing last line end. Errors name file, line and reason:
//   NOT_FOUND         there is no such file
//   IO                it cannot be read
//   INVALID_ARGUMENT  a directory; invalid UTF-8 (line and byte); a NUL byte; a long line;
//                     files with different line counts (both are named); a TSV line with fewer or
//                     more tabs than its form has; a file without lines; a corpus without a usable
//                     pair
//   CORRUPT_FILE      truncated or damaged gzip; a file named .gz that is not gzip; a line of JSON
//                     or CSV that is no record, or records that are no pairs
// gzip is known by its first bytes, whatever the name of the file. "-" is standard input, which can
// be read once. Both sides may be the same file (a copying task).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/limits.h"

namespace trafo {

enum class CorpusFormat {
  automatic,  // by the name of the file or its first line that is not empty
  text,
  json_lines,
  chats,  // JSON lines, each a conversation
  csv,    // with the names of the columns in the first line
  // Files of token ids, see token_files/token_layout.h:
  llm_c,
  nanogpt,
  megatron,
};

struct CorpusOptions {
  size_t max_line_bytes = limits::kLineBytes;
  // Memory limit for the pairs of a ParallelCorpus. The size of a compressed file says little about
  // it.
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
  CorpusFormat format = CorpusFormat::automatic;
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
  int64_t cut = 0, windows = 0;   // long texts without a source, and the windows that they became
};

// The texts of a pair. Those that a form does not have are empty. A labelled answer is a preference
// pair with one answer, the preferred one if its label is true, and an empty text.
struct PairView {
  std::string_view source, target, rejected = {};
};
// Memory of views whose text is not in memory otherwise.
struct PairBuffers {
  std::string source, target, rejected, line;
};

// The hash of a sequence of lines. It shows whether a corpus was edited after training began.
class LineHash {
 public:
  void add(std::string_view line) noexcept;
  uint64_t value() const noexcept { return value_; }

 private:
  uint64_t value_ = 0x9e3779b97f4a7c15u;
};
// The fingerprint of a corpus from the hashes of its sides: of source and target, of which
// monolingual text has the second one alone, or of all three.
uint64_t corpus_fingerprint(std::span<const LineHash> sides) noexcept;

// The texts of a pair. Values are the numbers of texts.
enum class CorpusForm {
  monolingual = 1,  // a target without a source
  parallel = 2,     // source and target
  preferences = 3,  // a prompt (source), the preferred answer (target) and the rejected one
};

// The same of the lines of pairs.
class PairHash {
 public:
  explicit PairHash(CorpusForm form) : sides_(static_cast<size_t>(form)) {}
  void add(const PairView& pair) noexcept;
  uint64_t fingerprint() const noexcept { return corpus_fingerprint(sides_); }

 private:
  std::vector<LineHash> sides_;
};

struct ParallelCorpus {
  std::vector<std::string> source;
  std::vector<std::string> target;         // same length
  std::vector<std::string> rejected = {};  // of preferences: same length
  std::vector<int64_t> line;               // the line of each pair, counted from 1
  CorpusReport report;
  CorpusForm form = CorpusForm::parallel;
  CorpusFormat format = CorpusFormat::text;  // of its files
  bool has_chats = false;                    // the texts are conversations (chat_record.h)
  bool labelled = false;                     // preferences: each pair has one answer
  std::string file = {};                     // the one that all lines are from, for messages
  uint64_t fingerprint = 0;                  // of all lines, dropped pairs included
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

// Of all of them on disk; 0: unknown, since one is no regular file.
int64_t bytes_of_files(std::span<const std::string> paths) noexcept;

// All lines of a file, empty ones included; none for an empty file. For translation input and
// validation references.
std::vector<std::string> read_lines(const std::string& path, const CorpusOptions& options = {});

// A file for each side, two or three. Pairs with an empty side are dropped and counted. Throws
// CorpusTooLarge.
ParallelCorpus read_sides(std::span<const std::string> paths, const CorpusOptions& options = {});
// One file of JSON lines or CSV, whose members or columns choose the form, or with as many tab
// separated columns as the form has texts.
ParallelCorpus read_columns(const std::string& path, CorpusForm form,
                            const CorpusOptions& options = {});
ParallelCorpus make_parallel(std::vector<std::string> source, std::vector<std::string> target,
                             const CorpusOptions& options = {});
ParallelCorpus make_preferences(std::vector<std::string> prompt, std::vector<std::string> chosen,
                                std::vector<std::string> rejected,
                                const CorpusOptions& options = {});
// Labelled answers. labels[i]: whether answer i is desirable.
ParallelCorpus make_labelled(std::vector<std::string> prompt, std::vector<std::string> answer,
                             const std::vector<bool>& labels, const CorpusOptions& options = {});

bool is_blank(std::string_view text) noexcept;
// Whether a text that the form has is empty or white space. `labelled`: of one of both answers that
// does not matter.
bool has_blank(const PairView& pair, CorpusForm form, bool labelled = false) noexcept;
// Splits a line at its tabs. INVALID_ARGUMENT, naming file and line, unless there is one fewer than
// texts in the form. A line of monolingual text may have any.
PairView split_columns(std::string_view line, CorpusForm form, std::string_view file,
                       int64_t number);
// INVALID_ARGUMENT if more than one of the files is standard input.
void require_one_stream(std::span<const std::string> paths);
// "a and b" or "a, b and c".
std::string joined_names(std::span<const std::string> names);
// For messages: "the two sides", or three of preferences.
const char* sides_of(CorpusForm form) noexcept;
// For messages: the reason why drop_identical drops a pair.
const char* is_identical(bool preferences) noexcept;
// INVALID_ARGUMENT naming both files.
[[noreturn]] void fail_line_counts(CorpusForm form, std::string_view source, int64_t source_lines,
                                   std::string_view target, int64_t target_lines);
// INVALID_ARGUMENT if there are no lines, or no pair without an empty side.
void check_usable(const CorpusReport& report, std::string_view name);

}  // namespace trafo
