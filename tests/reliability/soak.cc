// Suite 8: a long run. Training with validation, saving and translating in between, in ten equal
// windows after a warm-up; then resident memory, the device's bytes, open files and threads are
// where they were. Without a flag 500 updates, --long: 10,000, and more until an hour is over;
// --minutes N: 500 and more until then. TRAFO_TEST_DEVICE=cuda: on a card.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/reliability/workload.h"
#include "tests/support/scratch_directory.h"

namespace {

using namespace trafo::testing;
namespace fs = std::filesystem;

constexpr int kWindows = 10;

int64_t tried = 0, failures = 0;

void expect(bool good, const std::string& what) {
  ++tried;
  if (good) return;
  ++failures;
  std::printf("soak: %s\n", what.c_str());
}

int64_t resident_bytes() {
  int64_t size = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t entries(const char* directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

struct Sample {
  int64_t resident, allocated, reserved, files, threads;
};

// One of everything that a long run does.
void window(Workload& run, int64_t updates, std::string& text) {
  int32_t stop = 0;
  must(trafo_trainer_run(run.trainer, updates, nullptr, nullptr, nullptr, &stop));
  trafo_metric_value metrics[TRAFO_METRIC_COUNT];
  int64_t count = 0;
  must(trafo_trainer_validate(run.trainer, nullptr, metrics, TRAFO_METRIC_COUNT, &count));
  must(trafo_trainer_save(run.trainer));
  trafo_translations* translations = nullptr;
  must(run.translate(2, &translations));
  text = Workload::text_of(translations);
  trafo_translations_free(translations);
  trafo_error_free(trafo_op_exp(run.context, nullptr, nullptr));  // errors are objects too
}

Sample sample(const Workload& run) {
  const trafo_memory_stats memory = run.memory();
  return {resident_bytes(), memory.allocated_bytes, memory.reserved_bytes, entries("/proc/self/fd"),
          entries("/proc/self/task")};
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc == 2 && std::strcmp(argv[1], "--long") == 0;
  const bool timed = argc == 3 && std::strcmp(argv[1], "--minutes") == 0;
  if (argc > 1 && !all && !timed) return 2;
  const std::chrono::minutes minutes(timed ? std::atoi(argv[2]) : all ? 60 : 0);
  const auto end = std::chrono::steady_clock::now() + minutes;
  const char* device = std::getenv("TRAFO_TEST_DEVICE");
  const int64_t updates = all ? 10000 : 500, warm_up = updates / 5;
  const trafo::ScratchDirectory folder;
  {
    WorkloadOptions options;
    options.run_directory = folder.file("run");
    options.threads = 2;
    options.smoothing = 0.01;
    if (device && std::strcmp(device, "cuda") == 0) options.device = TRAFO_DEVICE_CUDA;
    Workload run(options);
    run.make_all();
    std::string text;
    // Twice, so that what is kept for a second time is there.
    window(run, warm_up / 2, text);
    window(run, warm_up - warm_up / 2, text);
    std::vector<Sample> samples{sample(run)};
    int64_t most = samples.front().resident, done = warm_up;
    for (int i = 0; i < kWindows || std::chrono::steady_clock::now() < end; ++i) {
      window(run, (updates - warm_up) / kWindows, text);
      done += (updates - warm_up) / kWindows;
      samples.push_back(sample(run));
      most = std::max(most, samples.back().resident);
    }
    const Sample& first = samples.front();
    for (const Sample& each : samples) {
      expect(each.allocated == first.allocated,
             "the device has " + std::to_string(each.allocated - first.allocated) +
                 " bytes more in use");
      expect(each.files == first.files, "open files: " + std::to_string(each.files) +
                                            " instead of " + std::to_string(first.files));
      expect(each.threads == first.threads, "threads: " + std::to_string(each.threads) +
                                                " instead of " + std::to_string(first.threads));
    }
    // The allocator keeps what the longest translation so far has needed, and how long they are
    // changes with the model: a little more at first, nothing in the last five windows.
    const int64_t last = samples.back().reserved;
    for (size_t i = 0; i < samples.size(); ++i)
      expect(i + 1 + kWindows / 2 > samples.size()
                 ? samples[i].reserved == last
                 : samples[i].reserved <= last && last <= first.reserved + first.reserved / 10,
             "window " + std::to_string(i) + ": the device has " +
                 std::to_string(samples[i].reserved) + " bytes taken from the system, at first " +
                 std::to_string(first.reserved) + ", at last " + std::to_string(last));
    // DuckDB's rule for leaks, over windows instead of seconds: the last ten differences add up to
    // at most 1 % of the largest size and 1,000 bytes.
    const int64_t grown = samples.back().resident - samples[samples.size() - 1 - kWindows].resident;
    std::printf(
        "soak: %lld updates, resident %lld bytes at most, %+lld in the last %d windows; "
        "device %lld bytes, %lld files, %lld threads\n",
        static_cast<long long>(done), static_cast<long long>(most), static_cast<long long>(grown),
        kWindows, static_cast<long long>(first.allocated), static_cast<long long>(first.files),
        static_cast<long long>(first.threads));
    expect(grown <= most / 100 + 1000, "resident memory has grown by " + std::to_string(grown));
  }
  std::printf("suite: soak  tried: %lld  failed: %lld\n", static_cast<long long>(tried),
              static_cast<long long>(failures));
  return failures != 0;
}
