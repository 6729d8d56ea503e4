// Prints numbers as std::to_chars writes them and std::from_chars reads them. tests/tools/wasm.sh
// compares the output with the one of this machine, whose C++ library has both.
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace {

template <class Real, class... Format>
std::string written(Real value, Format... format) {
  char text[600];
  const auto end = std::to_chars(text, text + sizeof text, value, format...);
  return end.ec == std::errc() ? std::string(text, end.ptr) : "too long";
}

void write(double value) {
  const auto narrow = static_cast<float>(value);
  std::printf("%s %s %s %s %s %s\n", written(value).c_str(), written(narrow).c_str(),
              written(value, std::chars_format::fixed).c_str(),
              written(value, std::chars_format::scientific).c_str(),
              written(value, std::chars_format::fixed, 3).c_str(),
              written(value, std::chars_format::scientific, 2).c_str());
}

template <class Real>
void read(const std::string& text) {
  Real value = 7;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  std::printf("%s: %d %d %s\n", text.c_str(), static_cast<int>(end.ptr - text.data()),
              end.ec == std::errc()                   ? 0
              : end.ec == std::errc::invalid_argument ? 1
                                                      : 2,
              written(value).c_str());
}

}  // namespace

int main() {
  for (const double value : {0.0, -0.0, 1.0, 0.1, -1234.5, 1e22, 1e23, 5e-324, 123456789012345678.0,
                             std::numeric_limits<double>::max(), std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::infinity()})
    write(value);
  uint64_t bits = 1;
  for (int i = 0; i < 2000; ++i) {  // Knuth's generator; TAOCP 2, 3.3.4
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    if (const double value = std::bit_cast<double>(bits); value == value && value - value == 0)
      write(value);
    write(static_cast<double>(bits >> 40) / 1024);
  }
  for (const char* text :
       {"1.5",  "-1e5x", "+1",     " 1",       ".5",   "5.",        ".",   "-",
        "",     "1e",    "1e+",    "0x10",     "inf",  "-Infinity", "nan", "NaN(a1)",
        "NaN(", "1e400", "1e-400", "4.9e-324", "1e39", "1e-46",     "1_0"}) {
    read<double>(text);
    read<float>(text);
  }
  return 0;
}
