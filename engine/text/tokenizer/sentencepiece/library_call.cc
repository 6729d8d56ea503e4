#include "engine/text/tokenizer/sentencepiece/library_call.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/core/library_thread.h"
#include "engine/os/process.h"
#include "engine/text/tokenizer/check_text.h"

namespace trafo {
namespace {

// A token may be set by a signal handler, which cannot notify.
constexpr auto kPoll = std::chrono::milliseconds(20);

class Job {
 public:
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}
  static void start(const std::shared_ptr<Job>& job) {
    job->thread_ = start_thread([job] { job->run(); });
  }
  bool wait() {  // for a moment; whether it has ended
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, kPoll, [&] { return done_; });
  }
  void join() { thread_.join(); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }
  std::shared_ptr<Job> next;  // of the jobs that nobody waits for

 private:
  void run() {
    try {
      work_();
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    ended_.notify_all();
  }

  const std::function<void()> work_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr error_;
};

// Jobs that nobody waits for.
class LeftJobs {
 public:
  // Static objects of SentencePiece are made as it trains, and are destroyed in reverse order. The
  // job must end before: whatever is registered now runs before all that are there.
  void add(std::shared_ptr<Job> job) {
    if (std::atexit([] { all().wait(nullptr); }) != 0) return job->join();
    const std::lock_guard lock(mutex_);
    process_ = os::process_id();
    job->next = std::exchange(first_, job);
  }
  // Never destroyed: it is used at the end of the process.
  static LeftJobs& all() {
    static LeftJobs& jobs = *new LeftJobs;
    return jobs;
  }
  void wait(const CancelToken* cancel) {
    while (const std::shared_ptr<Job> job = first()) {
      if (job->wait())
        remove(job);
      else
        stop_if_cancelled(cancel, kTokenizerOrigin);
    }
  }

 private:
  std::shared_ptr<Job> first() {
    const std::lock_guard lock(mutex_);
    forget_parents();
    return first_;
  }
  void remove(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    for (std::shared_ptr<Job>* place = &first_; *place; place = &(*place)->next) {
      if (*place != job) continue;
      job->join();
      *place = std::shared_ptr<Job>(job->next);
      return;
    }
  }
  // A child of fork() has none of its parent's threads. Their handles must not be destroyed.
  void forget_parents() {
    if (first_ && process_ != os::process_id()) new std::shared_ptr<Job>(std::move(first_));
  }

  std::mutex mutex_;
  std::shared_ptr<Job> first_;
  int64_t process_ = 0;
};

}  // namespace

void wait_for_left_calls(const CancelToken* cancel) {
  LeftJobs::all().wait(cancel);
}

void run_library_call(std::function<void()> work, const CancelToken* cancel,
                      const std::function<bool()>& may_leave) {
  wait_for_left_calls(cancel);
  const auto job = std::make_shared<Job>(std::move(work));
  try {
    Job::start(job);
  } catch (const std::system_error&) {
    throw std::bad_alloc();
  }
  while (!job->wait()) {
    if (!may_leave() || cancel == nullptr || !cancel->is_cancelled()) continue;
    LeftJobs::all().add(job);
    fail(ErrorCode::cancelled, kTokenizerOrigin, "cancelled by the caller");
  }
  job->join();
  job->rethrow();
}

}  // namespace trafo
