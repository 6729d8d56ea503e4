#include "engine/metrics/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/cancel_scope.h"
#include "engine/core/numeric/philox.h"
#include "engine/core/status.h"

namespace trafo {

Resamples::Resamples(size_t segments, int64_t count, uint64_t seed)
    : segments_(segments), count_(count), seed_(seed) {
  require(segments > 0 && segments <= UINT32_MAX, ErrorCode::invalid_argument, "bootstrap",
          "resampling needs 1 to ", UINT32_MAX, " segments, got ", segments);
  require(count > 0, ErrorCode::invalid_argument, "bootstrap",
          "the number of resamples must be at least 1, got ", count);
}

void Resamples::draw(int64_t number, std::vector<uint32_t>& drawn) const {
  stop_if_call_is_cancelled("bootstrap");
  drawn.resize(segments_);
  PhiloxStream random(seed_, static_cast<uint64_t>(number));
  // The product's upper half is uniform below segments_ up to a share of segments_ / 2^32.
  for (uint32_t& segment : drawn)
    segment = static_cast<uint32_t>(uint64_t{random.next_u32()} * segments_ >> 32);
}

Interval interval_of(std::vector<double> scores) {
  require(!scores.empty(), ErrorCode::invalid_argument, "bootstrap", "there are no resamples");
  std::sort(scores.begin(), scores.end());
  const size_t left_out = scores.size() / 40;  // 2.5 per cent on each side
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return {sum / static_cast<double>(scores.size()),
          0.5 * (scores[scores.size() - left_out - 1] - scores[left_out])};
}

double paired_p_value(std::span<const double> system, std::span<const double> baseline,
                      double difference) {
  require(system.size() == baseline.size() && !system.empty(), ErrorCode::invalid_argument,
          "bootstrap", "there are ", system.size(), " and ", baseline.size(),
          " resamples, the counts must be equal");
  std::vector<double> differences;
  for (size_t i = 0; i < system.size(); ++i)
    differences.push_back(std::abs(system[i] - baseline[i]));
  const auto count = static_cast<double>(differences.size());
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  if (difference == 0 && mean == 0) return 1;
  const auto larger = std::count_if(differences.begin(), differences.end(),
                                    [&](double d) { return d - mean > std::abs(difference); });
  return (static_cast<double>(larger) + 1) / (count + 1);
}

}  // namespace trafo
