#include "engine/data/chat_record.h"

#include <utility>

#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/data/corpus.h"

namespace trafo {
namespace {

constexpr std::string_view kChatRecordOrigin = "corpus";

// The roles of ShareGPT's files, and the roles of the messages that they become.
constexpr std::pair<std::string_view, std::string_view> kShareGptRoles[] = {
    {"human", "user"},          {"user", "user"},        {"gpt", "assistant"},
    {"chatgpt", "assistant"},   {"bing", "assistant"},   {"bard", "assistant"},
    {"assistant", "assistant"}, {"model", "assistant"},  {"system", "system"},
    {"tool", "tool"},           {"observation", "tool"}, {"function_response", "tool"},
};

class ChatReader {
 public:
  ChatReader(const Json& record, std::string_view label)
      : fields_(record, kChatRecordOrigin, label), label_(label) {}

  Json::List messages() const {
    return each_of("messages", [&](const Json& given, size_t number) {
      return checked_message(given, number);
    });
  }

  Json::List conversations() const {
    return each_of("conversations", [&](const Json& given, size_t number) {
      if (given.find("role") != nullptr) return checked_message(given, number);
      const std::string& from = text_of(given, "from", number);
      for (const auto& [name, role] : kShareGptRoles)
        if (name == from) return message(role, text_of(given, "value", number));
      fail(ErrorCode::corrupt_file, kChatRecordOrigin, label_, ": message ", number, ": from is ",
           quote(from), ", and no role is known for it");
    });
  }

  Json::List turns(std::string_view question, std::string_view answer) const {
    std::string prompt, completion, input;
    fields_.take(question, prompt);
    fields_.take(answer, completion);
    if (question == "instruction" && fields_.has("input") &&
        !fields_.at("input").as<std::nullptr_t>())
      fields_.take("input", input);
    if (!input.empty()) prompt += "\n\n" + input;
    return {message("user", prompt), message("assistant", completion)};
  }

  const JsonFields& fields() const { return fields_; }

  template <class... Args>
  void check(bool condition, const Args&... why) const {
    require(condition, ErrorCode::corrupt_file, kChatRecordOrigin, label_, ": ", why...);
  }

 private:
  // A message that has a role; its content, if it has one, is a text, a list or null.
  Json checked_message(const Json& given, size_t number) const {
    check(given.as<Json::Object>() != nullptr, "message ", number, " is no object");
    text_of(given, "role", number);
    if (const Json* content = given.find("content"))
      check(
          content->as<std::string>() || content->as<Json::List>() || content->as<std::nullptr_t>(),
          "message ", number, ": content is no text");
    return given;
  }

  static Json message(std::string_view role, const std::string& content) {
    Json made;
    made["role"] = std::string(role);
    made["content"] = content;
    return made;
  }

  template <class Read>
  Json::List each_of(std::string_view name, Read&& read) const {
    const Json::List* given = fields_.at(name).as<Json::List>();
    check(given != nullptr, name, " is no list");
    Json::List messages;
    for (const Json& each : *given) messages.push_back(read(each, messages.size() + 1));
    return messages;
  }

  const std::string& text_of(const Json& message, std::string_view name, size_t number) const {
    const Json* found = message.find(name);
    check(found != nullptr && found->as<std::string>(), "message ", number, " has no text ",
          quote(name));
    return *found->as<std::string>();
  }

  const JsonFields fields_;
  const std::string_view label_;
};

// Whether a message says something: a content, a call of a tool, thoughts.
bool says_something(const Json& message) {
  for (const Json::Member& member : *message.as<Json::Object>()) {
    if (member.key == "role") continue;
    if (const std::string* text = member.value.as<std::string>()) {
      if (!is_blank(*text)) return true;
    } else if (!member.value.as<std::nullptr_t>()) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string conversation_of(const Json& record, std::string_view kind, std::string_view label) {
  const ChatReader reader(record, label);
  Json::List messages = kind == "messages"        ? reader.messages()
                        : kind == "conversations" ? reader.conversations()
                        : kind == "prompt"        ? reader.turns("prompt", "completion")
                                                  : reader.turns("instruction", "output");
  bool answers = false, others = false;
  for (const Json& message : messages) {
    if (!says_something(message)) continue;
    const bool assistant = *message.find("role")->as<std::string>() == "assistant";
    (assistant ? answers : others) = true;
  }
  if (!answers || !others) return {};
  Json chat;
  chat["messages"] = std::move(messages);
  if (reader.fields().has("tools")) chat["tools"] = reader.fields().at("tools");
  if (reader.fields().has("chat_template_kwargs")) {
    const Json& given = reader.fields().at("chat_template_kwargs");
    reader.check(given.as<Json::Object>() != nullptr, "chat_template_kwargs is no object");
    for (const Json::Member& member : *given.as<Json::Object>())
      if (member.key != "messages") chat[member.key] = member.value;
  }
  return chat.dump();
}

}  // namespace trafo
