#include "text/text_io.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "commands/cli_error.h"
#include "engine/core/strings/utf8.h"
#include "engine/os/file.h"
#include "engine/os/terminal.h"
#include "text/terminal_text.h"

namespace translate_train {
namespace {

namespace os = trafo::os;

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kChunk = size_t{1} << 16;

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

LineReader::LineReader(const std::string& path, bool crop)
    : name_(path == "-" ? "standard input" : path), crop_(crop) {
  os::FileStatus status;
  if (path == "-") {
    file_ = os::duplicate_file(os::kStandardInput);
  } else {
    if (os::status_of(path, status) == 0 && status.kind == os::FileStatus::Kind::directory)
      usage_error(path + ": is a directory");
    file_ = os::open_file(path, os::Open::read);
  }
  if (file_ < 0) usage_error(name_ + ": " + reason());
}

LineReader::~LineReader() {
  os::close_file(file_);
}

void LineReader::failed(const std::string& why) const {
  usage_error(fmt::format("{}:{} {}", name_, line_ + 1, why));
}

// Reads the bytes that are available, at least one; 0 at the end of the file.
size_t LineReader::read_raw(char* to, size_t room) {
  const ptrdiff_t count = os::read_some(file_, to, room);
  if (count < 0) failed(reason());
  return static_cast<size_t>(count);
}

size_t LineReader::read_some(char* to, size_t room) {
  const size_t count =
      bytes_.read(to, room, [this](char* raw, size_t size) { return read_raw(raw, size); });
  if (count == 0 && !bytes_.fault().empty()) failed(std::string(bytes_.fault()));
  if (name_.ends_with(".gz") && !bytes_.is_gzip())
    usage_error(name_ + ": is named .gz but holds no gzip data");
  return count;
}

// Adds to what is buffered; false at the end.
bool LineReader::fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kChunk) buffer_.resize(end_ + kChunk);
  const size_t count = read_some(buffer_.data() + end_, kChunk);
  at_end_ = count == 0;
  end_ += count;
  return !at_end_;
}

bool LineReader::ready(int milliseconds) {
  size_t searched = 0;
  while (true) {
    const size_t size = end_ - begin_;
    if (size > searched &&
        std::memchr(buffer_.data() + begin_ + searched, '\n', size - searched) != nullptr)
      return true;
    if (at_end_ || size > kLongestLine) return true;
    searched = size;
    if (!bytes_.has_input() && os::wait_for_input(file_, milliseconds) <= 0) return false;
    fill();
  }
}

bool LineReader::next(std::string& line) {
  cut_from_ = 0;
  size_t length = 0;
  const char* found = nullptr;
  while (true) {
    const size_t size = end_ - begin_;
    if (size > length)
      found = static_cast<const char*>(
          std::memchr(buffer_.data() + begin_ + length, '\n', size - length));
    length = found != nullptr ? static_cast<size_t>(found - buffer_.data()) - begin_ : size;
    if (found != nullptr || length > kLongestLine || !fill()) break;
  }
  if (length == 0 && found == nullptr) return false;
  line.assign(buffer_.data() + begin_, std::min(length, kLongestLine + 1));
  begin_ += length + (found != nullptr ? 1 : 0);
  if (length > kLongestLine) {
    if (!crop_) failed("is longer than 1 MiB");
    cut_from_ = length;
    while (found == nullptr) {
      begin_ = end_;
      if (!fill()) break;
      found = static_cast<const char*>(std::memchr(buffer_.data() + begin_, '\n', end_ - begin_));
      const size_t more =
          found != nullptr ? static_cast<size_t>(found - buffer_.data()) - begin_ : end_ - begin_;
      cut_from_ += more;
      begin_ += more + (found != nullptr ? 1 : 0);
    }
    size_t kept = kLongestLine;
    while (kept > 0 && (line[kept] & '\xC0') == '\x80') --kept;
    line.resize(kept);
  }
  ++line_;
  if (cut_from_ == 0 && !line.empty() && line.back() == '\r') line.pop_back();
  if (const std::string fault = trafo::text_fault(line, line_); !fault.empty())
    usage_error(fmt::format("{}:{} {}", name_, line_, fault));
  return true;
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  std::string line;
  while (reader.next(line)) lines.push_back(line);
  return lines;
}

