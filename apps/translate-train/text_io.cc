#include "text_io.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "cli_error.h"

namespace translate_train {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

size_t invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t i = 0;
  while (i < text.size()) {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // Unicode 15, table 3-7: the second byte's range excludes overlong forms and surrogates.
    size_t more = 0;
    unsigned char low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (i + more >= text.size() || byte(i + 1) < low || byte(i + 1) > high) return i;
    for (size_t k = 2; k <= more; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    i += more + 1;
  }
  return std::string_view::npos;
}

LineReader::LineReader(const std::string& path)
    : name_(path == "-" ? "standard input" : path), buffer_(size_t{1} << 16) {
  struct stat info {};
  if (path == "-") {
    file_ = gzdopen(dup(STDIN_FILENO), "rb");
  } else {
    if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      usage_error(path + ": is a directory");
    file_ = gzopen(path.c_str(), "rb");
  }
  if (file_ == nullptr) usage_error(name_ + ": " + (errno != 0 ? reason() : "cannot be opened"));
}

LineReader::~LineReader() {
  gzclose_r(static_cast<gzFile>(file_));
}

bool LineReader::fill() {
  const int count =
      gzread(static_cast<gzFile>(file_), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int code = Z_OK;
  const char* message = gzerror(static_cast<gzFile>(file_), &code);
  // A file that ends inside its gzip stream reads as a short one.
  if (count < 0 || code == Z_BUF_ERROR)
    usage_error(fmt::format("{}:{} {}", name_, line_ + 1,
                            code == Z_ERRNO ? reason() : std::string("damaged gzip: ") + message));
  begin_ = 0;
  end_ = static_cast<size_t>(count);
  return count > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (true) {
    if (begin_ == end_ && !fill()) break;
    any = true;
    const char* start = buffer_.data() + begin_;
    const char* found = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const size_t length = found != nullptr ? static_cast<size_t>(found - start) : end_ - begin_;
    line.append(start, length);
    begin_ += length + (found != nullptr ? 1 : 0);
    if (line.size() > kLongestLine)
      usage_error(fmt::format("{}:{} is longer than 1 MiB", name_, line_ + 1));
    if (found != nullptr) break;
  }
  if (!any) return false;
  ++line_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (const size_t bad = invalid_utf8(line); bad != std::string_view::npos)
    usage_error(fmt::format("{}:{} invalid UTF-8 at byte {}", name_, line_, bad + 1));
  if (const size_t nul = line.find('\0'); nul != std::string::npos)
    usage_error(fmt::format("{}:{} NUL byte at byte {}", name_, line_, nul + 1));
  return true;
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  std::string line;
  while (reader.next(line)) lines.push_back(line);
  return lines;
}

void read_pair(const std::string& source, const std::string& target,
               std::vector<std::string>& source_lines, std::vector<std::string>& target_lines) {
  source_lines = read_lines(source);
  target_lines = read_lines(target);
  if (source_lines.size() != target_lines.size())
    usage_error(fmt::format("{}:{} the two sides differ in length: {} has {} lines, {} has {}",
                            source_lines.size() < target_lines.size() ? target : source,
                            std::min(source_lines.size(), target_lines.size()) + 1, source,
                            source_lines.size(), target, target_lines.size()));
  if (source_lines.empty()) usage_error(source + ": is empty");
}

LineWriter::LineWriter(const std::string& path) : name_(path == "-" ? "standard output" : path) {
  file_ = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  if (file_ == nullptr) failed();
}

LineWriter::~LineWriter() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void LineWriter::failed() const {
  throw CliError(kFailed, name_ + ": " + reason());
}

void LineWriter::write(std::string_view line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
      std::fputc('\n', file_) == EOF)
    failed();
}

void LineWriter::flush() {
  if (std::fflush(file_) != 0) failed();
}

void LineWriter::finish() {
  flush();
  if (file_ == stdout) return;
  FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) failed();
}

}  // namespace translate_train
