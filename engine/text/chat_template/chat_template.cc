#include "engine/text/chat_template/chat_template.h"

#include <algorithm>

#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"

namespace trafo {
namespace {

constexpr std::string_view kChatOrigin = "chat_template";
constexpr std::string_view kDay = "strftime_now";                // a member of conversations
constexpr std::string_view kVariables = "chat_template_kwargs";  // another, as in rows of datasets
constexpr std::string_view kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

// The end of an answer is learned, the line feed after it is not.
constexpr std::string_view kChatMl =
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' }}\n"
    "{%- if message['role'] == 'assistant' %}\n"
    "{%- generation %}\n"
    "{{- message['content'] + '<|im_end|>' }}\n"
    "{%- endgeneration %}\n"
    "{%- else %}\n"
    "{{- message['content'] + '<|im_end|>' }}\n"
    "{%- endif %}\n"
    "{{- '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n";

const CompanionFile* find_companion(const Tokenizer& tokenizer, std::string_view name) {
  for (const CompanionFile& file : tokenizer.companions())
    if (file.name == name) return &file;
  return nullptr;
}

Json read_config(std::string_view config, std::string_view label) {
  JsonBounds bounds;
  bounds.bytes = kCompanionBytes;
  return parse_json(config, kChatOrigin, label, bounds);
}

// The text of a member, or of its member "content"; null if it has none.
const std::string* token_text(const Json* member) {
  if (member == nullptr) return nullptr;
  if (const Json* content = member->find("content")) member = content;
  return member->as<std::string>();
}

std::vector<std::pair<std::string, std::string>> token_variables(const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::string>> tokens;
  if (const CompanionFile* file = find_companion(tokenizer, kTokenizerConfigFile)) {
    const Json config = read_config(file->content, file->name);
    for (const std::string_view name : kTokenNames)
      if (const std::string* text = token_text(config.find(name))) tokens.emplace_back(name, *text);
    return tokens;
  }
  const SpecialTokens special = tokenizer.special_tokens();
  const std::pair<const char*, int32_t> known[] = {{"bos_token", special.bos},
                                                   {"eos_token", special.eos},
                                                   {"unk_token", special.unk},
                                                   {"pad_token", special.pad}};
  for (const auto& [name, id] : known)
    if (id >= 0) tokens.emplace_back(name, tokenizer.token(id));
  return tokens;
}

const Json::List& messages_of(const Json& conversation) {
  const Json* found = conversation.find("messages");
  const Json::List* messages = found ? found->as<Json::List>() : nullptr;
  require(messages != nullptr && !messages->empty(), ErrorCode::invalid_argument, kChatOrigin,
          "a conversation is an object with messages, a list that is not empty");
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json* role = (*messages)[i].find("role");
    require(role != nullptr && role->as<std::string>(), ErrorCode::invalid_argument, kChatOrigin,
            "message ", i + 1, " is no object with a role");
  }
  return *messages;
}

}  // namespace

std::string chat_template_in(std::string_view tokenizer_config, std::string_view label) {
  const Json config = read_config(tokenizer_config, label);
  const Json* found = config.find("chat_template");
  if (found == nullptr) return {};
  if (const std::string* text = found->as<std::string>()) return *text;
  if (const Json::List* list = found->as<Json::List>())
    for (const Json& each : *list) {
      const Json *name = each.find("name"), *text = each.find("template");
      if (name && text && name->as<std::string>() && text->as<std::string>() &&
          *name->as<std::string>() == "default")
        return *text->as<std::string>();
    }
  return {};
}

std::optional<ChatTemplate> ChatTemplate::of(const Tokenizer& tokenizer) {
  if (const CompanionFile* file = find_companion(tokenizer, kChatTemplateFile))
    return ChatTemplate(file->content, file->name, tokenizer);
  if (const CompanionFile* file = find_companion(tokenizer, kTokenizerConfigFile))
    if (const std::string source = chat_template_in(file->content, file->name); !source.empty())
      return ChatTemplate(source, concat("chat_template of ", file->name), tokenizer);
  return std::nullopt;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string_view label,
                           const Tokenizer& tokenizer)
    : source_(source), template_(source, std::string(label)), tokens_(token_variables(tokenizer)) {}

