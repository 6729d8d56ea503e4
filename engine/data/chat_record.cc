#include "engine/data/chat_record.h"

#include <algorithm>
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
  ChatReader(const Json& record, std::string label)
      : record_(record), label_(std::move(label)), fields_(record, kChatRecordOrigin, label_) {}

  Json::List messages(std::string_view member = "messages") const {
    return each_of(
        member, [&](const Json& given, size_t number) { return checked_message(given, number); });
  }

  // A list of messages, or a text as a message of `role`.
  Json::List messages_or_text(std::string_view member, std::string_view role) const {
    if (fields_.at(member).as<Json::List>())
      return ChatReader(record_, concat(label_, ": ", member)).messages(member);
    std::string text;
    fields_.take(member, text);
    return {message(role, text)};
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

  // The messages with what else the template of the record reads.
  std::string dumped(Json::List messages) const;

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

  const Json& record_;
  const std::string label_;
  const JsonFields fields_;
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

bool say_something(const Json::List& messages) {
  return std::ranges::any_of(messages, says_something);
}

std::string ChatReader::dumped(Json::List messages) const {
  Json chat;
  chat["messages"] = std::move(messages);
  if (fields_.has("tools")) chat["tools"] = fields_.at("tools");
  if (fields_.has("chat_template_kwargs")) {
    const Json& given = fields_.at("chat_template_kwargs");
    check(given.as<Json::Object>() != nullptr, "chat_template_kwargs is no object");
    for (const Json::Member& member : *given.as<Json::Object>())
      if (member.key != "messages") chat[member.key] = member.value;
  }
  return chat.dump();
}

// Moves the messages that both answers begin with to the prompt. At least one message of the
// shorter answer stays, also if it is the same in the other one.
Json::List take_common_prompt(Json::List& chosen, Json::List& rejected) {
  size_t common = 0;
  const size_t most = std::min(chosen.size(), rejected.size());
  while (common + 1 < most && chosen[common] == rejected[common]) ++common;
  const auto end = static_cast<std::ptrdiff_t>(common);
  Json::List prompt(chosen.begin(), chosen.begin() + end);
  chosen.erase(chosen.begin(), chosen.begin() + end);
  rejected.erase(rejected.begin(), rejected.begin() + end);
  return prompt;
}

}  // namespace

ChatAnswers answers_of(const Json& record, std::string_view label) {
  const ChatReader reader(record, std::string(label));
  Json::List chosen = reader.messages_or_text("chosen", "assistant"),
             rejected = reader.messages_or_text("rejected", "assistant");
  const bool lists = reader.fields().at("chosen").as<Json::List>() != nullptr;
  const Json* given = record.find("prompt");
  const bool implicit = given == nullptr || (lists && given->as<std::string>());
  if (implicit && (chosen.empty() || rejected.empty())) return {};
  Json::List prompt =
      implicit ? take_common_prompt(chosen, rejected) : reader.messages_or_text("prompt", "user");
  reader.check(!prompt.empty(), implicit
                                    ? "chosen and rejected begin with different messages: what "
                                      "both begin with is the prompt"
                                    : "prompt has no messages");
  ChatAnswers parts;
  if (say_something(prompt)) parts.prompt = reader.dumped(std::move(prompt));
  if (say_something(chosen)) parts.chosen = Json(std::move(chosen)).dump();
  if (say_something(rejected)) parts.rejected = Json(std::move(rejected)).dump();
  return parts;
}

ChatAnswers labelled_answer_of(const Json& record, std::string_view label) {
  const ChatReader reader(record, std::string(label));
  Json::List prompt = reader.messages_or_text("prompt", "user"),
             answer = reader.messages_or_text("completion", "assistant");
  bool desirable = false;
  reader.fields().take("label", desirable);
  reader.check(!prompt.empty(), "prompt has no messages");
  ChatAnswers parts;
  if (say_something(prompt)) parts.prompt = reader.dumped(std::move(prompt));
  if (say_something(answer))
    (desirable ? parts.chosen : parts.rejected) = Json(std::move(answer)).dump();
  return parts;
}

std::string conversation_of(const Json& record, std::string_view kind, std::string_view label) {
  const ChatReader reader(record, std::string(label));
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
  return reader.dumped(std::move(messages));
}

}  // namespace trafo
