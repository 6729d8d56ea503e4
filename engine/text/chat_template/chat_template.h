// The chat template of a language model: conversations as the texts that the model reads, and the
// parts of a text that the assistant wrote.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/chat_template/jinja_template.h"
#include "engine/text/text_span.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> answers;  // in their order, apart from each other
};

struct ChatOptions {
  // Ends with the beginning of an answer, for a model that will continue it.
  bool add_generation_prompt = false;
};

// Immutable.
class ChatTemplate {
 public:
  // The template that came with a tokenizer: chat_template.jinja, or chat_template of
  // tokenizer_config.json, there the one named "default" of several. None: it came with none.
  // CORRUPT_FILE and UNSUPPORTED as JinjaTemplate.
  static std::optional<ChatTemplate> of(const Tokenizer& tokenizer);
  // With the special tokens of the tokenizer as bos_token, eos_token and so on.
  ChatTemplate(std::string_view source, std::string_view label, const Tokenizer& tokenizer);

  const std::string& source() const noexcept { return source_; }

  // A conversation is an object: "messages" is a list of objects that have a "role" and, mostly, a
  // "content"; other members, such as "tools", are variables of the template, and so are the
  // members of an object "chat_template_kwargs". "strftime_now" is the day of that function, as
  // "2026-11-29"; without it, the function is undefined. INVALID_ARGUMENT: it is no such object, or
  // the template refuses it.
  RenderedChat render(const Json& conversation, const ChatOptions& options = {}) const;
  // The same with its answers: the generation blocks or, in a template without them, all that
  // follows the beginning of an answer up to its end. INVALID_ARGUMENT: such a template writes
  // messages otherwise if others follow.
  RenderedChat render_answers(const Json& conversation, const ChatOptions& options = {}) const;

 private:
  // Of the first messages.
  jinja::RenderedTemplate text_of(const Json& conversation, size_t messages,
                                  bool add_generation_prompt) const;
  Json variables(const Json& conversation, size_t messages, bool add_generation_prompt) const;

  std::string source_;
  jinja::JinjaTemplate template_;
  std::vector<std::pair<std::string, std::string>> tokens_;  // names of variables and tokens
};

// The template in the bytes of a tokenizer_config.json: chat_template or, where that is a list, the
// one named "default" in it. Empty if it has none. CORRUPT_FILE with `label`.
std::string chat_template_in(std::string_view tokenizer_config, std::string_view label);

// The text of a template that has a name here; empty if there is none. `chatml` is the only one.
std::string_view built_in_chat_template(std::string_view name) noexcept;

// The tokenizer with this template, as chat_template.jinja, in place of its own. INVALID_ARGUMENT:
// a built-in template needs tokens that the vocabulary lacks. CORRUPT_FILE, UNSUPPORTED.
Tokenizer with_chat_template(const Tokenizer& tokenizer, std::string_view source,
                             std::string_view label);

}  // namespace trafo
