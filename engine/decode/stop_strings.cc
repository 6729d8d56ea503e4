#include "engine/decode/stop_strings.h"

#include <algorithm>
#include <utility>

namespace trafo {

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t begin = 0, end = std::string::npos;  // of the stop string
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    if (at + stop.size() < end || at < begin) begin = at;
    end = at + stop.size();
  }
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  size_t kept = 0;  // the longest end that is the beginning of a stop string
  for (const std::string& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > kept; --size)
      if (held_.ends_with(std::string_view(stop).substr(0, size))) kept = size;
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace trafo
