#include "tests/reliability/allocation_sweep.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

namespace trafo::testing {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kSome = 100, kOfAPath = 8;

// Numbers of the allocations of a call that are to fail, rising. `paths`: of each allocation.
std::vector<int64_t> chosen_places(int64_t count, const std::vector<uint64_t>& paths) {
  std::vector<int64_t> chosen;
  if (places != Places::of_each_path || on_device) {
    const int64_t stride = places == Places::some ? 1 + (count - 1) / kSome : 1;
    for (int64_t i = 1; i <= count; i += stride) chosen.push_back(i);
    return chosen;
  }
  std::map<uint64_t, std::vector<int64_t>> by_path;
  for (size_t i = 0; i < paths.size(); ++i)
    by_path[paths[i]].push_back(static_cast<int64_t>(i) + 1);
  for (const auto& [path, all] : by_path) {
    const auto last = static_cast<int64_t>(all.size()) - 1;
    // The first, the last, and others at equal distances.
    for (int64_t k = 0; k < std::min(last + 1, kOfAPath); ++k)
      chosen.push_back(all[static_cast<size_t>(last < kOfAPath ? k : k * last / (kOfAPath - 1))]);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

void failed(const std::string& what) {
  ++tally->failed;
  std::printf("allocation_failure: %s, allocation %lld%s: %s\n", tally->call,
              static_cast<long long>(tally->at), tally->persistent ? " and all after it" : "",
              what.c_str());
  std::fflush(stdout);
}

bool says_out_of_memory(const trafo_error* error) {
  const int32_t code = trafo_error_code(error);
  return code == TRAFO_OUT_OF_MEMORY || (on_device && code == TRAFO_OUT_OF_DEVICE_MEMORY);
}

void sweep(const char* call, const std::function<void()>& prepare, const Op& op,
           const std::function<void(bool refused)>& after) {
  std::snprintf(tally->call, sizeof tally->call, "%s", call);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  for (const bool persistent : {false, true}) {
    tally->persistent = persistent;
    tally->at = 0;
    prepare();
    const bool by_path = places == Places::of_each_path && !on_device;
    if (by_path) record_paths(true);
    injector.arm(kNever, false);
    must(op());
    injector.disarm();
    const int64_t count = injector.seen();
    if (by_path) record_paths(false);
    after(false);
    const auto chosen =
        chosen_places(count, by_path ? recorded_paths(count) : std::vector<uint64_t>());
    const auto begin = std::chrono::steady_clock::now();
    const int64_t tried_before = tally->tried;
    const auto files_before = open_files();
    bool late = false;  // what failed on a thread that works ahead is told by the next call
    for (int64_t next = share;; next += shares) {
      const auto listed = static_cast<int64_t>(chosen.size());
      // Beyond the list the call comes through, with other allocations than when it was recorded.
      const int64_t i =
          next < listed ? chosen[static_cast<size_t>(next)] : count + 1 + next - listed;
      tally->at = i;
      prepare();
      injector.arm(i, persistent);
      trafo_error* error = op();
      const bool fired = injector.disarm();
      tally->tried += fired;
      if (error && !fired && !(late && says_out_of_memory(error)))
        failed(std::string("an error although nothing failed: ") + trafo_error_message(error));
      else if (error && !says_out_of_memory(error))
        failed(std::string("status ") + trafo_error_code_name(trafo_error_code(error)) + ": " +
               trafo_error_message(error) + " [" + trafo_error_origin(error) + "]");
      const bool refused = error != nullptr;
      trafo_error_free(error);
      after(refused);
      if (!fired && !refused && i > count) break;
      late = fired && !refused;
      if (i > 16 * count + 1000) {
        failed("the call never comes through");
        break;
      }
    }
    if (open_files() > files_before) failed("files stay open");
    if (share > 0 || count == 0) continue;
    std::printf("  %-22s %s %8lld allocations, %8lld tries, %.1f s\n", call,
                persistent ? "all after" : "one      ", static_cast<long long>(count),
                static_cast<long long>(tally->tried - tried_before),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

void make_and_undo(const char* call, const Op& op, const std::function<void()>& verify,
                   const std::function<void()>& undo) {
  // Objects that are made once, on first use: locales, tables, a thread's scratch memory.
  for (int i = 0; i < 3; ++i) {
    must(op());
    verify();
    undo();
  }
  int64_t before = 0;
  const auto undone = [&](bool refused) {
    if (refused) {
      undo();  // whatever a chain of calls had made until then
      must(op());
    }
    verify();
    undo();
  };
  sweep(
      call, [&] { before = live_blocks(); }, op,
      [&](bool refused) {
        undone(refused);
        if (live_blocks() <= before) return;
        // An allocator may keep a block more than before; a leak is one that comes again each time.
        for (int again = 0; again < 4; ++again) {
          before = live_blocks();
          injector.arm(tally->at, tally->persistent);
          trafo_error* error = op();
          injector.disarm();
          const bool refused_again = error != nullptr;
          trafo_error_free(error);
          undone(refused_again);
          if (live_blocks() <= before) return;
        }
        failed("leaks " + std::to_string(live_blocks() - before) + " blocks each time");
      });
}

}  // namespace trafo::testing
