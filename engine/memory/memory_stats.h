#pragma once

#include <cstdint>

namespace trafo {

struct MemoryStats {
  int64_t allocated_bytes = 0;  // handed out now
  int64_t peak_bytes = 0;       // most ever handed out since reset_peak
  int64_t reserved_bytes = 0;   // taken from the system, cached blocks included
  int64_t system_calls = 0;     // blocks taken from the system or given back; the CPU counts them
};

}  // namespace trafo
