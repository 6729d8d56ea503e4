// TrainingRun: checkpoints, in place and beside the training.
#include <new>

#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/run/run.h"

namespace trafo {

void TrainingRun::save() {
  const TrainCallback none;
  Session session = new_session(none, nullptr);
  clock_ = Clock::now();
  while (!in_flight_.empty())
    await_step(session);  // a callback may have thrown before they were awaited
  save(session);
  finish_save(session);
}

void TrainingRun::save(Session& session) {
  if (!run_directory_ || !changed_) {
    save_due_ = false;
    return;
  }
  if (saves_in_background()) return start_save(session);
  save_in_place(session);
}

void TrainingRun::save_in_place(Session& session) {
  update_clock();
  if (group_.has_peers())
    save_together();
  else
    save_files();
  changed_ = save_due_ = false;
  if (directory_) tidy(state_);
  update_clock();
  report_tuning(session);
  emit(session, saved_event(state_.trainer.update));
}

TrainEvent TrainingRun::saved_event(int64_t update) const {
  TrainEvent event = make_event(TrainEventKind::saved);
  event.update = update;
  event.path = CheckpointDirectory(*run_directory_).path(update).string();
  return event;
}

void TrainingRun::save_files() {
  const PhaseRange phase(context_, "save", true);
  gemm_tuning_.close();
  directory_->save(state_.trainer.update,
                   checkpoint_files(context_, model_, trainer_, state_, identity_),
                   gemm_tuning_.cache());
}

bool TrainingRun::saves_in_background() const {
  return !group_.has_peers() && options_.background_saves.value_or(trainer_.works_ahead());
}

// Copies the run to the host; another thread writes the copy while training continues. Without
// memory for the copy, or after a save that failed, it is written before the return.
void TrainingRun::start_save(Session& session) {
  try {
    finish_save(session);
  } catch (...) {
    save_in_place(session);  // the run may end with the error of the earlier one
    throw;
  }
  update_clock();
  const PhaseRange phase(context_, "save", true);
  gemm_tuning_.close();
  std::vector<CheckpointFile> files;
  try {
    files = copied_checkpoint_files(context_, model_, trainer_, state_, identity_,
                                    background_save_.allocator());
  } catch (const std::bad_alloc&) {
    return save_in_place(session);
  }
  background_save_.start(
      [this, files = std::move(files), kernels = gemm_tuning_.cache(), state = state_] {
        directory_->save(state.trainer.update, files, kernels);
        tidy(state);
      });
  background_update_ = state_.trainer.update;
  changed_ = save_due_ = false;
  update_clock();
  report_tuning(session);
}

// Waits for the save in flight, if there is one, and reports it. After an error, the run as it is
// by then is to be saved.
void TrainingRun::finish_save(Session& session) {
  if (!background_save_.in_flight()) return;
  try {
    background_save_.await();
  } catch (...) {
    changed_ = save_due_ = true;
    throw;
  }
  update_clock();
  emit(session, saved_event(background_update_));
}

// The error that ends a run also says that the save in flight has failed.
void TrainingRun::finish_save_after(const Error& error, Session& session) {
  try {
    finish_save(session);
  } catch (const std::exception& lost) {
    throw Error(error.code(), error.origin(),
                error.message() + "; the checkpoint of update " +
                    std::to_string(background_update_) + " was not saved: " + lost.what());
  }
}

}  // namespace trafo
