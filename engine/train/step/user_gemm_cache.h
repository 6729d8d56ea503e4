// The measured GEMM kernels of a user, for all runs on one kind of card:
//
//   $XDG_CACHE_HOME/trafo/gemm-CARD-LIBRARY-ABI, else ~/.cache/trafo/gemm-CARD-LIBRARY-ABI
//
// The name has the card, its compute capability and multiprocessors, the version of cuBLASLt and
// the kernel ABI of the engine. The format is described in gemm_cache.h. Users may delete the file.
// With TRAFO_GEMM_CACHE=off in the environment it is neither read nor written.
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "engine/train/step/gemm_cache.h"

namespace trafo {

// No value if the cache is off or if the environment names no directory for it: XDG_CACHE_HOME is
// not absolute, and HOME is no absolute path of a directory.
std::optional<std::filesystem::path> user_gemm_cache_path(const GemmTuner& tuner);

// The choices of the file; none if there is no file. Errors: CORRUPT_FILE; UNSUPPORTED if it is for
// another device or library; IO if it cannot be read, is a symbolic link or belongs to another
// user.
std::vector<GemmChoice> read_user_gemm_cache(const GemmTuner& tuner,
                                             const std::filesystem::path& path);

// Adds choices to the file, and creates it if needed. They replace what the file has for the same
// GEMMs. A file that cannot be used is replaced. When the file has too many GEMMs, older ones are
// dropped.
inline constexpr size_t kMaxUserGemms = 8192;
void add_to_user_gemm_cache(const GemmTuner& tuner, const std::filesystem::path& path,
                            std::span<const GemmChoice> choices);

}  // namespace trafo
