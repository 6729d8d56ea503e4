// GEMM autotuning of a training run.
//
// A new run begins with all kernels of the user's cache (user_gemm_cache.h). While its tuning is
// open, GEMMs that the cache does not have are measured before they first run. Tuning closes after
// kSeconds of measuring, after kUpdates updates, or before the first checkpoint. From then on the
// choices are final, and a GEMM without a choice takes the library's first proposal. Checkpoints
// hold the choices, including the ones of the cache: a GEMM may come late that an earlier run has
// measured. A run that resumes has exactly these and measures nothing, so that it computes the same
// bits as a run without the stop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/train/step/gemm_cache.h"

namespace trafo {

class GemmTuning {
 public:
  static constexpr double kSeconds = 5;  // the bound in the documentation
  static constexpr int64_t kUpdates = 100;

  // A message of the run to its caller.
  struct Notice {
    bool is_warning;
    std::string text;
  };

  // `tuner` is null on a device that has one kernel for each GEMM; nothing happens then. With `on`
  // false a new run measures nothing and reads no cache. Nor does one with several lanes, because
  // the number of ranks that share them may change no bit; a notice says so. Call begin() or
  // resume() before the first update.
  GemmTuning(GemmTuner* tuner, bool on, int64_t lanes = 1)
      : tuner_(tuner), on_(on), lanes_(lanes) {}
  ~GemmTuning();
  GemmTuning(const GemmTuning&) = delete;
  GemmTuning& operator=(const GemmTuning&) = delete;

  void begin();
  // With the choices of a checkpoint. Those of another device or library cannot be used: tuning
  // begins as for a new run. `label` is for messages.
  void resume(GemmCache saved, const std::string& label);

  // Before the run uses the device: another run on the same context may have set other choices. One
  // that is interrupted while its tuning is open continues without choices.
  void acquire();
  void before_update();
  // Whether GEMMs may still get other kernels.
  bool open() const { return open_; }
  // Makes the choices final and adds them to the user's cache. Nothing before the first update.
  void close();

  // The final choices; none while tuning is open. No value without a tuner.
  std::optional<GemmCache> cache() const;
  std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }

 private:
  void tell(bool is_warning, std::string text) {
    notices_.push_back({is_warning, "GEMM autotuning: " + std::move(text)});
  }

  GemmTuner* tuner_;
  bool on_;
  int64_t lanes_;
  bool open_ = false;
  int64_t updates_ = 0;
  std::vector<GemmChoice> cached_;   // that tuning began with
  std::vector<GemmChoice> choices_;  // empty while tuning is open
  std::optional<std::filesystem::path> user_cache_;
  std::vector<Notice> notices_;
};

}  // namespace trafo
