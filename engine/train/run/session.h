// One call of TrainingRun::run(): whom it reports to, and who has asked for its end.
#pragma once

#include "engine/train/parallel/training_group.h"
#include "engine/core/cancel.h"
#include "engine/train/run/event.h"

namespace trafo {

class RunSession {
 public:
  // No callback and no cancel token.
  explicit RunSession(const TrainingGroup& group) : group_(group) {}
  // Both arguments must outlive it; `cancel` may be null.
  RunSession(const TrainingGroup& group, const TrainCallback& callback, const CancelToken* cancel)
      : group_(group), callback_(callback ? &callback : nullptr), cancel_(cancel) {}

  bool has_callback() const { return callback_ != nullptr; }
  const CancelToken* cancel() const { return cancel_; }
  void report(const TrainEvent& event) {
    if (callback_ && (*callback_)(event) != 0) stop_ = true;
  }

  // Of this rank.
  bool asks_for_cancel() const { return cancel_ != nullptr && cancel_->is_cancelled(); }
  bool asks_for_end() const { return stop_ || asks_for_cancel(); }
  // With peers, the newest vote() counts.
  bool cancelled() const { return group_.has_peers() ? any_cancelled_ : asks_for_cancel(); }
  bool stopped() const { return group_.has_peers() ? any_stop_ : stop_; }

  // A rank asked for the end together with the gradients of an update (Vote::stop).
  void call_vote() { vote_due_ = true; }
  // All updates in flight are to be awaited, because the run may end.
  bool must_await() const { return group_.has_peers() ? vote_due_ : asks_for_end(); }
  // All ranks vote on whether to end, between two updates. Collective, and nothing with one rank.
  void vote();

 private:
  const TrainingGroup& group_;
  const TrainCallback* callback_ = nullptr;
  const CancelToken* cancel_ = nullptr;
  bool stop_ = false;  // the callback returned non-zero
  bool any_stop_ = false, any_cancelled_ = false, vote_due_ = false;
};

}  // namespace trafo
