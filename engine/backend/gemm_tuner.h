// Which kernel of a device's library runs a product. By default the one the library proposes first;
// measured choices are made on demand only and can be kept, so that a run that goes on elsewhere or
// later computes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trafo {

struct GemmParams;

// A product (shape, layouts, dtypes, alignment, epilogue) and its kernel, as the device's library
// numbers them.
struct GemmChoice {
  int64_t product[16];
  uint64_t kernel[8];
};

class GemmTuner {
 public:
  virtual ~GemmTuner() = default;

  // Microseconds that the product takes with each kernel the library proposes, its first proposal
  // first; empty if it has none that runs it whole. Waits for the device; what the product writes
  // is garbage afterwards. The fastest is chosen. Not while work is recorded.
  virtual std::vector<float> measure(const GemmParams& params) = 0;

  // While on, a product that has no choice is measured before it first runs.
  virtual void set_tuning(bool on) = 0;

  // What choices hold for: device and library version, one line.
  virtual std::string library() const = 0;
  virtual std::vector<GemmChoice> choices() const = 0;
  // Instead of those that are there; plans made before are forgotten. One that the library refuses
  // is an error (UNSUPPORTED) when its product first runs. Not while work is recorded.
  virtual void set_choices(std::span<const GemmChoice> choices) = 0;
};

// Tuning is on while one lives; `tuner` may be null.
class TuningScope {
 public:
  explicit TuningScope(GemmTuner* tuner) : tuner_(tuner) {
    if (tuner_) tuner_->set_tuning(true);
  }
  ~TuningScope() {
    if (tuner_) tuner_->set_tuning(false);
  }
  TuningScope(const TuningScope&) = delete;
  TuningScope& operator=(const TuningScope&) = delete;

 private:
  GemmTuner* tuner_;
};

}  // namespace trafo
