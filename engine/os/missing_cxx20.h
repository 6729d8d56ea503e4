// Parts of C++20 that the C++ library of Emscripten 3.1.6 lacks: algorithms of std::ranges,
// std::bit_cast, std::jthread, std::from_chars and std::to_chars of real numbers. Only what the
// library uses is here. The build for WebAssembly includes this file before every other.
#pragma once

#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 14000
#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

_LIBCPP_BEGIN_NAMESPACE_STD

template <class To, class From>
requires(sizeof(To) == sizeof(From)) constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

// Joins when it ends. Nothing here asks a thread to stop.
class jthread {
 public:
  jthread() noexcept = default;
  template <class Function, class... Arguments>
  requires(!is_same_v<remove_cvref_t<Function>, jthread>) explicit jthread(Function&& function,
                                                                           Arguments&&... arguments)
      : thread_(std::forward<Function>(function), std::forward<Arguments>(arguments)...) {}
  jthread(jthread&&) noexcept = default;
  jthread& operator=(jthread&& other) noexcept {
    if (this != &other) {
      end();
      thread_ = std::move(other.thread_);
    }
    return *this;
  }
  ~jthread() { end(); }

 private:
  void end() {
    if (thread_.joinable()) thread_.join();
  }

  thread thread_;
};

// As in the standard for chars_format::general. The locale of WebAssembly is always that of C.
from_chars_result from_chars(const char* first, const char* last, double& value);
from_chars_result from_chars(const char* first, const char* last, float& value);
// The shortest text that reads as the value.
to_chars_result to_chars(char* first, char* last, double value);
to_chars_result to_chars(char* first, char* last, float value);
to_chars_result to_chars(char* first, char* last, double value, chars_format format);
to_chars_result to_chars(char* first, char* last, float value, chars_format format);
to_chars_result to_chars(char* first, char* last, double value, chars_format format, int precision);

namespace ranges {

template <class Range, class Test, class Projection = identity>
constexpr auto find_if(Range&& range, Test test, Projection projection = {}) {
  return std::find_if(ranges::begin(range), ranges::end(range), [&](auto&& element) -> bool {
    return std::invoke(test, std::invoke(projection, element));
  });
}

template <class Range, class Value, class Projection = identity>
constexpr auto find(Range&& range, const Value& value, Projection projection = {}) {
  return ranges::find_if(
      range, [&](auto&& element) -> bool { return element == value; }, std::move(projection));
}

template <class Range, class Test, class Projection = identity>
constexpr bool any_of(Range&& range, Test test, Projection projection = {}) {
  return ranges::find_if(range, std::move(test), std::move(projection)) != ranges::end(range);
}

template <class Range, class Test, class Projection = identity>
constexpr bool none_of(Range&& range, Test test, Projection projection = {}) {
  return !ranges::any_of(range, std::move(test), std::move(projection));
}

template <class Range, class Test, class Projection = identity>
constexpr bool all_of(Range&& range, Test test, Projection projection = {}) {
  return !ranges::any_of(
      range, [&](auto&& element) -> bool { return !std::invoke(test, element); },
      std::move(projection));
}

template <class Range, class Test, class Projection = identity>
constexpr auto count_if(Range&& range, Test test, Projection projection = {}) {
  return std::count_if(ranges::begin(range), ranges::end(range), [&](auto&& element) -> bool {
    return std::invoke(test, std::invoke(projection, element));
  });
}

template <class Range, class Value>
constexpr auto count(Range&& range, const Value& value) {
  return std::count(ranges::begin(range), ranges::end(range), value);
}

template <class One, class Other, class Equal = equal_to>
constexpr bool equal(One&& one, Other&& other, Equal equal = {}) {
  return std::equal(ranges::begin(one), ranges::end(one), ranges::begin(other), ranges::end(other),
                    std::ref(equal));
}

template <class In1, class In2>
struct in_in_result {
  In1 in1;
  In2 in2;
};
template <class One, class Other>
constexpr auto mismatch(One&& one, Other&& other) {
  const auto found =
      std::mismatch(ranges::begin(one), ranges::end(one), ranges::begin(other), ranges::end(other));
  return in_in_result<decltype(found.first), decltype(found.second)>{found.first, found.second};
}

template <class Compare, class Projection>
constexpr auto projected_less(Compare& compare, Projection& projection) {
  return [&](auto&& a, auto&& b) -> bool {
    return std::invoke(compare, std::invoke(projection, a), std::invoke(projection, b));
  };
}

template <class Range, class Compare = less, class Projection = identity>
constexpr void sort(Range&& range, Compare compare = {}, Projection projection = {}) {
  std::sort(ranges::begin(range), ranges::end(range), projected_less(compare, projection));
}

template <class Range, class Compare = less, class Projection = identity>
void stable_sort(Range&& range, Compare compare = {}, Projection projection = {}) {
  std::stable_sort(ranges::begin(range), ranges::end(range), projected_less(compare, projection));
}

template <class Range, class Value, class Compare = less, class Projection = identity>
constexpr auto lower_bound(Range&& range, const Value& value, Compare compare = {},
                           Projection projection = {}) {
  return std::lower_bound(ranges::begin(range), ranges::end(range), value,
                          [&](auto&& element, const Value& wanted) -> bool {
                            return std::invoke(compare, std::invoke(projection, element), wanted);
                          });
}

template <class Range, class Value>
constexpr bool binary_search(Range&& range, const Value& value) {
  return std::binary_search(ranges::begin(range), ranges::end(range), value);
}

template <class Range>
constexpr auto adjacent_find(Range&& range) {
  return std::adjacent_find(ranges::begin(range), ranges::end(range));
}

template <class Range>
constexpr void reverse(Range&& range) {
  std::reverse(ranges::begin(range), ranges::end(range));
}

template <class Range, class Value>
constexpr void fill(Range&& range, const Value& value) {
  std::fill(ranges::begin(range), ranges::end(range), value);
}

template <class Range, class Out, class Function>
constexpr void transform(Range&& range, Out out, Function function) {
  std::transform(ranges::begin(range), ranges::end(range), out, std::ref(function));
}

template <class Range, class Out>
constexpr void move(Range&& range, Out out) {
  std::move(ranges::begin(range), ranges::end(range), out);
}

}  // namespace ranges

_LIBCPP_END_NAMESPACE_STD
#endif
