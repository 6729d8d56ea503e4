#include "tests/reliability/allocation_sweep.h"

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>

namespace trafo::testing {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

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
    injector.arm(kNever, false);
    must(op());
    injector.disarm();
    const int64_t count = injector.seen();
    after(false);
    const auto files_before = open_files();
    const int64_t stride = places_a_call > 0 ? 1 + (count - 1) / places_a_call : 1;
    bool late = false;  // what failed on a thread that works ahead is told by the next call
    for (int64_t i = 1 + share * stride;; i += stride * shares) {
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
  }
}

void make_and_undo(const char* call, const Op& op, const std::function<void()>& verify,
                   const std::function<void()>& undo) {
  // What is made once, on first use: locales, tables, a thread's scratch memory.
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
