#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace trafo {

// A process id that belonged to a process which is gone and collected.
inline pid_t dead_process() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

}  // namespace trafo
