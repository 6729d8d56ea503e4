#include "engine/train/step/user_gemm_cache.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "engine/core/status.h"
#include "engine/io/atomic_file.h"
#include "engine/os/process.h"

namespace trafo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUserGemmCacheOrigin = "GEMM cache";

// Empty if the variable is not set or is no absolute path.
fs::path absolute_path_of(const char* variable) {
  const char* value = os::trusted_environment(variable);
  const fs::path path = value ? value : "";
  return path.is_absolute() ? path : fs::path();
}

// "NVIDIA H200, sm_90" -> "nvidia-h200-sm-90"
std::string file_name_of(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_kept = is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_kept)
      name += static_cast<char>(is_upper ? c - 'A' + 'a' : c);
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return name.substr(0, 200);
}

using Gemm = std::array<int64_t, std::size(GemmChoice{}.gemm)>;

Gemm gemm_of(const GemmChoice& choice) {
  Gemm gemm;
  std::copy(std::begin(choice.gemm), std::end(choice.gemm), gemm.begin());
  return gemm;
}

}  // namespace

std::optional<fs::path> user_gemm_cache_path(const GemmTuner& tuner) {
  if (const char* choice = os::trusted_environment("TRAFO_GEMM_CACHE");
      choice && std::string_view(choice) == "off")
    return std::nullopt;
  fs::path folder = absolute_path_of("XDG_CACHE_HOME");
  if (folder.empty()) {
    const fs::path home = absolute_path_of("HOME");
    std::error_code ignored;
    if (home.empty() || !fs::is_directory(home, ignored)) return std::nullopt;
    folder = home / ".cache";
  }
  return folder / "trafo" /
         ("gemm-" + file_name_of(tuner.library()) + "-" + file_name_of(tuner.kernel_abi()));
}

std::vector<GemmChoice> read_user_gemm_cache(const GemmTuner& tuner, const fs::path& path) {
  Descriptor file;
  try {
    refuse_linked_directory(path.parent_path());
    file = open_file_for_reading(path, FollowLinks::no);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return {};
    throw;
  }
  os::FileStatus status;
  if (os::file_status(file.fd(), status) != 0)
    fail_errno(errno, kUserGemmCacheOrigin, "cannot examine", path);
  require(status.is_own, ErrorCode::io, kUserGemmCacheOrigin, path.string(),
          " belongs to another user");
  const uint64_t size = file.size();
  require(size <= kMaxGemmCacheBytes, ErrorCode::io, kUserGemmCacheOrigin, path.string(), " has ",
          size, " bytes, more than the limit of ", kMaxGemmCacheBytes);
  std::string text(static_cast<size_t>(size), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  GemmCache cache = decode_gemm_cache(text, path);
  require(cache.library == tuner.library(), ErrorCode::unsupported, kUserGemmCacheOrigin,
          path.string(), " is for another device or library");
  return std::move(cache.choices);
}

void add_to_user_gemm_cache(const GemmTuner& tuner, const fs::path& path,
                            std::span<const GemmChoice> choices) {
  ensure_directory(path.parent_path().parent_path());
  ensure_own_directory(path.parent_path());
  std::vector<GemmChoice> known;
  try {
    known = read_user_gemm_cache(tuner, path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
  }
  std::set<Gemm> gemms;
  for (const GemmChoice& choice : choices) gemms.insert(gemm_of(choice));
  std::erase_if(known, [&](const GemmChoice& choice) { return gemms.contains(gemm_of(choice)); });
  known.insert(known.end(), choices.begin(), choices.end());
  if (known.size() > kMaxUserGemms)
    known.erase(known.begin(), known.end() - static_cast<std::ptrdiff_t>(kMaxUserGemms));
  write_file_atomically(path, encode_gemm_cache({tuner.library(), known}));
}

}  // namespace trafo
