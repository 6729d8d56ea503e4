// Texts that end a generation, found in a text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trafo {

class StopStrings {
 public:
  // None is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Adds a piece. Returns text that is before every stop string: a piece that may be the beginning
  // of one is held back. The stop string that is complete first counts, of several the longest one.
  std::string push(std::string_view text);
  // Whether a stop string was found. Its text, and any after it, is never returned.
  bool stopped() const { return stopped_; }
  // The text that was held back; empty after a stop string.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace trafo
