// manifest.json: the files of a checkpoint with their sizes and checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/checkpoint_directory.h"

namespace trafo {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 1;

// {"crc32": seal over this text, "format", "version", "update", "files": {NAME: {"bytes",
// "crc32"}}}
std::string encode_manifest(int64_t update, std::span<const ManifestEntry> files);

// Accepts only the exact bytes that encode_manifest writes. Without an `update`, of any update.
// Errors: CORRUPT_FILE, VERSION. `label` names the file.
std::vector<ManifestEntry> parse_manifest(std::string_view text, std::optional<int64_t> update,
                                          const std::string& label);

// Whether a base name is [A-Za-z0-9_-][A-Za-z0-9._-]* with at most 100 bytes.
bool is_plain_name(std::string_view name);

}  // namespace trafo
