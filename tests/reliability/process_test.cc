// Properties that a host program keeps with the library: its signal handlers, its network, and its
// right to fork. Handles know when they were freed.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "tests/reliability/workload.h"
#include "tests/support/scratch_directory.h"

namespace {

using namespace trafo::testing;
namespace fs = std::filesystem;

int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::printf("failed: %s\n", what);
}
#define EXPECT(condition) expect(condition, #condition)

int32_t code_of(trafo_error* error) {
  const int32_t code = trafo_error_code(error);
  trafo_error_free(error);
  return code;
}

WorkloadOptions two_threads(const fs::path& directory = {}) {
  WorkloadOptions options;
  options.threads = 2;
  options.run_directory = directory.string();
  return options;
}

void live_a_life(const fs::path& directory) {
  Workload run(two_threads(directory));
  run.make_all();
  trafo_step_result step{};
  for (int i = 0; i < 4; ++i) must(run.step(&step));
  must(trafo_trainer_save(run.trainer));
  trafo_translations* translations = nullptr;
  must(run.translate(2, &translations));
  trafo_translations_free(translations);
  run.free_trainer();
  must(run.make_trainer());
}

// `work` in a child; the status it ends with, or a hundred plus the signal that ended it.
template <class Work>
int in_child(const Work& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a call that waits for the parent's threads would wait for ever
    failures = 0;
    work();
    std::fflush(stdout);
    _exit(failures);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

void signals(const fs::path& directory) {
  const auto handlers = [] {
    std::map<int, void*> all;
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) == 0)
        all[number] = reinterpret_cast<void*>(action.sa_handler);
    }
    return all;
  };
  sigset_t mask{}, mask_after{};
  const auto before = handlers();
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  live_a_life(directory / "signals");
  sigprocmask(SIG_BLOCK, nullptr, &mask_after);
  EXPECT(handlers() == before);
  EXPECT(std::memcmp(&mask, &mask_after, sizeof mask) == 0);
}

// The kernel ends a process that asks for a socket.
void network(const fs::path& directory) {
  const int status = in_child([&] {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog filter{sizeof program / sizeof *program, program};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    live_a_life(directory / "network");
  });
  EXPECT(status == 0);
}

void forks() {
  Workload run(two_threads()), lone(two_threads());
  run.make_all();
  lone.make_all();
  trafo_tensor* tensor = nullptr;
  const float value = 3;
  const int64_t shape[] = {1};
  must(trafo_tensor_new(run.context, TRAFO_FLOAT32, shape, 1, &value, sizeof value, &tensor));
  trafo_step_result step{}, lone_step{};
  must(run.step(&step));
  const int status = in_child([&] {
    trafo_step_result in_vain{};
    trafo_translations* translations = nullptr;
    trafo_tensor* sum = nullptr;
    trafo_memory_stats memory{};
    float read = 0;
    EXPECT(code_of(run.step(&in_vain)) == TRAFO_UNSUPPORTED);
    EXPECT(code_of(trafo_trainer_save(run.trainer)) == TRAFO_UNSUPPORTED);
    EXPECT(code_of(run.translate(1, &translations)) == TRAFO_UNSUPPORTED);
    EXPECT(code_of(trafo_op_sum(run.context, tensor, &sum)) == TRAFO_UNSUPPORTED);
    EXPECT(code_of(trafo_tensor_read(tensor, &read, sizeof read)) == TRAFO_UNSUPPORTED);
    EXPECT(code_of(trafo_context_memory_stats(run.context, &memory)) == TRAFO_UNSUPPORTED);
    // Objects without threads keep working, and so does a context that the child makes.
    int64_t vocabulary = 0;
    EXPECT(code_of(trafo_tokenizer_get_vocabulary(run.tokenizer, &vocabulary)) == TRAFO_OK);
    Workload own(two_threads());
    own.make_all();
    EXPECT(code_of(own.step(&in_vain)) == TRAFO_OK);
    EXPECT(in_vain.loss == step.loss);
    trafo_tensor_free(tensor);
    run.free_all();
    EXPECT(code_of(trafo_tensor_read(tensor, &read, sizeof read)) == TRAFO_INVALID_ARGUMENT);
  });
  EXPECT(status == 0);
  must(lone.step(&lone_step));
  for (int i = 0; i < 3; ++i) {
    must(run.step(&step));
    must(lone.step(&lone_step));
    EXPECT(step.loss == lone_step.loss);
  }
  EXPECT(run.weights() == lone.weights());
  trafo_tensor_free(tensor);
}

void stale_handles() {
  trafo_cancel* freed = nullptr;
  must(trafo_cancel_new(&freed));
  trafo_cancel_free(freed);
  EXPECT(code_of(trafo_cancel_set(freed)) == TRAFO_INVALID_ARGUMENT);
  trafo_cancel_free(freed);
  trafo_error* error = trafo_cancel_set(freed);
  trafo_error_free(error);
  EXPECT(trafo_error_code(error) == TRAFO_INVALID_ARGUMENT);
}

}  // namespace

int main() {
  const trafo::ScratchDirectory folder;
  signals(folder.path().string());
  network(folder.path().string());
  forks();
  stale_handles();
  std::printf("%d failed\n", failures);
  return failures != 0;
}
