#include "engine/train/step/gemm_cache.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "engine/core/status.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"

namespace trafo {
namespace {

constexpr const char* kGemmCacheOrigin = "GEMM cache";
constexpr std::string_view kTitle = "trafo-gemm-cache 1 ";

// Parses numbers from the front of a line.
class Numbers {
 public:
  explicit Numbers(std::string_view line) : rest_(line) {}
  template <class T>
  bool take(T& value, int base) {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
    if (error != std::errc{}) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

template <class T>
void append(std::string& text, T value, int base) {
  char digits[32];
  text.append(digits, std::to_chars(std::begin(digits), std::end(digits), value, base).ptr);
}

bool parse_choice(std::string_view line, GemmChoice& choice) {
  Numbers numbers(line);
  for (int64_t& value : choice.gemm)
    if (!numbers.take(value, 10)) return false;
  for (uint64_t& value : choice.kernel)
    if (!numbers.take(value, 16)) return false;
  return numbers.empty();
}

}  // namespace

std::string encode_gemm_cache(const GemmCache& cache) {
  std::string text(kTitle);
  text += "00000000\n" + cache.library + '\n';
  for (const GemmChoice& choice : cache.choices) {
    for (const int64_t value : choice.gemm) {
      append(text, value, 10);
      text += ' ';
    }
    for (const uint64_t value : choice.kernel) {
      append(text, value, 16);
      text += ' ';
    }
    text.back() = '\n';
  }
  seal_text(text, kTitle.size());
  return text;
}

GemmCache decode_gemm_cache(std::string_view text, const std::filesystem::path& path) {
  const auto intact = [&](bool condition, const char* what) {
    require(condition, ErrorCode::corrupt_file, kGemmCacheOrigin, path.string(), " ", what,
            "; without the file the GEMMs are measured again, and results differ in their last "
            "digits from those before");
  };
  intact(text.starts_with(kTitle), "is no GEMM cache of this version");
  intact(is_sealed(text, kTitle.size()), "is damaged: its checksum does not fit");
  const auto next_line = [&text] {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  next_line();
  intact(!text.empty(), "ends after its first line");
  GemmCache cache{std::string(next_line()), {}};
  while (!text.empty())
    intact(parse_choice(next_line(), cache.choices.emplace_back()),
           "has a line that names no kernel");
  return cache;
}

std::optional<GemmCache> read_gemm_cache(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_text_file(path, kMaxGemmCacheBytes, FollowLinks::no);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return std::nullopt;
    throw;
  }
  return decode_gemm_cache(text, path);
}

void write_gemm_cache(const GemmCache& cache, const std::filesystem::path& path) {
  if (cache.choices.empty()) return remove_tree(path);
  const std::string text = encode_gemm_cache(cache);
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(path)) &&
      read_text_file(path, kMaxGemmCacheBytes, FollowLinks::no) == text)
    return;
  write_file_atomically(path, text);
}

}  // namespace trafo
