#include "engine/io/manifest.h"

#include <algorithm>

#include "engine/core/strings/json.h"
#include "engine/io/checksum.h"

namespace trafo {
namespace {

constexpr std::string_view kManifestOrigin = "checkpoint";
constexpr std::string_view kManifestFormat = "trafo-checkpoint";
constexpr std::string_view kManifestStart = R"({"crc32":")";

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
  std::string text(kManifestStart);
  text += concat("00000000\",\"format\":\"", kManifestFormat, "\",\"version\":", kManifestVersion,
                 ",\"update\":", update, ",\n\"files\":{");
  for (size_t i = 0; i < files.size(); ++i)
    text += concat(i == 0 ? "\n\"" : ",\n\"", files[i].name, "\":{\"bytes\":", files[i].bytes,
                   ",\"crc32\":\"", files[i].crc32, "\"}");
  text += "\n}}\n";
  seal_text(text, kManifestStart.size());
  return text;
}

std::vector<ManifestEntry> parse_manifest(std::string_view text, std::optional<int64_t> update,
                                          const std::string& label) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kManifestOrigin, label, ": ", message...);
  };
  check(text.starts_with(kManifestStart) && is_sealed(text, kManifestStart.size()),
        "the manifest is damaged (or was edited): its checksum does not fit");
  std::vector<ManifestEntry> files;
  int64_t version = 0;
  const Json json = parse_json(text, kManifestOrigin, label, {.members = limits::kCheckpointFiles});
  const JsonFields in(json, kManifestOrigin, label);
  std::string format;
  in.take("format", format);
  check(format == kManifestFormat, "this is no checkpoint manifest");
  in.take("version", version);
  require(version <= kManifestVersion, ErrorCode::version, kManifestOrigin, label,
          " was written in format ", version, " by a newer version; this one reads format ",
          kManifestVersion);
  if (!update) in.take("update", update.emplace());
  for (const auto& [name, value] : JsonFields(in.at("files"), kManifestOrigin, label).members()) {
    check(is_plain_name(name) && name != kManifestName, "a file has a name that is not allowed");
    const JsonFields entry(value, kManifestOrigin, label);
    auto& file = files.emplace_back();
    file.name = name;
    entry.take("bytes", file.bytes);
    entry.take("crc32", file.crc32);
  }
  // One comparison refuses duplicate keys, unknown fields, other number formats and the manifest of
  // another checkpoint.
  check(encode_manifest(*update, files) == text, "the manifest is not the one of update ", *update);
  return files;
}

}  // namespace trafo
