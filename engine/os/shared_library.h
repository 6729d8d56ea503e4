// Shared libraries that are loaded while the program runs.
#pragma once

#include <filesystem>
#include <string>

#if defined(_WIN32)
#define TRAFO_LIBRARY_SUFFIX ".dll"
#elif defined(__APPLE__)
#define TRAFO_LIBRARY_SUFFIX ".dylib"
#else
#define TRAFO_LIBRARY_SUFFIX ".so"
#endif

namespace trafo::os {

// False where the build makes no plugins of Trafo (CUDA, MPI, TCP).
#if defined(_WIN32) || defined(__EMSCRIPTEN__) || defined(__APPLE__)
inline constexpr bool kHasPlugins = false;
#else
inline constexpr bool kHasPlugins = true;
#endif

// Loads a library for the life of the process: code that a driver or MPI calls at exit may not be
// unloaded. A bare name is looked up by the loader in the system's library folders. Null: `why` has
// the loader's reason, which begins with the file that it could not open.
void* open_library(const std::string& path, std::string& why);
void* find_symbol(void* library, const char* name) noexcept;  // null: it has none

// The folder of the shared library or program this code was linked into, as the system knows it;
// empty: unknown.
std::filesystem::path own_folder();

}  // namespace trafo::os
