// Makes the system calls under engine/os/file.h and names.h fail, one after the other. Nothing of
// it is in the library: the linker's --wrap puts it between the engine's objects and the C library,
// in the programs of this folder alone (tests/CMakeLists.txt names the calls).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/reliability/saves/disk_model.h"

namespace trafo::testing {

enum class IoFault {
  io_error,        // EIO, of every call
  no_space,        // ENOSPC, of calls that may need space
  interrupted,     // EINTR, of calls that may wait
  short_transfer,  // write and pread move half of what they are given
  kill,            // SIGKILL before the call; of a write, after half of it
  unsupported,     // `error` of the plan, of flock and of fsync of a directory
};
// Faults that may meet any save. A file system lacks an operation always, not once.
inline constexpr IoFault kIoFaults[] = {IoFault::io_error, IoFault::no_space, IoFault::interrupted,
                                        IoFault::short_transfer, IoFault::kill};
const char* io_fault_name(IoFault fault);

struct IoFaultPlan {
  IoFault fault = IoFault::io_error;
  int64_t at = 1;           // which of the calls that can have this fault, from 1 on
  bool persistent = false;  // all later ones too
  int error = 0;            // of `unsupported`
};

// While it lives, calls on files below `root` are counted and, with a plan, failed. One at a time.
class IoFaults {
 public:
  explicit IoFaults(const std::filesystem::path& root, std::optional<IoFaultPlan> plan = {},
                    DiskModel* model = nullptr);
  ~IoFaults();
  IoFaults(const IoFaults&) = delete;
  IoFaults& operator=(const IoFaults&) = delete;

  bool fired() const;
  // "fsync PATH" of the call that failed first, for messages.
  std::string first_failure() const;
  int64_t calls() const;  // of all kinds
};

}  // namespace trafo::testing
