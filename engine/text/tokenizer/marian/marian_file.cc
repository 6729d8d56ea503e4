#include "engine/text/tokenizer/marian/marian_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/check_text.h"

namespace trafo {
namespace {

constexpr std::string_view kMarianBegin = R"({"tokenizer": "marian", "parts": )";
constexpr size_t kMarianHeaderBytes = 4096;

template <class... Args>
[[noreturn]] void damaged_marian(std::string_view label, const Args&... reason) {
  fail(ErrorCode::corrupt_file, kTokenizerOrigin, label, reason...);
}

// Reads {"subword": id, ...} without a JSON value, which would be many times as large.
class MarianIdsHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  MarianIdsHandler(const std::string& label, std::vector<std::string>& subwords)
      : label_(label), subwords_(subwords) {}

  bool start_object(std::size_t) override { return std::exchange(inside_, true) ? refuse() : true; }
  bool end_object() override { return true; }
  bool key(string_t& text) override {
    subword_ = std::move(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (!inside_ || id >= subwords_.size() || subword_.empty() ||
        subword_.size() > limits::kSubwordBytes)
      refuse_id();
    std::string& place = subwords_[id];
    if (!place.empty()) damaged_marian(label_, ": id ", id, " has two subwords");
    place = std::move(subword_);
    return true;
  }
  bool null() override { return refuse(); }
  bool boolean(bool) override { return refuse(); }
  bool number_integer(number_integer_t) override { return refuse(); }
  bool number_float(number_float_t, const string_t&) override { return refuse(); }
  bool string(string_t&) override { return refuse(); }
  bool binary(binary_t&) override { return refuse(); }
  bool start_array(std::size_t) override { return refuse(); }
  bool end_array() override { return refuse(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    damaged_marian(label_, " is not a JSON object, see byte ", position);
  }

 private:
  [[noreturn]] bool refuse() const {
    if (subword_.empty()) damaged_marian(label_, " is not a JSON object");
    refuse_id();
  }
  [[noreturn]] void refuse_id() const {
    damaged_marian(label_, ": the id of ", quote(subword_), " is not one of the ", subwords_.size(),
                   " of the model");
  }
  const std::string& label_;
  std::vector<std::string>& subwords_;
  std::string subword_;
  bool inside_ = false;
};

}  // namespace

bool is_marian_file(std::string_view file_bytes) {
  return file_bytes.starts_with(kMarianBegin);
}

bool has_separate_vocabs(std::string_view config, const std::string& label) {
  if (config.empty()) return false;
  const Json json = parse_json(config, kTokenizerOrigin, label, {.depth = 32});
  const Json* separate = json.find("separate_vocabs");
  if (separate == nullptr || separate->as<std::nullptr_t>()) return false;
  const bool* flag = separate->as<bool>();
  if (flag == nullptr) damaged_marian(label, ": separate_vocabs is neither true nor false");
  return *flag;
}

std::string serialize_marian(const MarianParts& parts) {
  Json header, bytes = Json::List{};
  header["tokens"] = parts.tokens;
  header["start"] = parts.start;
  header["ends"] = Json(parts.ends);
  std::vector<uint64_t> sizes;
  for (const std::string_view file : parts.files) sizes.push_back(file.size());
  if (parts.source_tokens > 0)
    header["source_tokens"] = parts.source_tokens;
  else
    sizes.pop_back();
  header["bytes"] = Json(sizes);
  if (!parts.languages.empty()) header["languages"] = parts.languages;
  std::string all = concat(kMarianBegin, header.dump(), "}\n");
  for (const std::string_view file : parts.files) all += file;
  return all;
}

MarianParts parse_marian(std::string_view file_bytes, std::string_view label) {
  const size_t line = file_bytes.substr(0, kMarianHeaderBytes).find('\n');
  if (!is_marian_file(file_bytes) || line == std::string_view::npos)
    damaged_marian(label, ": it does not begin as a marian vocabulary");
  const Json header = parse_json(file_bytes.substr(0, line), kTokenizerOrigin, label);
  const JsonFields fields(JsonFields(header, kTokenizerOrigin, label).at("parts"), kTokenizerOrigin,
                          label);
  MarianParts parts;
  std::vector<int64_t> ends, sizes;
  fields.take("tokens", parts.tokens);
  fields.take("start", parts.start);
  fields.take("ends", ends);
  fields.take("bytes", sizes);
  if (fields.has("languages")) fields.take("languages", parts.languages);
  const bool is_separate = fields.has("source_tokens");
  if (is_separate) fields.take("source_tokens", parts.source_tokens);
  const auto is_id = [&](int64_t id) { return id >= 0 && id < parts.tokens; };
  const auto is_size = [](int64_t size) { return size >= 1 && size <= limits::kVocabulary; };
  if (!is_size(parts.tokens) || !is_id(parts.start) || ends.empty() ||
      (is_separate && (!is_size(parts.source_tokens) || !parts.languages.empty())))
    damaged_marian(label, ": its numbers are no vocabulary's");
  for (const int64_t end : ends) {
    if (!is_id(end)) damaged_marian(label, ": its end ", end, " is no id");
    parts.ends.push_back(static_cast<int32_t>(end));
  }
  std::string_view left = file_bytes.substr(line + 1);
  const size_t files = is_separate ? kMarianFiles : kMarianTargetIds;
  if (sizes.size() != files) damaged_marian(label, ": it has not ", files, " files");
  for (size_t i = 0; i < files; ++i) {
    if (sizes[i] < 0 || static_cast<uint64_t>(sizes[i]) > left.size())
      damaged_marian(label, ": ", kMarianFileNames[i], " would have ", sizes[i], " bytes, ",
                     left.size(), " are left");
    parts.files[i] = left.substr(0, static_cast<size_t>(sizes[i]));
    left.remove_prefix(parts.files[i].size());
  }
  if (!left.empty()) damaged_marian(label, ": ", left.size(), " bytes follow its files");
  return parts;
}

std::vector<std::string> language_tokens(std::string_view codes) {
  std::vector<std::string> tokens;
  while (!codes.empty()) {
    const size_t end = std::min(codes.find(' '), codes.size());
    tokens.push_back(concat("__", codes.substr(0, end), "__"));
    codes.remove_prefix(std::min(end + 1, codes.size()));
  }
  return tokens;
}

std::vector<std::string> read_marian_ids(std::string_view json, int64_t tokens,
                                         const std::string& label) {
  // An entry has at least six bytes. The model may have some embeddings without a subword.
  constexpr uint64_t kLeastEntry = 6, kSpareRows = 65536;
  if (static_cast<uint64_t>(tokens) > json.size() / kLeastEntry + kSpareRows)
    damaged_marian(label, " is too short for the ", tokens, " tokens of the model");
  if (json.find('\0') != std::string_view::npos) damaged_marian(label, " has a NUL byte");
  std::vector<std::string> subwords(static_cast<size_t>(tokens));
  MarianIdsHandler handler(label, subwords);
  nlohmann::json::sax_parse(json, &handler);
  std::unordered_set<std::string_view> known;
  for (const std::string& subword : subwords)
    if (!subword.empty() && !known.insert(subword).second)
      damaged_marian(label, ": the subword ", quote(subword), " has two ids");
  return subwords;
}

}  // namespace trafo
