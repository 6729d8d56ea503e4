#include "engine/metrics/metric.h"

#include "engine/core/status.h"

namespace trafo {

void check_segments(std::span<const std::string> hypotheses,
                    std::span<const std::string> references, std::string_view origin) {
  require(hypotheses.size() == references.size(), ErrorCode::invalid_argument, origin, "there are ",
          hypotheses.size(), " hypotheses and ", references.size(),
          " references, the counts must be equal");
  require(!hypotheses.empty(), ErrorCode::invalid_argument, origin, "there are no hypotheses");
}

}  // namespace trafo
