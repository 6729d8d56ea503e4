#include "engine/core/plugin_library.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/system_file.h"
#include "engine/core/version.h"

namespace trafo {
namespace {

// The folder of the shared library or program this code was linked into, as the kernel knows it.
// The loader's own answer will not do: for a program it is argv[0], which may be a bare name, and a
// bare name would be looked up in the current directory, where anybody may have put a library.
std::filesystem::path own_folder() {
  const auto here = reinterpret_cast<uintptr_t>(&own_folder);
  const std::string maps = read_system_file("/proc/self/maps");
  for (size_t at = 0; at < maps.size();) {  // "BEGIN-END rwxp OFFSET DEVICE INODE PATH"
    const std::string line = maps.substr(at, maps.find('\n', at) - at);
    at += line.size() + 1;
    uintptr_t begin = 0, end = 0;
    const char* const stop = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), stop, begin, 16);
    if (dash.ptr == stop) continue;
    std::from_chars(dash.ptr + 1, stop, end, 16);
    if (here < begin || here >= end) continue;
    const size_t path = line.find('/');
    if (path == std::string::npos) break;
    std::error_code ignored;
    const auto file = std::filesystem::canonical(line.substr(path), ignored);
    return ignored ? std::filesystem::path() : file.parent_path();
  }
  return {};
}

// Where the plugin may be. A bare name is looked up by the loader in the system's library folders
// and in the folders of LD_LIBRARY_PATH. A program with more rights than its user ignores both
// variables.
std::vector<std::string> plugin_candidates(const PluginLibrary& plugin) {
  if (const char* named = secure_getenv(plugin.variable); named && *named) {
    require(named[0] == '/', ErrorCode::unsupported, plugin.origin, plugin.variable, " is '", named,
            "'; it must be an absolute path");
    return {named};
  }
  std::vector<std::string> paths;
  if (const auto folder = own_folder(); !folder.empty())
    paths.push_back((folder / plugin.file).string());
  paths.emplace_back(plugin.file);
  return paths;
}

// True if dlopen of `path` failed although there is such a file: it, or a library that it needs,
// cannot be loaded. The loader names the file that it could not open first.
bool is_there(const std::string& path, std::string_view reason) {
  if (path.find('/') == std::string::npos) return !reason.starts_with(path + ":");
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

OpenPlugin open_plugin(const PluginLibrary& plugin) {
  std::string missing, broken;
  for (const std::string& path : plugin_candidates(plugin)) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library) return {library, path};
    const char* said = dlerror();
    const std::string reason = said ? said : "the loader gives no reason";
    (is_there(path, reason) ? broken : missing) += concat("\n  ", path, ": ", reason);
  }
  if (broken.empty())
    fail(ErrorCode::unsupported, plugin.origin, "the ", plugin.kind, " ", plugin.file,
         " was not found; looked for:", missing);
  fail(ErrorCode::unsupported, plugin.origin, "the ", plugin.kind, " could not be loaded:", broken,
       plugin.hint ? plugin.hint(broken) : "");
}

void* plugin_symbol(const PluginLibrary& plugin, const OpenPlugin& open, const char* symbol) {
  void* found = dlsym(open.library, symbol);
  require(found != nullptr, ErrorCode::unsupported, plugin.origin, open.path, " is not a Trafo ",
          plugin.kind, ": it has no symbol ", symbol);
  return found;
}

void require_same_release(const PluginLibrary& plugin, const OpenPlugin& open, int32_t version,
                          int32_t own_version, const char* release) {
  require(version == own_version, ErrorCode::version, plugin.origin, open.path,
          " has plugin version ", version, ", this engine needs ", own_version,
          "; install both from one release");
  require(std::string_view(release) == kVersion, ErrorCode::version, plugin.origin, open.path,
          " belongs to release ", release, ", this engine is ", kVersion,
          "; install both from one release");
}

}  // namespace trafo
