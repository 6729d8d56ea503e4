// GEMM autotuning: which kernel of the device's library runs a GEMM. Without a choice it is the
// library's first proposal. Choices are measured on demand only. They can be stored, so that a run
// that resumes computes the same bits.
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

// Cost of the tuning since set_tuning_budget().
struct GemmTuningCost {
  int64_t measured = 0;  // GEMMs
  double seconds = 0;
};

// Reaction to a choice that the library refuses when its GEMM first runs: drop the choice, or fail
// the GEMM.
enum class RefusedChoice { dropped, fails };

class GemmTuner {
 public:
  virtual ~GemmTuner() = default;

  // Measures the GEMM with each kernel that the library proposes. Chooses the fastest if it is at
  // least 5 % faster than the first proposal, else the first. Returns the microseconds in the order
  // of the proposals; empty if no single kernel runs it. Waits for the device and leaves garbage in
  // the output. Not during graph capture.
  virtual std::vector<float> measure(const GemmParams& params) = 0;

  // While on and while the budget lasts, a GEMM without a choice is measured before it first runs.
  virtual void set_tuning(bool on) = 0;
  // Seconds that this may take from now on; 0 at first. When they are used up, the measurement in
  // progress ends with the best kernel so far.
  virtual void set_tuning_budget(double seconds) = 0;
  virtual GemmTuningCost tuning_cost() const = 0;

  // Device and library version for which choices are valid, on one line.
  virtual std::string library() const = 0;
  // Hash of the interface between the engine and its kernels.
  virtual std::string kernel_abi() const = 0;
  virtual std::vector<GemmChoice> choices() const = 0;
  // Replaces all choices and drops cached plans. Not during graph capture.
  virtual void set_choices(std::span<const GemmChoice> choices, RefusedChoice refused) = 0;

  // Who has set the choices. A training run that finds another owner sets its own choices again.
  const void* owner() const { return owner_; }
  void set_owner(const void* owner) { owner_ = owner; }

 private:
  const void* owner_ = nullptr;
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
