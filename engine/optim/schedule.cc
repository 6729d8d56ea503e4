#include "engine/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/numeric/portable_trigonometry.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kScheduleOrigin = "schedule";

}  // namespace

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  const ScheduleKind kind = options.kind;
  // The fields have their names in the options of a run.
  const auto check = [&](bool condition, const char* field, const auto&... reason) {
    require_argument(condition, kScheduleOrigin, field, reason...);
  };
  check(is_known(kind), "schedule", " has the unknown kind ", static_cast<int>(kind));
  check(std::isfinite(options.learning_rate) && options.learning_rate >= 0, "learning_rate",
        " must be finite and not negative, got ", options.learning_rate);
  check(options.warmup >= 0, "warmup", " must not be negative, got ", options.warmup);
  if (kind == ScheduleKind::inverse_sqrt || kind == ScheduleKind::noam)
    check(options.warmup >= 1, "warmup", " must be at least 1 update for ", enum_name(kind));
  if (kind == ScheduleKind::noam)
    check(options.width >= 1, "schedule", " noam needs the width of the model, got ",
          options.width);
  if (kind == ScheduleKind::linear || kind == ScheduleKind::cosine) {
    check(options.total > options.warmup, "schedule", " ", enum_name(kind),
          " needs a total number of updates above the warmup of ", options.warmup, ", got ",
          options.total);
    check(std::isfinite(options.final_rate) && options.final_rate >= 0, "learning_rate",
          " at the end must be finite and not negative, got ", options.final_rate);
  }
}

double Schedule::operator()(int64_t update) const {
  require(update >= 1, ErrorCode::invalid_argument, kScheduleOrigin, "updates count from 1, got ",
          update);
  const double given = scheduled(std::max<int64_t>(1, update - start_));
  if (!function_) return given;
  const double rate = function_(update, given);
  require(std::isfinite(rate) && rate >= 0, ErrorCode::invalid_argument, kScheduleOrigin,
          "the learning rate of a callback must be finite and not negative, got ", rate,
          " for update ", update);
  return rate;
}

double Schedule::scheduled(int64_t update) const {
  const double u = static_cast<double>(update), warmup = static_cast<double>(options_.warmup);
  const double peak = options_.learning_rate;
  if (options_.kind == ScheduleKind::noam)
    return peak / std::sqrt(static_cast<double>(options_.width)) *
           std::min(1 / std::sqrt(u), u / (warmup * std::sqrt(warmup)));
  if (update < options_.warmup) return peak * u / warmup;
  const double progress = std::min(
      1.0, (u - warmup) / std::max(1.0, static_cast<double>(options_.total - options_.warmup)));
  constexpr double kPi = 3.14159265358979323846;
  switch (options_.kind) {
    case ScheduleKind::linear:
      return peak + (options_.final_rate - peak) * progress;
    case ScheduleKind::cosine:
      return options_.final_rate +
             (peak - options_.final_rate) * 0.5 * (1 + portable_cos(kPi * progress));
    case ScheduleKind::inverse_sqrt:
      return peak * std::sqrt(warmup / u);
    case ScheduleKind::relative_step:
      return std::min(peak, 1 / std::sqrt(u));
    case ScheduleKind::constant:
    case ScheduleKind::noam:  // above
      break;
  }
  return peak;
}

}  // namespace trafo
