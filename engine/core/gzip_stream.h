// The bytes of a file or a pipe, unpacked if they are gzip (RFC 1952).
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

namespace trafo {

// gzip is known by its first two bytes (RFC 1952, section 2.3.1), not by the name of the file. It
// may have several members, as `cat` joins them, and zeros after them, as tapes have. zlib's own
// reader takes anything else after the first member for the end of the file, so damage there would
// silently lose lines, and it waits for a full buffer, which a pipe may take minutes to give.
class GzipStream {
 public:
  GzipStream() = default;
  ~GzipStream() {
    if (is_gzip_) inflateEnd(&stream_);
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  static bool begins_gzip(std::string_view bytes) noexcept { return bytes.starts_with("\x1f\x8b"); }

  // Writes up to `size` bytes, at least two, to `out` and returns their number. 0: the end, or
  // fault(). raw(buffer, size) returns bytes of the file, at least one, and 0 at its end.
  template <class Raw>
  size_t read(char* out, size_t size, Raw raw) {
    if (!begun_) {
      const size_t count = begin(out, size, raw);
      if (!is_gzip_) return count;
    }
    if (!is_gzip_) return raw(out, size);
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size && state_ == State::reading) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(raw(input_.data(), input_.size()));
      }
      if (stream_.avail_in == 0)
        state_ = in_member_ ? State::truncated : State::ended;
      else if (in_member_)
        inflate_some();
      else
        between_members();
    }
    return size - stream_.avail_out;
  }

  // After the first read().
  bool is_gzip() const noexcept { return is_gzip_; }
  // A read() would unpack bytes that are here already.
  bool has_input() const noexcept { return stream_.avail_in > 0; }

  // Why read() has returned 0 before the end, for messages; empty at the end.
  std::string_view fault() const noexcept {
    switch (state_) {
      case State::truncated:
        return "the gzip file is truncated";
      case State::damaged:
        return "the gzip file is damaged";
      case State::followed:
        return "the gzip file is damaged: something else follows its data";
      default:
        return {};
    }
  }

 private:
  enum class State { reading, ended, truncated, damaged, followed };
  static constexpr size_t kInputBytes = size_t{1} << 16;

  template <class Raw>
  size_t begin(char* out, size_t size, Raw raw) {
    begun_ = true;
    size_t count = raw(out, size);
    if (count == 1 && out[0] == '\x1f') count += raw(out + 1, size - 1);
    if (!begins_gzip({out, count})) return count;
    // 16: with the header of gzip.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    is_gzip_ = true;
    input_.resize(std::max(kInputBytes, count));
    std::memcpy(input_.data(), out, count);
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return count;
  }

  void inflate_some() {
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
      in_member_ = false;
    else if (code == Z_MEM_ERROR)
      throw std::bad_alloc();
    else if (code != Z_OK && code != Z_BUF_ERROR)
      state_ = State::damaged;
  }

  void between_members() {
    if (!padding_ && *stream_.next_in == 0x1f) {
      inflateReset(&stream_);
      in_member_ = true;
    } else if (*stream_.next_in == 0) {
      padding_ = true;
      ++stream_.next_in;
      --stream_.avail_in;
    } else {
      state_ = State::followed;
    }
  }

  z_stream stream_{};
  std::vector<char> input_;
  State state_ = State::reading;
  bool begun_ = false, is_gzip_ = false;
  bool in_member_ = true;
  bool padding_ = false;
};

}  // namespace trafo
