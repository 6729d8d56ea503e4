// A range of elements of a flat workspace, or of anything else that is counted.
#pragma once

#include <cstdint>

namespace trafo {

struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool contains(int64_t index) const { return index >= begin && index < end; }
  bool operator==(const ElementRange&) const = default;
};

}  // namespace trafo
