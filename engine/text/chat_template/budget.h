// Bounds on a template that may be hostile, and the errors that name its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/status.h"

namespace trafo::jinja {

inline constexpr std::string_view kTemplateOrigin = "chat_template";

struct TemplateBounds {
  size_t source_bytes = size_t{1} << 20;
  // Nodes that are evaluated. A function that goes through elements or bytes counts 2 for each
  // element that it makes, and 1 for 16 bytes.
  int64_t steps = 2'000'000;
  size_t output_bytes = size_t{16} << 20;
  int64_t range = 100'000;  // elements of range()
  int nesting = 200;        // of tags and of operands in the source, and of values in each other
  // Nodes that are evaluated inside each other, calls of macros included. With it, a rendering
  // needs less than 256 KiB of stack.
  int running = 250;
};

// An error in a line of a template.
[[noreturn]] inline void fail_template(ErrorCode code, std::string_view label, int line,
                                       std::string_view message) {
  fail(code, kTemplateOrigin, label, ":", line, ": ", message);
}

// Counts what one rendering does. The members throw INVALID_ARGUMENT or UNSUPPORTED, naming the
// line that is evaluated.
class Budget {
 public:
  Budget(const TemplateBounds& bounds, std::string_view label)
      : bounds_(bounds), label_(label), steps_(bounds.steps) {}

  const TemplateBounds& bounds() const noexcept { return bounds_; }
  void at_line(int line) noexcept { line_ = line; }
  int line() const noexcept { return line_; }

  void spend(int64_t steps) {
    steps_ -= steps;
    if (steps_ < 0) [[unlikely]]
      refuse("the template takes more than ", bounds_.steps, " steps");
  }
  void spend_elements(size_t count) { spend(2 * static_cast<int64_t>(count)); }
  void spend_bytes(size_t count) { spend(1 + static_cast<int64_t>(count / 16)); }

  template <class... Args>
  [[noreturn]] void refuse(const Args&... message) const {
    fail_template(ErrorCode::invalid_argument, label_, line_, concat(message...));
  }
  template <class... Args>
  [[noreturn]] void unsupported(const Args&... message) const {
    fail_template(ErrorCode::unsupported, label_, line_, concat(message...));
  }

 private:
  const TemplateBounds& bounds_;
  std::string_view label_;
  int64_t steps_;
  int line_ = 1;
};

}  // namespace trafo::jinja
