// Chat templates, which come with models, and the conversations that they write.
#include <optional>

#include "engine/core/strings/json.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/chat_template/budget.h"
#include "engine/text/chat_template/chat_template.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace trafo::fuzz {
namespace {

const Tokenizer& byte_vocabulary() {
  static const Tokenizer vocabulary = [] {
    TokenizerTrainOptions options;
    options.kind = "byte";
    return Tokenizer::train(std::span<const std::string>(), options);
  }();
  return vocabulary;
}

void check_text(const RenderedChat& chat) {
  expect(chat.text.size() <= jinja::TemplateBounds().output_bytes, "a text over the bound");
  expect(is_valid_utf8(chat.text), "a text that is not UTF-8");
  size_t end = 0;
  for (const TextSpan& answer : chat.answers) {
    expect(end <= answer.begin && answer.begin <= answer.end && answer.end <= chat.text.size(),
           "an answer outside the text, or inside another");
    end = answer.end;
  }
}

void write_chat(const ChatTemplate& chat_template, const Json& conversation, bool prompt) {
  const ChatOptions options{prompt};
  std::optional<RenderedChat> once;
  if (!attempt([&] { once = chat_template.render(conversation, options); })) return;
  check_text(*once);
  expect(chat_template.render(conversation, options).text == once->text, "two texts");
  attempt([&] {
    const RenderedChat answers = chat_template.render_answers(conversation, options);
    check_text(answers);
    expect(answers.text == once->text, "another text with answers");
    std::vector<int32_t> ids;
    std::vector<uint8_t> marked;
    byte_vocabulary().encode_marked(answers.text, answers.answers, ids, marked);
    expect(ids.size() == marked.size(), "as many marks as tokens");
  });
}

constexpr std::string_view kTalk =
    R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Größe? 😀"},)"
    R"({"role":"assistant","content":"1 m","tool_calls":[{"function":{"name":"f","arguments":{"a":[1,2.5,null]}}}]}],)"
    R"("tools":[{"type":"function","function":{"name":"f"}}],"strftime_now":"2026-11-29"})";

}  // namespace

// A byte of options, a template, and a conversation.
void run_chat(Bytes input) {
  Parts parts(input);
  const bool prompt = parts.byte() % 2 != 0;
  const std::string_view source = parts.part();
  std::optional<ChatTemplate> chat_template;
  if (!attempt([&] {
        chat_template = ChatTemplate::of(with_chat_template(byte_vocabulary(), source, "input"));
      }))
    return;
  std::optional<Json> conversation;
  if (attempt([&] { conversation = parse_json(parts.rest(), "chat", "input"); }))
    write_chat(*chat_template, *conversation, prompt);
}

std::vector<Seed> chat_seeds() {
  const auto seed = [](const char* name, std::string_view source) {
    return Seed{name, concat("\1", source, "\xff", kTalk)};
  };
  return {
      seed("chatml", built_in_chat_template("chatml")),
      seed("loop",
           "{{ bos_token }}{% for m in messages if m.role != 'system' -%}\n"
           "{{ loop.index0 ~ m['role']|upper + ': ' + m.content|trim }}{% if not loop.last %}, "
           "{% endif %}{% else %}none{% endfor %}{{ '> ' if add_generation_prompt }}"),
      seed("namespace",
           "{% set ns = namespace(n=0, seen=[]) %}{% for m in messages[::-1] %}{% set ns.n = "
           "ns.n + m.content|length %}{% endfor %}{{ ns.n // 2 }} {{ strftime_now('%d %b %Y') }}"),
      seed("macro",
           "{% macro call(t, n=2) %}{{ t.function.name * n }}{{ t|tojson(indent=1) }}{% endmacro %}"
           "{% for t in tools or [] %}{{ call(t, n=3) }}{% endfor %}{# end #}"),
      seed("text",
           "{{ messages|map(attribute='content')|join('|') }}{{ messages[1].content[2:-1] }}"
           "{{ 'a-b'.split('-')[0].replace('a', '\\u00e9\\n') }}{{ '%s' is string }}"),
      seed("refuses", "{% if messages|length < 9 %}{{ raise_exception('too short') }}{% endif %}"),
      seed("bounds",
           "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}"
           "{% endfor %}{{ 'x' * 999999999 }}"),
  };
}

}  // namespace trafo::fuzz