namespace {

// The object of that member, or null.
const Json* variables_of(const Json& conversation) {
  const Json* const given = conversation.find(kVariables);
  require(given == nullptr || given->as<Json::Object>() != nullptr, ErrorCode::invalid_argument,
          kChatOrigin, kVariables, " is no object");
  return given;
}

}  // namespace

// transformers gives a template `tools` and `documents` always, none if there are none.
Json ChatTemplate::variables(const Json& conversation, size_t messages,
                             bool add_generation_prompt) const {
  Json all = Json::Object{};
  for (const auto& [name, token] : tokens_) all[name] = token;
  all["tools"] = nullptr;
  all["documents"] = nullptr;
  const auto take = [&](const Json& from) {
    for (const Json::Member& member : *from.as<Json::Object>())
      if (member.key != "messages" && member.key != kDay && member.key != kVariables)
        all[member.key] = member.value;
  };
  take(conversation);
  if (const Json* given = variables_of(conversation)) take(*given);
  const Json::List& list = messages_of(conversation);
  all["messages"] = Json::List(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(messages));
  all["add_generation_prompt"] = add_generation_prompt;
  return all;
}

jinja::RenderedTemplate ChatTemplate::text_of(const Json& conversation, size_t messages,
                                              bool add_generation_prompt) const {
  std::optional<jinja::Day> today;
  const Json* const given = variables_of(conversation);
  const Json* const inner = given != nullptr ? given->find(kDay) : nullptr;
  if (const Json* day = inner != nullptr ? inner : conversation.find(kDay)) {
    if (const std::string* text = day->as<std::string>()) today = jinja::parse_day(*text);
    require(today.has_value(), ErrorCode::invalid_argument, kChatOrigin, kDay,
            " is no day, as 2026-11-29 is one");
  }
  return template_.render(variables(conversation, messages, add_generation_prompt), today);
}

RenderedChat ChatTemplate::render(const Json& conversation, const ChatOptions& options) const {
  const size_t count = messages_of(conversation).size();
  jinja::RenderedTemplate rendered = text_of(conversation, count, options.add_generation_prompt);
  return {std::move(rendered.text), std::move(rendered.generated)};
}

RenderedChat ChatTemplate::render_answers(const Json& conversation,
                                          const ChatOptions& options) const {
  RenderedChat chat = render(conversation, options);
  if (template_.marks_generation()) return chat;
  const Json::List& messages = messages_of(conversation);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (*messages[i].find("role")->as<std::string>() != "assistant") continue;
    const std::string before = text_of(conversation, i, true).text,
                      past = text_of(conversation, i + 1, false).text;
    require(chat.text.starts_with(before) && chat.text.starts_with(past) &&
                before.size() <= past.size(),
            ErrorCode::invalid_argument, kChatOrigin, "the template writes message ", i + 1,
            " or those in front of it otherwise where others follow, so the answer cannot be "
            "found in the text: mark answers in the template with {% generation %} and "
            "{% endgeneration %}, or learn all tokens");
    chat.answers.push_back({before.size(), past.size()});
  }
  return chat;
}

std::string_view built_in_chat_template(std::string_view name) noexcept {
  return name == "chatml" ? kChatMl : std::string_view();
}

Tokenizer with_chat_template(const Tokenizer& tokenizer, std::string_view source,
                             std::string_view label) {
  const std::string_view built_in = built_in_chat_template(source);
  if (!built_in.empty())
    for (const char* name : {"<|im_start|>", "<|im_end|>"})
      require(tokenizer.token(std::max(tokenizer.id(name), 0)) == name, ErrorCode::invalid_argument,
              kChatOrigin, "the vocabulary has no token ", name, ", which the template ", source,
              " needs: give the template of the model");
  const std::string_view text = built_in.empty() ? source : built_in;
  require(is_valid_utf8(text), ErrorCode::corrupt_file, kChatOrigin, label,
          ": the template is not UTF-8");
  const ChatTemplate checked(text, label, tokenizer);
  return tokenizer.with_companion({std::string(kChatTemplateFile), std::string(text)});
}

}  // namespace trafo
