// A part of a tokenizer.json, with the path of keys to it for messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/check_text.h"

namespace trafo {

class JsonPart {
 public:
  JsonPart(std::string path, const Json& value) : path_(std::move(path)), value_(&value) {}

  const std::string& path() const { return path_; }
  const Json& value() const { return *value_; }
  bool is_null() const { return value_->as<std::nullptr_t>() != nullptr; }

  template <class... Why>
  [[noreturn]] void refuse(const Why&... why) const {
    fail(ErrorCode::unsupported, kTokenizerOrigin, path_, ": ", why...);
  }
  template <class... Why>
  void check(bool good, const Why&... why) const {
    require(good, ErrorCode::corrupt_file, kTokenizerOrigin, path_, ": ", why...);
  }

  // The value of a key of this object. None: it is missing or null.
  std::optional<JsonPart> find(std::string_view key) const {
    check(value_->as<Json::Object>() != nullptr, "it is not an object");
    const Json* found = value_->find(key);
    if (found == nullptr || found->as<std::nullptr_t>()) return std::nullopt;
    return JsonPart(path_ + ": " + std::string(key), *found);
  }
  JsonPart at(std::string_view key) const {
    std::optional<JsonPart> found = find(key);
    check(found.has_value(), "there is no ", key);
    return *std::move(found);
  }
  const std::string& text() const {
    const auto* text = value_->as<std::string>();
    check(text != nullptr, "it is not a text");
    return *text;
  }
  bool flag() const {
    const bool* flag = value_->as<bool>();
    check(flag != nullptr, "it is not true or false");
    return *flag;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const std::optional<JsonPart> found = find(key);
    return found ? found->flag() : otherwise;
  }
  int64_t integer(int64_t low, int64_t high) const {
    check(value_->is_integer() && value_->number() >= static_cast<double>(low) &&
              value_->number() <= static_cast<double>(high),
          "it is not an integer from ", low, " to ", high);
    return static_cast<int64_t>(value_->number());
  }
  std::vector<JsonPart> list() const {
    const auto* items = value_->as<Json::List>();
    check(items != nullptr, "it is not a list");
    std::vector<JsonPart> parts;
    for (size_t i = 0; i < items->size(); ++i)
      parts.emplace_back(path_ + "[" + std::to_string(i) + "]", (*items)[i]);
    return parts;
  }
  std::string type() const { return at("type").text(); }
  // This step or, of a Sequence, the steps in its list, whatever the depth.
  std::vector<JsonPart> steps(std::string_view list_key) const {
    if (type() != "Sequence") return {*this};
    std::vector<JsonPart> all;
    for (const JsonPart& step : at(list_key).list())
      for (JsonPart& inside : step.steps(list_key)) all.push_back(std::move(inside));
    return all;
  }

 private:
  std::string path_;
  const Json* value_;
};

}  // namespace trafo
