// How suite 6 makes the calls of a phase run out of memory, and compares what survives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/reliability/allocation_faults.h"
#include "tests/reliability/workload.h"

namespace trafo::testing {

using Op = std::function<trafo_error*()>;

// A child's message to its parent, also when it dies.
struct Tally {
  int64_t tried, failed;
  char call[64];
  int64_t at;
  bool persistent;
};
inline Tally* tally = nullptr;
// Which of a call's allocations fail: about a hundred; of those that came by the same path of
// calls, a few; every one.
enum class Places { some, of_each_path, all };
inline Places places = Places::some;
// Of all places this process tries number `share`, `share` + `shares`, ...
inline int64_t share = 0, shares = 1;

// Which allocations fail: the host's, or the allocations of the device that the fault plugin wraps.
struct Injector {
  void (*arm)(int64_t nth, bool persistent) = arm_allocations;
  bool (*disarm)() = disarm_allocations;
  int64_t (*seen)() = allocations_seen;
};
inline Injector injector;
inline bool on_device = false;

void failed(const std::string& what);
bool says_out_of_memory(const trafo_error* error);

// `prepare` comes before every try, `after` (with whether the call gave an error) after it; what it
// makes of the survivors is compared there.
void sweep(const char* call, const std::function<void()>& prepare, const Op& op,
           const std::function<void(bool refused)>& after);

// Calls that make something, which `undo` takes back: memory is then what it was before.
void make_and_undo(const char* call, const Op& op, const std::function<void()>& verify,
                   const std::function<void()>& undo);

// The lone run that a workload is compared with, update by update.
class Reference {
 public:
  explicit Reference(const WorkloadOptions& options) : run_(options) {
    run_.options.run_directory.clear();
    run_.make_all();
  }
  // The survivor's next updates are this run's.
  void compare(Workload& survivor, int updates = 1) {
    trafo_step_result theirs{};
    for (int i = 0; i < updates; ++i) {
      step(survivor, theirs);
      while (last_.update < theirs.update) step(run_, last_);
      if (theirs.update != last_.update || theirs.loss != last_.loss || theirs.nll != last_.nll ||
          theirs.grad_norm != last_.grad_norm || theirs.learning_rate != last_.learning_rate ||
          theirs.skipped != last_.skipped)
        failed("update " + std::to_string(theirs.update) + " differs from the lone run's");
    }
  }
  void compare_weights(const Workload& survivor) {
    if (survivor.weights() != run_.weights()) failed("the weights differ from the lone run's");
  }
  // To what the bytes of a checkpoint hold.
  template <class Bytes>
  void go_back(trafo_read_fn read, const Bytes& bytes) {
    struct {
      const Bytes* bytes;
      size_t at;
    } reader{&bytes, 0};
    must(trafo_trainer_read(run_.trainer, read, &reader));
    last_ = {};
  }
  // For a survivor that begins anew.
  void restart() {
    run_.free_trainer();
    trafo_model_free(run_.model);
    run_.model = nullptr;
    must(run_.make_model());
    must(run_.make_trainer());
    last_ = {};
  }
  Workload& run() { return run_; }

 private:
  // The thread that prepares batches, of this run or of the other, may have met the failure, which
  // the next update tells.
  static void step(Workload& run, trafo_step_result& result) {
    trafo_error* error = run.step(&result);
    if (says_out_of_memory(error)) {
      trafo_error_free(error);
      error = run.step(&result);
    }
    must(error);
  }

  Workload run_;
  trafo_step_result last_{};
};

}  // namespace trafo::testing
