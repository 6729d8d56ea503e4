// Clipping, the skipping of non-finite steps, the learning rate and an optimizer as one piece of
// device work. The host needs no result of an update before it starts the next one.
#pragma once

#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"

namespace trafo {

class ClippedUpdate {
 public:
  // max_norm: of the gradient; 0: no clipping. Context and optimizer must outlive this.
  ClippedUpdate(Context& context, Optimizer& optimizer, const Schedule& schedule, double max_norm);

  // Call before run(): the next update is at least `earliest` and at most `latest`, counted from 1.
  // They differ by the updates in flight, as some of those may be skipped.
  void prepare(int64_t earliest, int64_t latest);
  // From the next prepare() on.
  void set_schedule(const Schedule& schedule) {
    schedule_ = schedule;
    first_rate_ = past_rate_ = 0;
  }
  // loss, nll: [1], of the gradients' dtype. `partials`: undefined, or the partials of all shards;
  // the norm is then theirs.
  void run(const Tensor& loss, const Tensor& nll, const Tensor& partials = {}) {
    run_part(loss, nll, partials, optimizer_.shard(), false);
    finish();
  }
  // The update of these elements of the shard alone, which begin at a multiple of kSquaresElements.
  // `continues`: an earlier call has made other elements of the same update; no other kernel may
  // have run since.
  void run_part(const Tensor& loss, const Tensor& nll, const Tensor& partials,
                const ElementRange& range, bool continues);
  // Ends an update that was made by run_part(): Optimizer::finish().
  void finish();
  // Writes the partial sums of squares of these elements of the optimizer's shard, which begin at a
  // multiple of kSquaresElements, to their place in `partials`: float64, one for every
  // kSquaresElements elements of the whole gradient.
  void square(const Tensor& partials, const ElementRange& range);
  // As if `updates` had been applied; nothing may be in flight.
  void set_updates(int64_t updates);

  // An UpdateRecord in device memory: of the newest update that has run.
  const void* record() const { return record_.raw(); }

 private:
  Context& context_;
  Optimizer& optimizer_;
  Schedule schedule_;
  double max_norm_;
  Tensor rates_, record_;
  int64_t first_rate_ = 0, past_rate_ = 0;  // updates that rates_ covers: [first, past)
};

}  // namespace trafo
