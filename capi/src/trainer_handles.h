#pragma once

#include <atomic>
#include <memory>

#include "capi/src/model_handles.h"
#include "engine/train/run.h"

struct trafo_trainer {
  // A call that finds the trainer at work is refused; one that frees it then leaves that to the
  // call that is at work.
  enum State : int { idle, busy, doomed };
  std::shared_ptr<trafo::Context> context;
  std::shared_ptr<trafo::Model> model;
  trafo::TrainOptions options;
  std::unique_ptr<trafo::TrainingRun> run;
  bool saves;  // there is a run directory
  std::atomic<int> state{idle};
};

namespace trafo::capi {

// The trainer for the length of one call.
class Working {
 public:
  Working(const Call& call, trafo_trainer* argument) : trainer_(&call.handle(argument, "trainer")) {
    int expected = trafo_trainer::idle;
    if (!trainer_->state.compare_exchange_strong(expected, trafo_trainer::busy))
      call.refuse("the trainer is at work: its callback, or another thread, cannot use it now");
  }
  ~Working() {
    if (trainer_->state.exchange(trafo_trainer::idle) == trafo_trainer::doomed) delete trainer_;
  }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  trafo_trainer* operator->() const { return trainer_; }

 private:
  trafo_trainer* trainer_;
};

}  // namespace trafo::capi
