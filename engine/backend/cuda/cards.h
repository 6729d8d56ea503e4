// Differences between the supported cards that decide the choice of a kernel. No CUDA header.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace trafo::cuda {

// CUDA C++ Programming Guide, "Compute Capabilities": a thread block can ask for so much shared
// memory (cudaDevAttrMaxSharedMemoryPerBlockOptin).
struct Card {
  int32_t major, minor;  // compute capability
  int64_t shared_memory_per_block;
};

inline constexpr Card kCards[] = {
    {8, 0, 166'912},   // A100, A30
    {8, 6, 101'376},   // RTX 30, A10, A40
    {8, 7, 166'912},   // Orin
    {8, 9, 101'376},   // RTX 40, L4, L40S
    {9, 0, 232'448},   // H100, H200
    {10, 0, 232'448},  // B200
    {12, 0, 101'376},  // RTX 50
};

// Every supported card has that much.
inline constexpr int64_t kLeastSharedMemory = [] {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Card& card : kCards) least = std::min(least, card.shared_memory_per_block);
  return least;
}();
// Of compute capability 9.0.
inline constexpr int64_t kHopperSharedMemory = 232'448;

}  // namespace trafo::cuda
