// Calls in the background on a GPU: a share of the time beside calls in the foreground, and the
// same results. For TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/core/call_priority.h"
#include "engine/ops/binary/binary.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using namespace std::chrono_literals;

class CudaBackground : public CudaTest {
 protected:
  // Sums that are computed in an interval of this length.
  int64_t sums_in(std::chrono::milliseconds interval) {
    const std::vector<float> ones(1 << 20, 1.0f);
    const Tensor x = context_->from_values<float>(ones, {1 << 20});
    const auto end = std::chrono::steady_clock::now() + interval;
    int64_t count = 0;
    for (; std::chrono::steady_clock::now() < end; ++count) {
      sum_ = ops::add(*context_, x, x);
      context_->backend().synchronize();
    }
    return count;
  }
  bool sum_is_right() const {
    const auto values = context_->values<float>(sum_);
    return std::ranges::all_of(values, [](float value) { return value == 2.0f; });
  }

  Tensor sum_;
};

TEST_F(CudaBackground, ComputesItsShareBesideTheForeground) {
  BackgroundShare tenth;
  tenth.set(0.1);
  const CallPriority priority(tenth);
  for (int n = 0; n < 2; ++n) {  // the stream is made again
    set_background(context_->backend(), true);
    sums_in(20ms);
    const int64_t alone = sums_in(200ms);
    std::atomic<bool> begun{false}, end{false};
    std::thread foreground([&] {
      BackgroundShare whole;
      const CallPriority other(whole);
      begun = true;
      while (!end) std::this_thread::sleep_for(1ms);
    });
    while (!begun) std::this_thread::sleep_for(1ms);
    const int64_t beside = sums_in(1000ms) / 5;
    end = true;
    foreground.join();
    EXPECT_LT(4 * beside, alone);
    EXPECT_GT(beside, 0);
    EXPECT_TRUE(sum_is_right());
    set_background(context_->backend(), false);
  }
}

}  // namespace
}  // namespace trafo::testing
