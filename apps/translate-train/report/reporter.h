// The output of a command at work: lines on standard error and in train.log, one rewritten status
// line on a terminal, records in metrics.jsonl.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace spdlog {
class logger;
}

namespace translate_train {

struct ReporterOptions {
  bool json = false;    // lines as JSON objects
  bool live = true;     // a rewritten line, if standard error is a terminal
  bool quiet = false;   // warnings only
  bool silent = false;  // nothing: another process says it
};

class Reporter {
 public:
  explicit Reporter(ReporterOptions options);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Appends to RUN/train.log and RUN/metrics.jsonl from now on.
  void open_files(const std::string& run_directory);
  // Forgets the records after `update`, which will come again.
  void rewind_metrics(int64_t update);

  void info(const std::string& text, nlohmann::ordered_json record = {});
  void warn(const std::string& text);
  // `text` is for the log and, when standard error is no terminal or has no live line, also there;
  // `live` is for the live line.
  void progress(const std::string& text, nlohmann::ordered_json record, const std::string& live);
  void metric(const nlohmann::ordered_json& record);
  void status(const std::string& text);  // on the live line until the next one; "": none

  // Says what is being done once it has taken two seconds, and for how long; again every half
  // minute where there is no live line. One at a time.
  class Phase {
   public:
    Phase(Reporter& reporter, std::string doing);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    double seconds() const;
    // Sets the text of the work, as "translating, 2,000 lines done".
    void now(std::string doing);

   private:
    Reporter& reporter_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  void tick();
  void print(const std::string& text);  // with mutex_ held
  void draw(const std::string& text);
  void erase();
  void log(const char* level, const std::string& text, nlohmann::ordered_json record,
           bool on_screen);

  ReporterOptions options_;
  bool live_ = false;
  std::string metrics_path_;
  std::shared_ptr<spdlog::logger> log_;
  bool metrics_failed_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  bool drawn_ = false;  // something stands on the live line
  std::string status_;  // of training
  Clock::time_point status_time_;
  std::string phase_;
  Clock::time_point phase_begin_;
  bool phase_announced_ = false;
  Clock::time_point phase_told_;
  std::thread ticker_;
};

// 4200 -> "4,200"
std::string grouped(int64_t number);
// 1048576 -> "1.0 MiB"
std::string mebibytes(int64_t bytes);
// 75 -> "01:15", 3675 -> "1:01:15"
std::string clock_text(double seconds);

}  // namespace translate_train
