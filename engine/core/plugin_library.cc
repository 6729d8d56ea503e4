#include "engine/core/plugin_library.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/version.h"
#include "engine/os/names.h"
#include "engine/os/process.h"
#include "engine/os/shared_library.h"

namespace trafo {
namespace {

// Where the plugin may be. A bare name is looked up by the loader in the system's library folders
// and in the folders of LD_LIBRARY_PATH. A program with more rights than its user ignores both
// variables.
std::vector<std::string> plugin_candidates(const PluginLibrary& plugin) {
  if (const char* named = os::trusted_environment(plugin.variable); named && *named) {
    require(os::path_of(named).is_absolute(), ErrorCode::unsupported, plugin.origin,
            plugin.variable, " is '", named, "'; it must be an absolute path");
    return {named};
  }
  std::vector<std::string> paths;
  if (const auto folder = os::own_folder(); !folder.empty())
    paths.push_back((folder / plugin.file).string());
  paths.emplace_back(plugin.file);
  return paths;
}

// True if `path` could not be loaded although there is such a file: it, or a library that it needs,
// cannot be loaded. The loader names the file that it could not open first.
bool is_there(const std::string& path, std::string_view reason) {
  const std::filesystem::path file = os::path_of(path);
  if (!file.has_parent_path()) return !reason.starts_with(path + ":");
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

}  // namespace

OpenPlugin open_plugin(const PluginLibrary& plugin) {
  require(os::kHasPlugins, ErrorCode::unsupported, plugin.origin, "the ", plugin.kind,
          " does not exist for Windows");
  std::string missing, broken;
  for (const std::string& path : plugin_candidates(plugin)) {
    std::string reason;
    if (void* library = os::open_library(path, reason)) return {library, path};
    (is_there(path, reason) ? broken : missing) += concat("\n  ", path, ": ", reason);
  }
  if (broken.empty())
    fail(ErrorCode::unsupported, plugin.origin, "the ", plugin.kind, " ", plugin.file,
         " was not found; looked for:", missing);
  fail(ErrorCode::unsupported, plugin.origin, "the ", plugin.kind, " could not be loaded:", broken,
       plugin.hint ? plugin.hint(broken) : "");
}

void* plugin_symbol(const PluginLibrary& plugin, const OpenPlugin& open, const char* symbol) {
  void* found = os::find_symbol(open.library, symbol);
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
