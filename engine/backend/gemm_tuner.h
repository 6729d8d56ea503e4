// GEMM autotuning: which kernel of the device's library runs a GEMM. The default is the library's
// first proposal. Measured choices are made on demand only. They can be stored, so that a run that
// resumes later or elsewhere computes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trafo {

struct GemmParams;

// A GEMM (shape, layouts, dtypes, alignment, epilogue) and its kernel, encoded as in the device's
// library.
struct GemmChoice {
  int64_t gemm[16];
  uint64_t kernel[8];
};

class GemmTuner {
 public:
  virtual ~GemmTuner() = default;

  // Measures the GEMM with each kernel that the library proposes and chooses the fastest. Returns
  // the microseconds in the order of the proposals; empty if no single kernel runs it. Waits for
  // the device and leaves garbage in the output. Not during graph capture.
  virtual std::vector<float> measure(const GemmParams& params) = 0;

  // While on, a GEMM without a choice is measured before it first runs.
  virtual void set_tuning(bool on) = 0;

  // Device and library version for which choices are valid, on one line.
  virtual std::string library() const = 0;
  virtual std::vector<GemmChoice> choices() const = 0;
  // Replaces all choices and drops cached plans. A choice that the library refuses is UNSUPPORTED
  // when its GEMM first runs. Not during graph capture.
  virtual void set_choices(std::span<const GemmChoice> choices) = 0;
};

// Turns tuning on during its lifetime; `tuner` may be null.
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
