// The GEMM autotuning cache: a file in the run directory with the measured kernels. A run that
// resumes uses the same kernels and so computes the same bits.
//
//   trafo-gemm-cache 1 CRC32
//   DEVICE AND LIBRARY
//   a line for each GEMM: 16 numbers for the GEMM, 8 hexadecimal numbers for the kernel
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/backend/gemm_tuner.h"

namespace trafo {

inline constexpr const char* kGemmCacheFile = "gemm-cache";

std::string encode_gemm_cache(const GemmTuner& tuner);
// Gives the choices in `text` to the tuner. CORRUPT_FILE if the text is damaged; UNSUPPORTED if the
// choices are for another kind of device or library. `path` is for messages.
void decode_gemm_cache(GemmTuner& tuner, std::string_view text, const std::filesystem::path& path);

// The same with files. Reading a missing file clears the tuner's choices. Nothing is written if
// there are no choices or if the file has them already.
void read_gemm_cache(GemmTuner& tuner, const std::filesystem::path& path);
void write_gemm_cache(const GemmTuner& tuner, const std::filesystem::path& path);

}  // namespace trafo
