#include "report/reporter.h"
#include "run_dir/run_files.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "commands/cli_error.h"
#include "engine/os/file.h"
#include "engine/os/terminal.h"
#include "text/terminal_text.h"

namespace translate_train {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kReminder = std::chrono::seconds(30);
constexpr auto kRedraw = std::chrono::milliseconds(500);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// train.log. spdlog's own file would follow a symbolic link.
class LogFile final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit LogFile(const std::string& path) : file_(path, OutputFile::Mode::append) {
    if (!file_.is_open()) throw CliError(kFailed, path + ": cannot be written to: " + reason());
  }

 private:
  static std::string reason() { return std::strerror(errno); }
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (!file_.write({line.data(), line.size()})) throw spdlog::spdlog_ex(reason());
  }
  void flush_() override {}

  OutputFile file_;
};

size_t terminal_width() {
  const int columns = trafo::os::terminal_columns(trafo::os::kStandardError);
  return columns < 20 ? 80 : static_cast<size_t>(columns);
}

}  // namespace

Reporter::Reporter(ReporterOptions options)
    : options_(options),
      live_(options.live && !options.quiet && !options.silent &&
            trafo::os::is_terminal(trafo::os::kStandardError)) {
  ticker_ = std::thread([this] { tick(); });
}

Reporter::~Reporter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    erase();
  }
  wake_.notify_all();
  ticker_.join();
}

void Reporter::open_files(const std::string& run_directory) {
  log_ = std::make_shared<spdlog::logger>("train",
                                          std::make_shared<LogFile>(run_directory + "/train.log"));
  log_->set_pattern(options_.json ? "%v" : "[%Y-%m-%d %H:%M:%S] %v");
  log_->flush_on(spdlog::level::info);
  // A full disk must not end a run that could still be saved elsewhere: said once, then ignored.
  log_->set_error_handler([this, said = false](const std::string& message) mutable {
    if (!said) print("warning: train.log: " + message);
    said = true;
  });
  metrics_path_ = run_directory + "/metrics.jsonl";
}

void Reporter::rewind_metrics(int64_t update) {
  std::ifstream in = open_run_file(metrics_path_);
  if (!in) return;
  std::string kept, line;
  while (std::getline(in, line)) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    // Lines cut off by a kill are not JSON.
    if (!record.is_object()) continue;
    const auto of = record.find("update");
    if (of == record.end() || (of->is_number() && of->get<double>() <= static_cast<double>(update)))
      kept += line + "\n";
  }
  in.close();
  if (!replace_file(metrics_path_, kept)) warn(metrics_path_ + ": cannot be rewritten");
}

void Reporter::info(const std::string& text, nlohmann::ordered_json record) {
  log("info", text, std::move(record), !options_.quiet);
}

void Reporter::warn(const std::string& text) {
  log("warning", text, {}, true);
}

void Reporter::progress(const std::string& text, nlohmann::ordered_json record,
                        const std::string& live) {
  log("info", text, std::move(record), !options_.quiet && !live_);
  status(live);
}

void Reporter::metric(const nlohmann::ordered_json& record) {
  if (metrics_path_.empty() || metrics_failed_) return;
  OutputFile out(metrics_path_, OutputFile::Mode::append);
  // Translations may hold bytes that are no UTF-8: subwords can be single bytes.
  if (!out.write(record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n")) {
    metrics_failed_ = true;
    warn(metrics_path_ + ": cannot be written");
  }
}

void Reporter::status(const std::string& text) {
  const std::lock_guard lock(mutex_);
  status_ = text;
  status_time_ = Clock::now();
  if (!live_) return;
  if (text.empty())
    erase();
  else
    draw(status_);
}

void Reporter::log(const char* level, const std::string& text, nlohmann::ordered_json record,
                   bool on_screen) {
  const bool warning = level[0] == 'w';
  std::string line = (warning ? "warning: " : "") + text;
  if (options_.json) {
    nlohmann::ordered_json object = {{"level", level}, {"message", text}};
    for (auto& [key, value] : record.items()) object[key] = value;
    line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  const std::lock_guard lock(mutex_);
  if (log_) log_->info("{}", terminal_text(line));
  if (on_screen) print(line);
}

void Reporter::print(const std::string& text) {
  if (options_.silent) return;
  const std::string below = drawn_ ? status_ : "";
  erase();
  std::fprintf(stderr, "%s\n", terminal_text(text).c_str());
  if (live_ && !below.empty()) draw(below);
}

void Reporter::draw(const std::string& text) {
  std::fprintf(stderr, "\r%s\x1b[K", terminal_text(text).substr(0, terminal_width() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Reporter::erase() {
  if (drawn_) std::fprintf(stderr, "\r\x1b[K");
  drawn_ = false;
}

void Reporter::tick() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kRedraw, [this] { return ending_; })) {
    if (options_.quiet) continue;
    if (!phase_.empty() && Clock::now() - phase_begin_ > kPatience) {
      const auto line = [this](const std::string& text) {
        return options_.json ? nlohmann::ordered_json{{"level", "info"}, {"message", text}}.dump()
                             : text;
      };
      const std::string so_far =
          fmt::format("{} ... {}", phase_, clock_text(seconds_since(phase_begin_)));
      if (live_) {
        draw(so_far);
      } else if (!phase_announced_ || Clock::now() - phase_told_ > kReminder) {
        print(line(phase_announced_ ? so_far : phase_ + " ..."));
        phase_told_ = Clock::now();
      }
      phase_announced_ = true;
    } else if (live_ && phase_.empty() && !status_.empty() &&
               Clock::now() - status_time_ > kPatience) {
      draw(fmt::format("{} | {} ago", status_, clock_text(seconds_since(status_time_))));
    }
  }
}

Reporter::Phase::Phase(Reporter& reporter, std::string doing) : reporter_(reporter) {
  const std::lock_guard lock(reporter_.mutex_);
  reporter_.phase_ = std::move(doing);
  reporter_.phase_begin_ = Clock::now();
  reporter_.phase_announced_ = false;
}

Reporter::Phase::~Phase() {
  const std::lock_guard lock(reporter_.mutex_);
  if (reporter_.live_) reporter_.erase();
  reporter_.phase_.clear();
}

void Reporter::Phase::now(std::string doing) {
  const std::lock_guard lock(reporter_.mutex_);
  reporter_.phase_ = std::move(doing);
}

double Reporter::Phase::seconds() const {
  return seconds_since(reporter_.phase_begin_);
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576);
}

std::string clock_text(double seconds) {
  const int64_t all = static_cast<int64_t>(seconds + 0.5);
  if (all >= 3600) return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
  return fmt::format("{:02}:{:02}", all / 60, all % 60);
}

}  // namespace translate_train
