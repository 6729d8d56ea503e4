#pragma once

#include <cstdint>

namespace trafo {

struct MemoryStats {
  int64_t allocated_bytes = 0;  // in use
  int64_t peak_bytes = 0;       // most in use since reset_peak
  int64_t reserved_bytes = 0;   // taken from the system, cached blocks included
  int64_t system_calls = 0;     // allocations from the system and returns to it; CPU only
};

}  // namespace trafo
