// The kernels that were measured for a run's matrix products, as a file of its run directory: a run
// that goes on uses the same ones, and so computes the same bits.
//
//   trafo-gemm-cache 1 CRC32
//   DEVICE AND LIBRARY
//   a line for each product: 16 numbers that say which, 8 hexadecimal ones that name the kernel
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/backend/gemm_tuner.h"

namespace trafo {

inline constexpr const char* kGemmCacheFile = "gemm-cache";

std::string encode_gemm_cache(const GemmTuner& tuner);
// Hands the choices of `text` to the tuner. CORRUPT_FILE if it is damaged; UNSUPPORTED if they were
// measured on another kind of device or library. `path` is for the messages.
void decode_gemm_cache(GemmTuner& tuner, std::string_view text, const std::filesystem::path& path);

// The same with files. Without one the tuner has no choices afterwards; none is written where
// nothing was measured, or one says so already.
void read_gemm_cache(GemmTuner& tuner, const std::filesystem::path& path);
void write_gemm_cache(const GemmTuner& tuner, const std::filesystem::path& path);

}  // namespace trafo
