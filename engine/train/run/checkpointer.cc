#include "engine/train/run/checkpointer.h"

#include <algorithm>
#include <new>

#include "engine/io/checksum.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/parallel/run_group.h"
#include "engine/train/run/validator.h"

namespace trafo {

Checkpointer::Checkpointer(const RunParts& parts, RunIdentity identity, UpdateBatches& batches,
                           RunEvents& events,
                           const std::optional<std::filesystem::path>& run_directory)
    : run_(parts),
      identity_(std::move(identity)),
      batches_(batches),
      events_(events),
      run_directory_(run_directory),
      background_save_(parts.context.backend().stream_device()) {}

// --- restoring ---

void Checkpointer::open() {
  on_all_ranks(run_.group, [this] {
    if (run_directory_ && run_.group.rank == 0) directory_.emplace(*run_directory_);
  });
}

void Checkpointer::restore() {
  open();
  std::optional<GemmCache> kernels = run_.group.has_peers() ? restore_together() : restore_alone();
  if (kernels)
    run_.gemm_tuning.resume(std::move(*kernels), run_.group.has_peers()
                                                     ? "the checkpoint"
                                                     : directory_->kernels_path().string());
  else
    run_.gemm_tuning.begin();
  // A process that was killed after the save has not done this. Damaged checkpoints would count as
  // the newest, so none is deleted beside them.
  if (resumed_ && directory_ && refused_.empty()) tidy(run_.state);
  if (!resumed_ && run_.group.has_peers()) require_same_weights();
}

std::optional<GemmCache> Checkpointer::restore_alone() {
  if (!directory_) return std::nullopt;
  std::optional<RunDirectory::Checkpoint> checkpoint =
      directory_->restore(run_.context, run_.model, run_.trainer, identity_,
                          [this](RunState& state) { batches_.seek(state); });
  if (!checkpoint) return std::nullopt;
  run_.state = std::move(checkpoint->state);
  refused_ = std::move(checkpoint->refused);
  resumed_ = true;
  return std::move(checkpoint->kernels);
}

// Rank 0 reads the checkpoint. The others get the state, then their optimizer states and the
// weights.
std::optional<GemmCache> Checkpointer::restore_together() {
  Communicator& group = *run_.group.communicator;
  RunState& state = run_.state;
  std::string kernels;
  if (run_.group.rank == 0) {
    std::optional<RunDirectory::Checkpoint> checkpoint;
    bool told = false;
    std::optional<Error> error;
    try {
      const auto seek = [&](RunState& restored) {
        batches_.seek(restored);
        agree(group, std::nullopt);
        told = true;
        from_root(encode_state(restored, identity_), run_.group);
      };
      if (directory_)
        checkpoint = directory_->restore(run_.context, run_.model, run_.trainer, identity_, seek);
    } catch (const Error& failed) {
      if (told || failed.code() == ErrorCode::peer_lost) throw;
      error = failed;
    }
    if (!told) {
      agree(group, error);
      from_root({}, run_.group);
    } else {
      state = std::move(checkpoint->state);
      refused_ = std::move(checkpoint->refused);
      resumed_ = true;
      if (checkpoint->kernels) kernels = encode_gemm_cache(*checkpoint->kernels);
    }
  } else {
    agree(group, std::nullopt);
    const std::string text = from_root({}, run_.group);
    if (!text.empty()) {
      state = decode_state(text, "the state of rank 0").state;
      batches_.seek(state);
      resumed_ = true;
    }
  }
  if (!resumed_) return std::nullopt;
  run_.trainer.weights().follow_root();
  if (run_.group.rank != 0) run_.trainer.resume_from(state.trainer);
  kernels = from_root(kernels, run_.group);
  if (kernels.empty()) return std::nullopt;
  return decode_gemm_cache(kernels, "the GEMM kernels of rank 0");
}

void Checkpointer::require_same_weights() {
  const ParameterStore& parameters = run_.model.parameters();
  uint32_t sum = 0;
  const auto add = [&](const Tensor& tensor) {
    HostBuffer bytes(tensor.bytes());
    run_.context.to_host(tensor.detach(), bytes.data(), bytes.size());
    sum = crc32(bytes.bytes(), sum);
  };
  add(parameters.master());
  for (size_t i = 0; i < parameters.count(); ++i)
    if (const auto id = static_cast<ParamId>(i); !parameters.trainable(id))
      add(parameters.stored(id));
  require_same(*run_.group.communicator,
               std::vector<GroupField>{{"the checksum of the model's weights", crc32_text(sum)}});
}

std::string Checkpointer::resumed_from() const {
  if (!resumed_) return {};
  return CheckpointDirectory(*run_directory_).path(run_.state.trainer.update).string();
}

void Checkpointer::require_alone(const char* what) const {
  require(!run_.group.has_peers(), ErrorCode::unsupported, "training run",
          "a group of several ranks ", what,
          " no checkpoint as one piece of memory: give a run directory");
}

void Checkpointer::write_stream(ByteSink& sink) {
  run_.gemm_tuning.close();
  auto files = checkpoint_files(run_.context, run_.model, run_.trainer, run_.state, identity_);
  const std::optional<GemmCache> kernels = run_.gemm_tuning.cache();
  if (kernels && !kernels->choices.empty()) files.push_back(gemm_cache_file(*kernels));
  write_checkpoint_stream(sink, files);
}

void Checkpointer::read_stream(const CheckpointContent& content,
                               const std::optional<GemmCache>& kernels, const SeekFunction& seek) {
  run_.state = restore_checkpoint(run_.context, run_.model, run_.trainer, identity_, content, seek);
  if (kernels) run_.gemm_tuning.resume(*kernels, "the checkpoint");
  changed_ = true;
  due_ = false;
  averaged_update_ = -1;
}

// --- saving ---

void Checkpointer::tidy(const RunState& state) {
  const TrainOptions& options = run_.options;
  directory_->tidy(state, options.keep_best, std::max(options.keep_last, options.average_last));
}

void Checkpointer::save(RunSession& session) {
  if (!run_directory_ || !changed_) {
    due_ = false;
    return;
  }
  if (saves_in_background()) return start_save(session);
  save_in_place(session);
}

void Checkpointer::save_in_place(RunSession& session) {
  events_.update_clock();
  if (run_.group.has_peers())
    save_together();
  else
    save_files();
  changed_ = due_ = false;
  if (directory_) tidy(run_.state);
  events_.update_clock();
  events_.report_tuning(session);
  events_.emit(session, saved_event(run_.state.trainer.update));
}

TrainEvent Checkpointer::saved_event(int64_t update) const {
  TrainEvent event = events_.make(TrainEventKind::saved);
  event.update = update;
  event.path = CheckpointDirectory(*run_directory_).path(update).string();
  return event;
}

void Checkpointer::save_files() {
  const PhaseRange phase(run_.context, "save", true);
  run_.gemm_tuning.close();
  directory_->save(run_.state.trainer.update,
                   checkpoint_files(run_.context, run_.model, run_.trainer, run_.state, identity_),
                   run_.gemm_tuning.cache());
}

void Checkpointer::save_together() {
  run_.trainer.weights().complete_with_ema();
  OptimizerFile& optimizer = run_.trainer.optimizer_file();
  optimizer.gather();
  try {
    on_all_ranks(run_.group, [this] {
      if (directory_) save_files();
    });
  } catch (...) {
    optimizer.drop_gathered();
    throw;
  }
  optimizer.drop_gathered();
}

bool Checkpointer::saves_in_background() const {
  return !run_.group.has_peers() &&
         run_.options.background_saves.value_or(run_.trainer.works_ahead());
}

// Copies the run to the host; another thread writes the copy while training continues. Without
// memory for the copy, or after a save that failed, it is written before the return.
void Checkpointer::start_save(RunSession& session) {
  try {
    finish_save(session);
  } catch (...) {
    save_in_place(session);  // the run may end with the error of the earlier one
    throw;
  }
  events_.update_clock();
  const PhaseRange phase(run_.context, "save", true);
  run_.gemm_tuning.close();
  std::vector<CheckpointFile> files;
  try {
    files = copied_checkpoint_files(run_.context, run_.model, run_.trainer, run_.state, identity_,
                                    background_save_.allocator());
  } catch (const std::bad_alloc&) {
    return save_in_place(session);
  }
  background_save_.start(
      [this, files = std::move(files), kernels = run_.gemm_tuning.cache(), state = run_.state] {
        directory_->save(state.trainer.update, files, kernels);
        tidy(state);
      });
  background_update_ = run_.state.trainer.update;
  changed_ = due_ = false;
  events_.update_clock();
  events_.report_tuning(session);
}

void Checkpointer::finish_save(RunSession& session) {
  if (!background_save_.in_flight()) return;
  try {
    background_save_.await();
  } catch (...) {
    changed_ = due_ = true;
    throw;
  }
  events_.update_clock();
  events_.emit(session, saved_event(background_update_));
}

void Checkpointer::finish_save_after(const Error& error, RunSession& session) {
  try {
    finish_save(session);
  } catch (const std::exception& lost) {
    throw Error(error.code(), error.origin(),
                error.message() + "; the checkpoint of update " +
                    std::to_string(background_update_) + " was not saved: " + lost.what());
  }
}

// --- other files ---

void Checkpointer::average(RunSession& session, Validator& validator) {
  if (averaged_update_ == run_.state.trainer.update) return;
  on_all_ranks(run_.group, [&] {
    if (run_.group.rank == 0) average_files(session, validator);
  });
  averaged_update_ = run_.state.trainer.update;
}

void Checkpointer::average_files(RunSession& session, Validator& validator) {
  const RunDirectory::Average average = directory_->average(run_.options.average_last);
  averaged_update_ = run_.state.trainer.update;
  TrainEvent event = events_.make(TrainEventKind::averaged);
  event.path = average.path.string();
  for (const int64_t update : average.updates)
    event.message += concat(event.message.empty() ? "" : ", ", update);
  event.metrics = validator.measure_file(session, average.path);
  events_.update_clock();
  events_.emit(session, event);
}

// A line for each line of the validation set: those with an empty side have no hypothesis.
std::string Checkpointer::write_hypotheses(const ValidationResult& result) {
  std::string path;
  on_all_ranks(run_.group, [&] {
    if (!directory_ || result.hypotheses.empty()) return;
    const TrainingData& data = run_.data;
    std::vector<std::string> lines = result.hypotheses;
    if (!data.valid_lines.empty()) {
      lines.assign(static_cast<size_t>(data.valid_line_count), {});
      for (size_t pair = 0; pair < result.hypotheses.size(); ++pair)
        lines[static_cast<size_t>(data.valid_lines[pair])] = result.hypotheses[pair];
    }
    path = directory_->write_hypotheses(run_.state.trainer.update, lines).string();
  });
  return path;
}

}  // namespace trafo
