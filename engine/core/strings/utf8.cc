#include "engine/core/strings/utf8.h"

#include <cstring>

namespace trafo {
namespace {

bool is_continuation(unsigned char byte) {
  return (byte & 0xc0) == 0x80;
}

// Length of the well-formed sequence at `p` with `left` bytes to go, 0 if ill-formed (Unicode 15,
// table 3-7).
size_t sequence_length(const unsigned char* p, size_t left) {
  const unsigned char first = p[0];
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;  // continuation byte, or an overlong two-byte form
  if (first < 0xe0) return left >= 2 && is_continuation(p[1]) ? 2 : 0;
  if (first < 0xf0) {
    if (left < 3 || !is_continuation(p[1]) || !is_continuation(p[2])) return 0;
    if (first == 0xe0 && p[1] < 0xa0) return 0;   // overlong
    if (first == 0xed && p[1] >= 0xa0) return 0;  // surrogate
    return 3;
  }
  if (first > 0xf4 || left < 4) return 0;
  if (!is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3])) return 0;
  if (first == 0xf0 && p[1] < 0x90) return 0;   // overlong
  if (first == 0xf4 && p[1] >= 0x90) return 0;  // above U+10FFFF
  return 4;
}

// The mark of Parquet, and how the first header of a page, or the metadata of an empty file,
// begins.
constexpr std::string_view kParquet = "PAR1\x15";

// The probable format of a file that begins with this line, and the remedy. Empty if its first
// bytes tell nothing.
std::string_view other_format_hint(std::string_view first_line) {
  using namespace std::string_view_literals;
  struct Format {
    std::string_view begin, hint;
  };
  static constexpr Format kFormats[] = {
      {"\xff\xfe"sv, "; it is UTF-16: iconv -f UTF-16 -t UTF-8 converts it"sv},
      {"\xfe\xff"sv, "; it is UTF-16: iconv -f UTF-16 -t UTF-8 converts it"sv},
      {"\xfd"
       "7zXZ"sv,
       "; it is xz: xz -d unpacks it"sv},
      {"\x28\xb5\x2f\xfd"sv, "; it is zstd: zstd -d unpacks it"sv},
      {"BZh"sv, "; it is bzip2: bunzip2 unpacks it"sv},
      {"PK\x03\x04"sv, "; it is a zip archive: unzip unpacks it"sv},
      {kParquet,
       "; it is Parquet: duckdb -c \"COPY (FROM 'data.parquet') TO 'data.jsonl' (FORMAT json)\" "
       "writes JSON lines"sv},
  };
  for (const Format& format : kFormats)
    if (first_line.starts_with(format.begin)) return format.hint;
  // Text of the Latin alphabet in UTF-16 has a zero in each character.
  if (first_line.size() >= 2 && (first_line[0] == '\0') != (first_line[1] == '\0'))
    return "; it may be UTF-16 without a byte order mark: iconv -f UTF-16LE -t UTF-8 converts it"sv;
  return {};
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) noexcept {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t position = 0;
  while (position < text.size()) {
    if (text.size() - position >= 8) {
      uint64_t word;
      std::memcpy(&word, bytes + position, 8);
      if ((word & 0x8080808080808080u) == 0) {
        position += 8;
        continue;
      }
    }
    const size_t length = sequence_length(bytes + position, text.size() - position);
    if (length == 0) return position;
    position += length;
  }
  return kValidUtf8;
}

std::string text_fault(std::string_view text, int64_t line) {
  const size_t bad = find_invalid_utf8(text);
  const size_t nul = bad == kValidUtf8 ? text.find('\0') : std::string_view::npos;
  // Its first line may have neither.
  const bool parquet = line == 1 && text.starts_with(kParquet);
  if (bad == kValidUtf8 && nul == std::string_view::npos && !parquet) return {};
  std::string fault;
  if (bad != kValidUtf8) {
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(text[bad]);
    fault = "invalid UTF-8 at byte " + std::to_string(bad + 1) + " (0x" + digits[byte >> 4] +
            digits[byte & 15] + ")";
  } else if (nul == std::string_view::npos) {
    fault = "binary data";
  } else {
    fault = "NUL byte at byte " + std::to_string(nul + 1);
  }
  const std::string_view format = line == 1 ? other_format_hint(text) : std::string_view();
  if (!format.empty())
    fault += format;
  else if (line > 0 && bad != kValidUtf8)
    // Windows-1252 has the characters of Latin-1, and more where Latin-1 has none.
    fault +=
        "; the file is not UTF-8: if it is Latin-1, iconv -f WINDOWS-1252 -t UTF-8 converts it";
  return fault;
}

char32_t next_code_point(std::string_view text, size_t& position) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + position;
  const size_t length = sequence_length(p, text.size() - position);
  position += length == 0 ? 1 : length;
  switch (length) {
    case 1:
      return p[0];
    case 2:
      return static_cast<char32_t>((p[0] & 0x1f) << 6 | (p[1] & 0x3f));
    case 3:
      return static_cast<char32_t>((p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f));
    case 4:
      return static_cast<char32_t>((p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 |
                                   (p[3] & 0x3f));
    default:
      return 0xfffd;
  }
}

std::vector<char32_t> to_code_points(std::string_view text) {
  std::vector<char32_t> result;
  result.reserve(text.size());
  for (size_t position = 0; position < text.size();)
    result.push_back(next_code_point(text, position));
  return result;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto c = static_cast<uint32_t>(code_point);
  auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

std::string_view truncate_utf8(std::string_view text, size_t max_bytes) noexcept {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && is_continuation(static_cast<unsigned char>(text[end]))) --end;
  return text.substr(0, end);
}

bool is_unicode_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

}  // namespace trafo
