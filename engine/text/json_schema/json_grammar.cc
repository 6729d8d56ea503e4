#include "engine/text/json_schema/json_grammar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/argument_error.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/text/json_schema/json_rules.h"

namespace trafo {
namespace {

constexpr int kSchemaNesting = 64;
constexpr std::string_view kAnnotations[] = {"title",    "description", "default", "examples",
                                             "readOnly", "writeOnly",   "$schema", "deprecated",
                                             "$comment", "$id",         "$defs",   "definitions"};
constexpr std::string_view kJsonTypes[] = {"object",  "array",   "string", "number",
                                           "integer", "boolean", "null"};

template <class... Reason>
[[noreturn]] void refuse_schema(const std::string& path, const Reason&... reason) {
  refuse_argument(kJsonSchemaOrigin, "json_schema", ": ", path, reason...);
}

// The token of a JSON pointer (RFC 6901) for a key.
std::string pointer_token(std::string_view key) {
  std::string token;
  for (const char c : key) {
    if (c == '~')
      token += "~0";
    else if (c == '/')
      token += "~1";
    else
      token += c;
  }
  return token;
}

std::string key_of_token(std::string_view token) {
  std::string key;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool escaped =
        token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
    key += !escaped ? token[i] : token[i + 1] == '0' ? '~' : '/';
    i += escaped ? 1 : 0;
  }
  return key;
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "object") return value.as<Json::Object>() != nullptr;
  if (type == "array") return value.as<Json::List>() != nullptr;
  if (type == "string") return value.as<std::string>() != nullptr;
  if (type == "boolean") return value.as<bool>() != nullptr;
  if (type == "null") return value.as<std::nullptr_t>() != nullptr;
  if (type == "integer") return value.is_integer();
  return value.is_number();
}

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& root)
      : root_(root), grammar_(std::make_shared<ByteGrammar>()), rules_(*grammar_) {}

  std::shared_ptr<const ByteGrammar> compile() {
    const int32_t start = grammar_->new_rule();
    const int32_t value = grammar_->call(reference("#", "#"), grammar_->end());
    grammar_->set_rule(start, grammar_->optional(grammar_->literal(" ", value), value));
    while (!open_.empty()) {
      const Open next = open_.front();
      open_.pop_front();
      grammar_->set_rule(next.rule, schema(*next.schema, next.path, grammar_->end()));
    }
    check_size("#");
    grammar_->finish();
    const int32_t looping = grammar_->left_recursive_rule();
    for (const auto& [path, rule] : references_) {
      if (rule == looping) refuse_schema(path, " refers to itself alone");
      if (grammar_->node(grammar_->start(rule)).height == ByteGrammar::kNever)
        refuse_schema(path, " allows no value of less than ", ByteGrammar::kMostDepth, " levels");
    }
    grammar_->set_root(start);
    return grammar_;
  }

 private:
  struct Open {
    int32_t rule;
    const Json* schema;
    std::string path;
  };
  using Values = std::vector<Json>;

  // The rule of the schema at a JSON pointer inside the root.
  int32_t reference(const std::string& pointer, const std::string& from) {
    const auto [known, is_new] = references_.try_emplace(pointer, 0);
    if (!is_new) return known->second;
    const Json* at = &root_;
    std::string_view left = std::string_view(pointer).substr(1);
    while (!left.empty()) {
      const size_t end = std::min(left.find('/', 1), left.size());
      at = left[0] == '/' ? at->find(key_of_token(left.substr(1, end - 1))) : nullptr;
      if (at == nullptr) {
        references_.erase(known);
        refuse_schema(from, ": there is no ", quote(pointer), " in the schema");
      }
      left.remove_prefix(end);
    }
    known->second = grammar_->new_rule();
    open_.push_back({known->second, at, pointer});
    return known->second;
  }

  void check_size(const std::string& path) const {
    if (grammar_->size() > ByteGrammar::kMostNodes)
      refuse_schema(path, ": the schema is too large");
  }

  // Refuses keys that are neither annotations nor in `known`.
  void check_keys(const Json::Object& object, const std::string& path,
                  std::initializer_list<std::string_view> known) const {
    for (const Json::Member& member : object)
      if (std::ranges::find(kAnnotations, member.key) == std::end(kAnnotations) &&
          std::ranges::find(known, member.key) == known.end())
        refuse_schema(path + "/" + pointer_token(member.key), ": this key is not supported there");
  }

  int32_t schema(const Json& json, const std::string& path, int32_t next) {
    check_size(path);
    if (const bool* all = json.as<bool>()) {
      if (!*all) refuse_schema(path, " is false, which allows no value");
      return grammar_->call(rules_.value, next);
    }
    const auto* object = json.as<Json::Object>();
    if (object == nullptr) refuse_schema(path, " is neither an object nor true");
    if (const Json* ref = json.find("$ref")) {
      check_keys(*object, path, {"$ref"});
      const auto* pointer = ref->as<std::string>();
      if (pointer == nullptr || !pointer->starts_with('#'))
        refuse_schema(path, "/$ref: only references inside the schema are supported, \"#/...\"");
      return grammar_->call(reference(*pointer, path + "/$ref"), next);
    }
    if (const Json* choices = json.find("anyOf")) {
      check_keys(*object, path, {"anyOf"});
      return any_of(*choices, path + "/anyOf", next);
    }
    const std::vector<std::string> types = types_of(json, path);
    if (json.find("enum") || json.find("const")) {
      check_keys(*object, path, {"enum", "const", "type"});
      return constants(json, types, path, next);
    }
    check_keys(*object, path, {"type", "properties", "required", "additionalProperties", "items"});
    check_owners(json, types, path);
    if (types.empty()) return grammar_->call(rules_.value, next);
    std::vector<int32_t> branches;
    for (const std::string& type : types) branches.push_back(of_type(json, type, path, next));
    return branches.size() == 1 ? branches[0] : grammar_->split(std::move(branches));
  }

  int32_t any_of(const Json& choices, const std::string& path, int32_t next) {
    const auto* list = choices.as<Json::List>();
    if (list == nullptr || list->empty()) refuse_schema(path, " is no list of schemas");
    std::vector<int32_t> branches;
    for (size_t i = 0; i < list->size(); ++i)
      branches.push_back(schema((*list)[i], path + "/" + std::to_string(i), next));
    return grammar_->split(std::move(branches));
  }

  // Without `type`, those that other keys are for; empty: all.
  std::vector<std::string> types_of(const Json& json, const std::string& path) const {
    std::vector<std::string> types;
    const Json* given = json.find("type");
    if (given == nullptr) {
      for (const char* key : {"properties", "required", "additionalProperties"})
        if (json.find(key)) return {"object"};
      if (json.find("items")) return {"array"};
      return {};
    }
    const Json::List one{*given};
    const auto* list = given->as<Json::List>();
    for (const Json& type : list ? *list : one) {
      const auto* name = type.as<std::string>();
      if (name == nullptr || std::ranges::find(kJsonTypes, *name) == std::end(kJsonTypes) ||
          std::ranges::find(types, *name) != types.end())
        refuse_schema(path, "/type: ", type.dump(), " is no type, or is there twice");
      types.push_back(*name);
    }
    if (types.empty()) refuse_schema(path, "/type is an empty list");
    // Every integer is a number: two ways to one text would be one too many.
    if (std::ranges::find(types, "number") != types.end()) std::erase(types, "integer");
    return types;
  }

  static void check_owners(const Json& json, const std::vector<std::string>& types,
                           const std::string& path) {
    const auto owned = [&](const char* key, const char* type) {
      if (json.find(key) && std::ranges::find(types, type) == types.end())
        refuse_schema(path, "/", key, " is for the type ", type);
    };
    for (const char* key : {"properties", "required", "additionalProperties"}) owned(key, "object");
    owned("items", "array");
  }

  int32_t constants(const Json& json, const std::vector<std::string>& types,
                    const std::string& path, int32_t next) {
    const Json* constant = json.find("const");
    const Json* choices = json.find("enum");
    if (constant && choices) refuse_schema(path, " has enum and const");
    const Json::List one = constant ? Json::List{*constant} : Json::List{};
    const auto* list = constant ? &one : choices->as<Json::List>();
    if (list == nullptr || list->empty()) refuse_schema(path, "/enum is no list of values");
    std::set<std::string> texts;
    for (const Json& value : *list) {
      if (!types.empty() && std::ranges::none_of(types, [&](const std::string& type) {
            return is_of_type(value, type);
          }))
        refuse_schema(path, ": ", value.dump(), " does not have the type of the schema");
      texts.insert(value.dump());
    }
    const std::vector<std::string> sorted(texts.begin(), texts.end());
    return grammar_->one_of(sorted, next);
  }

  int32_t of_type(const Json& json, const std::string& type, const std::string& path,
                  int32_t next) {
    if (type == "object") return object_of(json, path, next);
    if (type == "array") {
      const Json* items = json.find("items");
      const auto item = [&](int32_t after) {
        return items ? schema(*items, path + "/items", after) : grammar_->call(rules_.value, after);
      };
      return rules_.array(item, next);
    }
    if (type == "string") return grammar_->call(rules_.string, next);
    if (type == "number") return grammar_->call(rules_.number, next);
    if (type == "integer") return grammar_->call(rules_.integer, next);
    if (type == "boolean")
      return grammar_->split({grammar_->literal("true", next), grammar_->literal("false", next)});
    return grammar_->literal("null", next);
  }

  int32_t object_of(const Json& json, const std::string& path, int32_t next) {
    const Json* properties = json.find("properties");
    const Json* others = json.find("additionalProperties");
    const bool* flag = others ? others->as<bool>() : nullptr;
    const bool is_closed = flag && !*flag;
    const Json::Object none;
    const Json::Object* members = &none;
    if (properties && (members = properties->as<Json::Object>()) == nullptr)
      refuse_schema(path, "/properties is no object");
    const std::set<std::string> required = required_of(json, *members, path);
    if (members->empty() && !is_closed) {
      const auto value = [&](int32_t after) {
        return others ? schema(*others, path + "/additionalProperties", after)
                      : grammar_->call(rules_.value, after);
      };
      return rules_.free_object(value, next);
    }
    if (others && !is_closed)
      refuse_schema(path, "/additionalProperties: beside properties, only false is supported");
    return properties_of(*members, required, path, next);
  }

  static std::set<std::string> required_of(const Json& json, const Json::Object& members,
                                           const std::string& path) {
    std::set<std::string> names;
    const Json* required = json.find("required");
    if (required == nullptr) return names;
    const auto* list = required->as<Json::List>();
    if (list == nullptr) refuse_schema(path, "/required is no list");
    for (const Json& name : *list) {
      const auto* text = name.as<std::string>();
      if (text == nullptr || std::ranges::find(members, *text, &Json::Member::key) == members.end())
        refuse_schema(path, "/required: ", name.dump(), " is none of the properties");
      names.insert(*text);
    }
    return names;
  }

  // From the last property to the first: the node after property i - 1, and the node where
  // property i is the first of the object.
  int32_t properties_of(const Json::Object& members, const std::set<std::string>& required,
                        const std::string& path, int32_t next) {
    const int32_t close = grammar_->literal("}", next);
    int32_t later = rules_.space(close), first = close;
    for (size_t i = members.size(); i-- > 0;) {
      const auto& [key, value] = members[i];
      const int32_t member = grammar_->literal(
          Json(key).dump() + ":",
          rules_.space(schema(value, path + "/properties/" + pointer_token(key), later)));
      const int32_t further = grammar_->literal(",", rules_.space(member));
      if (required.contains(key)) {
        later = further;
        first = member;
      } else {
        later = grammar_->split({further, later});
        first = grammar_->split({member, first});
      }
    }
    return grammar_->literal("{", rules_.space(first));
  }

  const Json& root_;
  std::shared_ptr<ByteGrammar> grammar_;
  JsonRules rules_;
  std::map<std::string, int32_t> references_;  // rules of pointers
  std::deque<Open> open_;                      // rules without nodes yet
};

}  // namespace

std::shared_ptr<const ByteGrammar> json_grammar(std::string_view schema) {
  Json root;
  try {
    root = parse_json(schema, kJsonSchemaOrigin, "the schema", {.depth = kSchemaNesting});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_file) throw;
    refuse_argument(kJsonSchemaOrigin, "json_schema", " is no JSON: ", error.message());
  }
  return SchemaCompiler(root).compile();
}

}  // namespace trafo
