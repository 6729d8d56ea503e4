// Lines in and out: files, gzip, standard input; checked as the library checks corpora.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/gzip_stream.h"

namespace translate_train {

class LineReader {
 public:
  // "-" is standard input. Plain or gzip, whatever its name; named .gz it must be gzip. Throws a
  // usage error that names the file. `crop`: a line over 1 MiB is cut, between two characters,
  // instead of being an error.
  explicit LineReader(const std::string& path, bool crop = false);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // False at the end. A final line break is not a line. Waits for a line, but not for more than
  // that. Errors (invalid UTF-8, NUL bytes, lines over 1 MiB, damaged gzip) name file and line.
  bool next(std::string& line);
  // True when next() would not wait; gives a writer at the other end of a pipe so long to go on.
  bool ready(int milliseconds);
  const std::string& name() const { return name_; }
  int64_t line_number() const { return line_; }
  // Bytes that the last line had before it was cut; 0: it is whole.
  size_t cut_from() const { return cut_from_; }

 private:
  bool fill();
  size_t read_raw(char* to, size_t room);
  size_t read_some(char* to, size_t room);
  [[noreturn]] void failed(const std::string& why) const;

  std::string name_;
  bool crop_;
  int file_ = -1;
  trafo::GzipStream bytes_;
  bool at_end_ = false;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t line_ = 0;
  size_t cut_from_ = 0;
};

std::vector<std::string> read_lines(const std::string& path);
// Different line counts are an error that names both files.
void check_same_length(const std::string& file, size_t lines, const std::string& other,
                       size_t other_lines);
// Both sides of a pair of files; different line counts are an error that names both.
void read_pair(const std::string& source, const std::string& target,
               std::vector<std::string>& source_lines, std::vector<std::string>& target_lines);

// "-" is standard output; a file named .gz is gzip. A file keeps what it has until the first line
// is written. Errors name the file; finish() reports a full disk.
class LineWriter {
 public:
  explicit LineWriter(const std::string& path);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  // The line and a line break. On a terminal, as show().
  void write(std::string_view line);
  // Text without a line break after it; it may have some inside. On a terminal, lines as show().
  void add(std::string_view text);
  // Writes a line for a person: terminal_text() of it, on a terminal and in a file.
  void show(std::string_view line);
  void flush();
  void finish();

 private:
  struct Gzip;
  [[noreturn]] void failed() const;
  void put(std::string_view line);
  void put_part(std::string_view text);
  void write_bytes(std::string_view bytes);
  void empty_once();
  std::string name_;
  FILE* file_ = nullptr;
  std::unique_ptr<Gzip> gzip_;  // null: plain
  bool is_terminal_ = false, is_emptied_ = false;
};

// The text as a gzip file. Several of them one after the other are a gzip file again.
std::string gzip_of(std::string_view text);

}  // namespace translate_train
