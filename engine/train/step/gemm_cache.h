// The file format of GEMM autotuning: measured kernels of one kind of device and library. A run
// keeps its kernels in RUN/gemm-cache and in checkpoint streams; user_gemm_cache.h has the caches
// of a user.
//
//   trafo-gemm-cache 1 CRC32
//   DEVICE AND LIBRARY
//   a line for each GEMM: 16 numbers for the GEMM, 8 hexadecimal numbers for the kernel
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/gemm_tuner.h"

namespace trafo {

inline constexpr const char* kGemmCacheFile = "gemm-cache";
inline constexpr uint64_t kMaxGemmCacheBytes = uint64_t{64} << 20;

struct GemmCache {
  std::string library;  // GemmTuner::library()
  std::vector<GemmChoice> choices;
};

std::string encode_gemm_cache(const GemmCache& cache);
// CORRUPT_FILE if the text is damaged. `path` is for messages.
GemmCache decode_gemm_cache(std::string_view text, const std::filesystem::path& path);

// The same with files. Reading a missing file gives no value; a symbolic link is an error (IO).
// Writing no choices removes the file. A file that has the choices already is not written again.
std::optional<GemmCache> read_gemm_cache(const std::filesystem::path& path);
void write_gemm_cache(const GemmCache& cache, const std::filesystem::path& path);

}  // namespace trafo
