// Says which lines were too long for the model; the first few one by one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "report/reporter.h"

namespace translate_train {

class CutLines {
 public:
  // `done` completes "N lines in all were longer than the model allows and ...".
  CutLines(Reporter& reporter, std::string done) : reporter_(reporter), done_(std::move(done)) {}

  void add(const std::string& text) {
    if (++count_ <= kTold) reporter_.warn(text);
  }
  int64_t count() const { return count_; }
  void finish() {
    if (count_ > kTold)
      reporter_.warn(fmt::format("{} lines in all were longer than the model allows and {}",
                                 grouped(count_), done_));
  }

 private:
  static constexpr int kTold = 5;
  Reporter& reporter_;
  std::string done_;
  int64_t count_ = 0;
};

}  // namespace translate_train
