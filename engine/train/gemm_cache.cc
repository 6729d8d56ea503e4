#include "engine/train/gemm_cache.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "engine/core/status.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "GEMM cache";
constexpr std::string_view kTitle = "trafo-gemm-cache 1 ";
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

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

std::string encode_gemm_cache(const GemmTuner& tuner) {
  std::string text(kTitle);
  text += "00000000\n" + tuner.library() + '\n';
  for (const GemmChoice& choice : tuner.choices()) {
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

void decode_gemm_cache(GemmTuner& tuner, std::string_view text, const std::filesystem::path& path) {
  const auto intact = [&](bool condition, const char* what) {
    require(condition, ErrorCode::corrupt_file, kOrigin, path.string(), " ", what,
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
  const std::string_view library = next_line();
  const std::string here = tuner.library();
  require(library == here, ErrorCode::unsupported, kOrigin, path.string(), " was measured on \"",
          library.substr(0, 200), "\", this is \"", here,
          "\": the same bits cannot be had here. Remove the file to go on with other last digits");
  std::vector<GemmChoice> choices;
  while (!text.empty())
    intact(parse_choice(next_line(), choices.emplace_back()), "has a line that names no kernel");
  tuner.set_choices(choices);
}

void read_gemm_cache(GemmTuner& tuner, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return tuner.set_choices({});
  decode_gemm_cache(tuner, read_text_file(path, kMostBytes), path);
}

void write_gemm_cache(const GemmTuner& tuner, const std::filesystem::path& path) {
  if (tuner.choices().empty()) return;
  const std::string text = encode_gemm_cache(tuner);
  if (std::filesystem::exists(path) && read_text_file(path, kMostBytes) == text) return;
  write_file_atomically(path, text);
}

}  // namespace trafo
