#include "engine/metrics/metric.h"

#include <charconv>

#include "engine/core/status.h"

namespace trafo {

void check_segments(std::span<const std::string> hypotheses, ReferenceSets references,
                    std::string_view origin) {
  require(!references.empty(), ErrorCode::invalid_argument, origin, "there are no references");
  for (const auto& set : references)
    require(hypotheses.size() == set.size(), ErrorCode::invalid_argument, origin, "there are ",
            hypotheses.size(), " hypotheses and ", set.size(),
            " references, the counts must be equal");
  require(!hypotheses.empty(), ErrorCode::invalid_argument, origin, "there are no hypotheses");
}

std::string fixed(double value, int decimals) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals).ptr;
  return std::string(text, end);
}

}  // namespace trafo
