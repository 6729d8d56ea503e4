// Lines in and out: files, gzip, standard input; checked as the library checks corpora.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace translate_train {

class LineReader {
 public:
  // "-" is standard input. Plain or gzip. Throws a usage error that names the file.
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // False at the end. A final line break is not a line. Errors (invalid UTF-8, NUL bytes, lines
  // over 1 MiB, damaged gzip) name file and line.
  bool next(std::string& line);
  const std::string& name() const { return name_; }
  int64_t line_number() const { return line_; }

 private:
  bool fill();

  std::string name_;
  void* file_ = nullptr;  // gzFile
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t line_ = 0;
};

std::vector<std::string> read_lines(const std::string& path);
// Both sides of a pair of files; different line counts are an error that names both.
void read_pair(const std::string& source, const std::string& target,
               std::vector<std::string>& source_lines, std::vector<std::string>& target_lines);

// "-" is standard output. Errors name the file; finish() reports a full disk.
class LineWriter {
 public:
  explicit LineWriter(const std::string& path);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  void write(std::string_view line);  // and a line break
  void flush();
  void finish();

 private:
  [[noreturn]] void failed() const;
  std::string name_;
  FILE* file_ = nullptr;
};

// Offset of the first byte that is not valid UTF-8, npos if all is.
size_t invalid_utf8(std::string_view text);

}  // namespace translate_train
