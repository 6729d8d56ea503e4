// Learning-rate schedules: pure functions of the update number.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "engine/core/generated/option_enums.h"

namespace trafo {

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::inverse_sqrt;
  double learning_rate = 3e-4;  // the peak; for noam the factor in front
  double final_rate = 0;        // linear, cosine: at and after update `total`
  int64_t warmup = 0;  // updates of linear warm-up; 0: none (inverse_sqrt and noam need one)
  int64_t total = 0;   // linear, cosine: updates until final_rate, > warmup
  int64_t width = 0;   // noam: of the model
};

// The rate of update u given what the schedule says; finite and not negative.
using RateFunction = std::function<double(int64_t update, double scheduled)>;

// The rate of update u, counted from 1. During warm-up, learning_rate * u / warmup, except for
// noam; after it:
//   constant      learning_rate
//   linear        straight from learning_rate at `warmup` to final_rate at `total`
//   cosine        half a cosine between the same points
//                 (Loshchilov & Hutter, arXiv 1608.03983, without restarts)
//   inverse_sqrt  learning_rate * sqrt(warmup / u)
//   relative_step the smaller one of learning_rate and u^-0.5; with 0.01 and a warm-up of 10,000
//                 updates or none, the relative step with and without warmup_init of
//                 transformers' Adafactor (Shazeer & Stern, arXiv 1804.04235, 9)
//   noam          learning_rate * width^-0.5 * min(u^-0.5, u * warmup^-1.5), for all u
//                 (Vaswani et al., arXiv 1706.03762, 5.3)
class Schedule {
 public:
  explicit Schedule(
      const ScheduleOptions& options);  // INVALID_ARGUMENT, naming the option that cannot be
  double operator()(int64_t update) const;
  // The schedule counts updates from here: a phase of a run has a new schedule. 0 at first.
  void set_start(int64_t update) { start_ = update; }
  void set_function(RateFunction function) { function_ = std::move(function); }  // empty: none
  const ScheduleOptions& options() const { return options_; }

 private:
  double scheduled(int64_t update) const;

  ScheduleOptions options_;
  int64_t start_ = 0;
  RateFunction function_;
};

}  // namespace trafo
