#include <memory>

#include "capi/src/text_handles.h"
#include "engine/core/strings/json.h"
#include "engine/text/chat_template/chat_template.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr int kConversationDepth = 64;

ChatTemplate template_of(const Call& call, const Tokenizer& tokenizer) {
  std::optional<ChatTemplate> found = ChatTemplate::of(tokenizer);
  require(found.has_value(), ErrorCode::not_found, call.function(),
          "the tokenizer has no chat template: trafo_tokenizer_with_chat_template gives it one");
  return *std::move(found);
}

RenderedChat render_chat(const Call& call, const Tokenizer& tokenizer,
                         std::string_view conversation, int32_t add_generation_prompt,
                         bool answers) {
  const ChatTemplate chat = template_of(call, tokenizer);
  const Json json = parse_json(conversation, call.function(), "conversation",
                               {.bytes = conversation.size(), .depth = kConversationDepth});
  const ChatOptions options{.add_generation_prompt =
                                call.flag(add_generation_prompt, "add_generation_prompt")};
  return answers ? chat.render_answers(json, options) : chat.render(json, options);
}

}  // namespace

trafo_error* trafo_tokenizer_with_chat_template(const trafo_tokenizer* tokenizer,
                                                const char* source, size_t source_length,
                                                trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TokenizerObject& plain = call.handle(tokenizer, "tokenizer");
    *out = new_handle<trafo_tokenizer>(
        with_chat_template(plain.tokenizer, call.text(source, source_length, "source"),
                           "chat template"),
        plain.file, plain.checksum);
  });
}

trafo_error* trafo_tokenizer_get_chat_template(const trafo_tokenizer* tokenizer, char** out_text,
                                               size_t* out_length) {
  return api(__func__, [&](const Call& call) {
    call.out(out_text, "out_text");
    call.out(out_length, "out_length");
    const ChatTemplate chat = template_of(call, call.handle(tokenizer, "tokenizer").tokenizer);
    *out_text = copy_string(chat.source());
    *out_length = chat.source().size();
  });
}

trafo_error* trafo_chat_render(const trafo_tokenizer* tokenizer, const char* conversation,
                               size_t conversation_length, int32_t add_generation_prompt,
                               char** out_text, size_t* out_length) {
  return api(__func__, [&](const Call& call) {
    call.out(out_text, "out_text");
    call.out(out_length, "out_length");
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    const RenderedChat chat =
        render_chat(call, subwords, call.text(conversation, conversation_length, "conversation"),
                    add_generation_prompt, false);
    *out_text = copy_string(chat.text);
    *out_length = chat.text.size();
  });
}

trafo_error* trafo_chat_encode(const trafo_tokenizer* tokenizer, const char* conversation,
                               size_t conversation_length, int32_t add_generation_prompt,
                               int32_t** out_ids, size_t* out_count, int32_t** out_answers) {
  return api(__func__, [&](const Call& call) {
    if (out_answers) *out_answers = nullptr;
    call.out(out_ids, "out_ids");
    call.out(out_count, "out_count");
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    const RenderedChat chat =
        render_chat(call, subwords, call.text(conversation, conversation_length, "conversation"),
                    add_generation_prompt, out_answers != nullptr);
    std::vector<int32_t> ids;
    std::vector<uint8_t> marked;
    subwords.encode_marked(chat.text, chat.answers, ids, marked);
    // Freed if there is no memory for the other.
    std::unique_ptr<int32_t, decltype(&trafo_ids_free)> given(copy_ids(ids), trafo_ids_free);
    if (out_answers) *out_answers = copy_ids({marked.begin(), marked.end()});
    *out_ids = given.release();
    *out_count = ids.size();
  });
}
