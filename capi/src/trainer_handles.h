#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

#include "capi/src/model_handles.h"
#include "engine/train/run/run.h"

namespace trafo::capi {

struct GroupObject {
  std::shared_ptr<Communicator> communicator;
};

struct TrainerObject {
  std::shared_ptr<Context> context;
  std::shared_ptr<Model> model;
  TrainOptions options;
  std::shared_ptr<Communicator> group;  // null: none
  std::unique_ptr<TrainingRun> run;
  std::optional<std::filesystem::path> directory;  // where the run saves
  std::atomic<bool> at_work{false};  // a call is in flight; calls from its callback are refused
};

struct TrainerArguments {
  trafo_model* model;
  const trafo_tokenizer* tokenizer;
  const trafo_corpus* train;
  const trafo_corpus* valid;
  const trafo_trainer_options* options;
  const char* run_directory;
  size_t run_directory_length;
  const trafo_cancel* cancel;
};
trafo_trainer* new_trainer(const Call& call, const TrainerArguments& arguments,
                           std::shared_ptr<Communicator> group);

// Claims the trainer for one call.
class Working {
 public:
  Working(const Call& call, trafo_trainer* argument) : trainer_(&call.handle(argument, "trainer")) {
    call.use(trainer_->context, CallsBack::yes);
    if (trainer_->at_work.exchange(true))
      call.refuse("the trainer is at work: its callback, or another thread, cannot use it now");
  }
  ~Working() { trainer_->at_work = false; }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  TrainerObject* operator->() const { return trainer_; }
  const TrainerObject& operator*() const { return *trainer_; }

 private:
  TrainerObject* trainer_;
};

}  // namespace trafo::capi
