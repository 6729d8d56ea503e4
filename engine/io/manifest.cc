#include "engine/io/manifest.h"

#include <algorithm>

#include "engine/core/json.h"
#include "engine/core/library_memory.h"
#include "engine/io/checksum.h"

namespace trafo {
namespace {

constexpr std::string_view kOrigin = "checkpoint";
constexpr std::string_view kFormat = "trafo-checkpoint";
constexpr std::string_view kStart = R"({"crc32":")";

}  // namespace

bool is_plain_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 100 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

std::string encode_manifest(int64_t update, std::span<const ManifestEntry> files) {
  std::string text(kStart);
  text += concat("00000000\",\"format\":\"", kFormat, "\",\"version\":", kManifestVersion,
                 ",\"update\":", update, ",\n\"files\":{");
  for (size_t i = 0; i < files.size(); ++i)
    text += concat(i == 0 ? "\n\"" : ",\n\"", files[i].name, "\":{\"bytes\":", files[i].bytes,
                   ",\"crc32\":\"", files[i].crc32, "\"}");
  text += "\n}}\n";
  seal_text(text, kStart.size());
  return text;
}

std::vector<ManifestEntry> parse_manifest(std::string_view text, int64_t update,
                                          const std::string& label) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kOrigin, label, ": ", message...);
  };
  check(text.starts_with(kStart) && is_sealed(text, kStart.size()),
        "the manifest is damaged (or was edited): its checksum does not fit");
  std::vector<ManifestEntry> files;
  int64_t version = 0;
  const LibraryMemory memory(LibraryMemory::json(text.size()));
  try {
    const auto json = parse_json<nlohmann::ordered_json>(text, kOrigin, label,
                                                         {.members = limits::kCheckpointFiles});
    check(json.at("format").get<std::string>() == kFormat, "this is no checkpoint manifest");
    version = json.at("version").get<int64_t>();
    require(version <= kManifestVersion, ErrorCode::version, kOrigin, label,
            " was written in format ", version, " by a newer version; this one reads format ",
            kManifestVersion);
    for (const auto& [name, entry] : json.at("files").items()) {
      check(is_plain_name(name) && name != kManifestName, "a file has a name that is not allowed");
      files.push_back(
          {name, entry.at("bytes").get<uint64_t>(), entry.at("crc32").get<std::string>()});
    }
  } catch (const nlohmann::json::exception&) {
    check(false, "the manifest lacks a field or has one of the wrong type");
  }
  // One comparison refuses duplicate keys, unknown fields, other number formats and the manifest of
  // another checkpoint.
  check(encode_manifest(update, files) == text, "the manifest is not the one of update ", update);
  return files;
}

}  // namespace trafo
