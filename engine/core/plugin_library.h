// Opens the parts of Trafo that are separate shared libraries, because they need software that not
// every machine has (CUDA, MPI).
#pragma once

#include <cstdint>
#include <string>

namespace trafo {

// Names of static storage.
struct PluginLibrary {
  const char* origin;    // of its errors
  const char* kind;      // in messages, such as "CUDA plugin"
  const char* file;      // such as "libtrafo_cuda.so"
  const char* variable;  // an environment variable that names another file, by its absolute path
  // Explains why a library that is there cannot be loaded; may be null.
  const char* (*hint)(const std::string& reasons);
};

struct OpenPlugin {
  void* library;  // of os::open_library()
  std::string path;
};

// If `variable` is set, only the file that it names is tried. Otherwise: the folder of libtrafo, or
// of the program if the engine is linked statically; then the loader's own folders. A program with
// more rights than its user ignores the variable. The library stays loaded for the life of the
// process: code that a driver or MPI calls at exit may not be unloaded. UNSUPPORTED names the files
// that were looked for.
OpenPlugin open_plugin(const PluginLibrary& plugin);

// The address of `symbol` in it. UNSUPPORTED: it has none.
void* plugin_symbol(const PluginLibrary& plugin, const OpenPlugin& open, const char* symbol);

// VERSION unless the library has the version of its table that this engine has, and belongs to the
// same release.
void require_same_release(const PluginLibrary& plugin, const OpenPlugin& open, int32_t version,
                          int32_t own_version, const char* release);

}  // namespace trafo