void check_same_length(const std::string& file, size_t lines, const std::string& other,
                       size_t other_lines) {
  if (lines == other_lines) return;
  usage_error(fmt::format("{}:{} the two sides differ in length: {} has {} lines, {} has {}",
                          lines < other_lines ? other : file, std::min(lines, other_lines) + 1,
                          file, lines, other, other_lines));
}

void read_pair(const std::string& source, const std::string& target,
               std::vector<std::string>& source_lines, std::vector<std::string>& target_lines) {
  source_lines = read_lines(source);
  target_lines = read_lines(target);
  check_same_length(source, source_lines.size(), target, target_lines.size());
  if (source_lines.empty()) usage_error(source + ": is empty");
}

struct LineWriter::Gzip {
  explicit Gzip(LineWriter& owner) : writer(owner), output(kChunk) {
    // 16: with the header of gzip.
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Gzip() { deflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  // `mode`: Z_NO_FLUSH, Z_SYNC_FLUSH or Z_FINISH.
  void write(std::string_view text, int mode) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(output.data());
      stream.avail_out = static_cast<uInt>(output.size());
      deflate(&stream, mode);
      writer.write_bytes({output.data(), output.size() - stream.avail_out});
    } while (stream.avail_out == 0);
  }

  LineWriter& writer;
  z_stream stream{};
  std::vector<char> output;
};

std::string gzip_of(std::string_view text) {
  z_stream stream{};
  // 16: with the header of gzip.
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, deflateEnd);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::bad_alloc();
  packed.resize(stream.total_out);
  return packed;
}

LineWriter::LineWriter(const std::string& path) : name_(path == "-" ? "standard output" : path) {
  for (const char* ending : {".xz", ".zst", ".bz2"})
    if (path.ends_with(ending))
      usage_error(fmt::format("{}: gzip is what can be written: name it .gz", path));
  file_ = path == "-" ? stdout : os::open_stream(path);
  if (file_ == nullptr) failed();
  if (path.ends_with(".gz")) gzip_ = std::make_unique<Gzip>(*this);
  is_terminal_ = os::is_terminal(file_);
}

LineWriter::~LineWriter() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void LineWriter::failed() const {
  throw CliError(kFailed, name_ + ": " + reason());
}

void LineWriter::write(std::string_view line) {
  if (!is_terminal_) return put(line);
  for (;;) {  // a page or a configuration has many lines
    const size_t end = line.find('\n');
    show(line.substr(0, end));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

void LineWriter::show(std::string_view line) {
  put(terminal_text(line));
}

void LineWriter::add(std::string_view text) {
  if (!is_terminal_) return put_part(text);
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    show(text.substr(0, end));
  put_part(terminal_text(text));
}

void LineWriter::put(std::string_view line) {
  put_part(line);
  put_part("\n");
}

void LineWriter::put_part(std::string_view text) {
  if (gzip_) return gzip_->write(text, Z_NO_FLUSH);
  write_bytes(text);
}

void LineWriter::empty_once() {
  if (!is_emptied_ && file_ != stdout && os::empty_stream(file_) != 0) failed();
  is_emptied_ = true;
}

void LineWriter::write_bytes(std::string_view bytes) {
  empty_once();
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) failed();
}

void LineWriter::flush() {
  if (gzip_) gzip_->write("", Z_SYNC_FLUSH);
  if (std::fflush(file_) != 0) failed();
}

void LineWriter::finish() {
  if (gzip_) gzip_->write("", Z_FINISH);
  empty_once();
  if (std::fflush(file_) != 0) failed();
  if (file_ == stdout) return;
  FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) failed();
}

}  // namespace translate_train
