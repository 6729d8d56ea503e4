// State of the card while something is timed: its clock, its power and why the clock is low. Asked
// of the driver's management library (NVML), which is loaded at run time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "tests/bench/bench.h"

namespace trafo::bench {

struct NvmlLibrary;

// Samples the card on a separate thread.
class CardState {
 public:
  // CUDA's device number `index`. Without NVML, or where it does not know the card, why() says so
  // and rows get nothing.
  explicit CardState(int index);
  ~CardState();
  CardState(const CardState&) = delete;
  CardState& operator=(const CardState&) = delete;

  const std::string& why() const { return why_; }  // empty: all is well
  // Samples are taken between the two calls.
  void start();
  void stop();
  // Of the samples since start(): "sm_MHz" and "power_W" (means), "sm_MHz_low", "throttle" (the
  // reasons that any sample had, "none" without one) and "card_samples".
  void write(Json& row) const;
  // "1755 MHz, 652 W, power cap"; empty without samples.
  std::string text() const;

 private:
  void sample();

  std::unique_ptr<NvmlLibrary> nvml_;
  void* card_ = nullptr;
  std::string why_;
  std::thread sampler_;
  std::atomic<bool> stopping_{false};
  int samples_ = 0;
  double clocks_ = 0, watts_ = 0;
  unsigned lowest_ = 0;
  int watt_samples_ = 0;
  unsigned long long reasons_ = 0;
};

}  // namespace trafo::bench
