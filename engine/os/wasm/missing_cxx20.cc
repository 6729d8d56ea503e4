#include "engine/os/missing_cxx20.h"

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 14000
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

const char* after_digits(const char* at, const char* last) {
  while (at != last && is_digit(*at)) ++at;
  return at;
}

// The end of `word` at the start of a text, in any case; null: the text begins otherwise.
const char* after_word(const char* at, const char* last, const char* word) {
  for (; *word != 0; ++word, ++at)
    if (at == last || lower(*at) != *word) return nullptr;
  return at;
}

const char* after_nan_payload(const char* at, const char* last) {
  if (at == last || *at != '(') return at;
  const char* end = at + 1;
  while (end != last &&
         (is_digit(*end) || (lower(*end) >= 'a' && lower(*end) <= 'z') || *end == '_'))
    ++end;
  return end != last && *end == ')' ? end + 1 : at;
}

// The end of the number that a text begins with, after its sign; `at` if it begins with no number.
const char* after_number(const char* at, const char* last) {
  if (const char* end = after_word(at, last, "infinity")) return end;
  if (const char* end = after_word(at, last, "inf")) return end;
  if (const char* end = after_word(at, last, "nan")) return after_nan_payload(end, last);
  const char* end = after_digits(at, last);
  auto digits = end - at;
  if (end != last && *end == '.') {
    const char* const fraction = after_digits(end + 1, last);
    digits += fraction - end - 1;
    end = fraction;
  }
  if (digits == 0) return at;
  if (end == last || (*end != 'e' && *end != 'E')) return end;
  const char* power = end + 1;
  if (power != last && (*power == '-' || *power == '+')) ++power;
  const char* const power_end = after_digits(power, last);
  return power_end == power ? end : power_end;
}

template <class Real>
std::from_chars_result read_real(const char* first, const char* last, Real& value,
                                 Real (*convert)(const char*, char**)) {
  const char* const number = first + (first != last && *first == '-' ? 1 : 0);
  const char* const end = after_number(number, last);
  if (end == number) return {first, std::errc::invalid_argument};
  const std::string text(first, end);
  const int kept = errno;
  errno = 0;
  const Real read = convert(text.c_str(), nullptr);
  const bool out_of_range = errno == ERANGE && (std::isinf(read) || read == 0);
  errno = kept;
  if (out_of_range) return {end, std::errc::result_out_of_range};
  value = read;
  return {end, std::errc()};
}

std::to_chars_result put(char* first, char* last, const char* text, size_t count) {
  if (static_cast<size_t>(last - first) < count) return {last, std::errc::value_too_large};
  std::memcpy(first, text, count);
  return {first + count, std::errc()};
}

constexpr size_t kLongest = 512;  // the largest number has 309 digits, the smallest 324 zeros

// The fewest significant digits that read as the value.
template <class Real>
int shortest_precision(Real value, Real (*convert)(const char*, char**)) {
  char text[64];
  int digits = 1;
  for (; digits < std::numeric_limits<Real>::max_digits10; ++digits) {
    std::snprintf(text, sizeof text, "%.*e", digits - 1, static_cast<double>(value));
    if (convert(text, nullptr) == value) break;
  }
  return digits;
}

// Shortest text in scientific notation, with two digits of exponent or more.
template <class Real>
size_t write_scientific(Real value, Real (*convert)(const char*, char**), char (&text)[kLongest]) {
  return static_cast<size_t>(std::snprintf(text, sizeof text, "%.*e",
                                           shortest_precision(value, convert) - 1,
                                           static_cast<double>(value)));
}

// Shortest text without exponent. A whole number has all of its digits.
template <class Real>
size_t write_fixed(Real value, Real (*convert)(const char*, char**), char (&text)[kLongest]) {
  char scientific[kLongest];
  write_scientific(value, convert, scientific);
  const int power = std::atoi(std::strchr(scientific, 'e') + 1);
  const int decimals = shortest_precision(value, convert) - 1 - power;
  return static_cast<size_t>(
      std::snprintf(text, sizeof text, "%.*f", std::max(decimals, 0), static_cast<double>(value)));
}

// As printf writes "%a", without "0x". A subnormal float has the exponent of a normal double.
size_t write_hex(double value, char (&text)[kLongest]) {
  const int count = std::snprintf(text, sizeof text, "%a", std::abs(value));
  const bool negative = std::signbit(value);
  std::memmove(text + negative, text + 2, static_cast<size_t>(count - 2));
  if (negative) text[0] = '-';
  return static_cast<size_t>(count - 2 + negative);
}

template <class Real>
std::to_chars_result write_real(char* first, char* last, Real value, std::chars_format format,
                                Real (*convert)(const char*, char**)) {
  char text[kLongest];
  size_t count = 0;
  if (!std::isfinite(value))
    count = static_cast<size_t>(std::snprintf(text, sizeof text, "%f", static_cast<double>(value)));
  else if (format == std::chars_format::hex)
    count = write_hex(static_cast<double>(value), text);
  else if (format == std::chars_format::fixed)
    count = write_fixed(value, convert, text);
  else
    count = write_scientific(value, convert, text);
  return put(first, last, text, count);
}

// Without a format, the shorter text counts, and of two as long the one without exponent.
template <class Real>
std::to_chars_result write_shortest(char* first, char* last, Real value,
                                    Real (*convert)(const char*, char**)) {
  char fixed[kLongest], scientific[kLongest];
  if (!std::isfinite(value))
    return write_real(first, last, value, std::chars_format::fixed, convert);
  const size_t fixed_count = write_fixed(value, convert, fixed);
  const size_t scientific_count = write_scientific(value, convert, scientific);
  return fixed_count <= scientific_count ? put(first, last, fixed, fixed_count)
                                         : put(first, last, scientific, scientific_count);
}

}  // namespace

_LIBCPP_BEGIN_NAMESPACE_STD

from_chars_result from_chars(const char* first, const char* last, double& value) {
  return read_real(first, last, value, &std::strtod);
}

from_chars_result from_chars(const char* first, const char* last, float& value) {
  return read_real(first, last, value, &std::strtof);
}

to_chars_result to_chars(char* first, char* last, double value) {
  return write_shortest(first, last, value, &std::strtod);
}

to_chars_result to_chars(char* first, char* last, float value) {
  return write_shortest(first, last, value, &std::strtof);
}

to_chars_result to_chars(char* first, char* last, double value, chars_format format) {
  return write_real(first, last, value, format, &std::strtod);
}

to_chars_result to_chars(char* first, char* last, float value, chars_format format) {
  return write_real(first, last, value, format, &std::strtof);
}

to_chars_result to_chars(char* first, char* last, double value, chars_format format,
                         int precision) {
  char text[kLongest];
  const char* const pattern = format == chars_format::scientific ? "%.*e" : "%.*f";
  const int count = std::snprintf(text, sizeof text, pattern, precision, value);
  if (count < 0 || static_cast<size_t>(count) >= sizeof text) return {last, errc::value_too_large};
  return put(first, last, text, static_cast<size_t>(count));
}

_LIBCPP_END_NAMESPACE_STD
#endif
