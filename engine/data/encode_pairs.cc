#include "engine/data/encode_pairs.h"

#include <algorithm>
#include <cstring>

#include "engine/core/numeric/shuffle.h"
#include "engine/core/parallel_chunks.h"
#include "engine/core/status.h"
#include "engine/core/strings/json.h"

namespace trafo {

namespace {

constexpr const char* kEncodePairsOrigin = "corpus";

// The ids of a view, without an alignment of its bytes.
void copy_ids(std::string_view bytes, int64_t vocabulary, const TextCorpus& corpus, int64_t pair,
              std::vector<int32_t>& ids) {
  ids.resize(bytes.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      fail(ErrorCode::invalid_argument, kEncodePairsOrigin, corpus.place(pair), " has the id ", id,
           ", the vocabulary has 0 to ", vocabulary - 1);
}

Json parse_part(std::string_view text, const std::string& place) {
  return parse_json(text, kEncodePairsOrigin, place, {.bytes = text.size(), .depth = 64});
}

// The ids of a conversation: the first one as the source, the others as the target. All are empty
// if nothing of it is learned.
void encode_chat(const PairEncoding& encoding, const Tokenizer& tokenizer, const std::string& place,
                 std::string_view text, EncodedPair& pair) {
  try {
    const Json conversation = parse_part(text, place);
    const bool all = encoding.chat_loss == ChatLoss::all;
    const ChatTemplate& chat_template = encoding.chat_template();
    RenderedChat chat =
        all ? chat_template.render(conversation) : chat_template.render_answers(conversation);
    if (all) chat.answers = {{0, chat.text.size()}};
    std::vector<int32_t> ids;
    std::vector<uint8_t> learned;
    tokenizer.encode_marked(chat.text, chat.answers, ids, learned);
    if (ids.size() < 2 || std::find(learned.begin() + 1, learned.end(), 1) == learned.end()) return;
    pair.source.assign(ids.begin(), ids.begin() + 1);
    pair.target.assign(ids.begin() + 1, ids.end());
    pair.learned.assign(learned.begin() + 1, learned.end());
  } catch (const Error& error) {
    fail(error.code(), error.origin(), place, ": ", error.message());
  }
}

// The prompt with the messages that continue it, or with the beginning of an answer.
std::vector<int32_t> encode_answer(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                   const Json& prompt, const Json* answer) {
  Json chat = prompt;
  if (answer != nullptr) {
    Json::List messages = *prompt.find("messages")->as<Json::List>();
    const Json::List& more = *answer->as<Json::List>();
    messages.insert(messages.end(), more.begin(), more.end());
    chat["messages"] = std::move(messages);
  }
  std::vector<int32_t> ids;
  tokenizer.encode(chat_template.render(chat, {.add_generation_prompt = answer == nullptr}).text,
                   ids);
  return ids;
}

// The ids of a preference pair of conversations, which may lack an answer. The source is what the
// prompt, which ends with the beginning of an answer, and both whole conversations begin with: in
// front of a token that merges text of the prompt and of an answer it ends.
void encode_chat_answers(const PairEncoding& encoding, const Tokenizer& tokenizer,
                         const std::string& place, const PairView& text, EncodedPair& pair) {
  try {
    const ChatTemplate& chat_template = encoding.chat_template();
    const Json prompt = parse_part(text.source, place);
    std::vector<int32_t> source = encode_answer(chat_template, tokenizer, prompt, nullptr);
    std::vector<int32_t>* const answers[] = {&pair.target, &pair.rejected};
    const std::string_view texts[] = {text.target, text.rejected};
    size_t common = source.size();
    for (size_t i = 0; i < 2; ++i) {
      if (texts[i].empty()) continue;
      const Json answer = parse_part(texts[i], place);
      *answers[i] = encode_answer(chat_template, tokenizer, prompt, &answer);
      const auto same = std::span(source).first(common);
      common = static_cast<size_t>(std::ranges::mismatch(same, *answers[i]).in1 - same.begin());
    }
    require(common > 0, ErrorCode::invalid_argument, kEncodePairsOrigin,
            "the template writes the first token of the prompt otherwise where an answer follows");
    for (std::vector<int32_t>* const answer : answers)
      if (!answer->empty())
        answer->erase(answer->begin(), answer->begin() + static_cast<std::ptrdiff_t>(common));
    source.resize(common);
    pair.source = std::move(source);
  } catch (const Error& error) {
    fail(error.code(), error.origin(), place, ": ", error.message());
  }
}

// The rows of a text with labels, from text or from ids.
void encode_labels(const PairEncoding& encoding, const Encoder& encoder, const TextCorpus& corpus,
                   int64_t number, int64_t i, const PairView& text, EncodedPair& pair) {
  const LabelNames& labels = encoding.labels;
  const std::string place = corpus.place(number);
  if (corpus.has_ids()) {
    copy_ids(text.source, encoding.source_vocabulary, corpus, number, pair.source);
    copy_ids(text.target, std::ssize(labels.names), corpus, number, pair.target);
    const size_t wanted = labels.of_tokens ? pair.source.size() : 1;
    require(pair.target.size() == wanted, ErrorCode::invalid_argument, kEncodePairsOrigin, place,
            ": the text of ", pair.source.size(), " ids has ", pair.target.size(),
            " labels, it needs ", wanted);
    return;
  }
  require(!encoder || !labels.of_tokens, ErrorCode::unsupported, kEncodePairsOrigin,
          "subwords are not sampled in texts with a label for each word");
  try {
    LabelledText labelled =
        encode_labelled(*encoding.tokenizer, encoding.tokens, labels, text.source, text.target);
    if (encoder) {  // other subwords in the same frame
      std::vector<int32_t> subwords;
      encoder(text.source, 0, i, subwords);
      const TextFrame& frame = encoding.tokens.frame;
      labelled.source.erase(labelled.source.begin() + (frame.begin ? 1 : 0),
                            labelled.source.end() - (frame.end ? 1 : 0));
      labelled.source.insert(labelled.source.begin() + (frame.begin ? 1 : 0), subwords.begin(),
                             subwords.end());
    }
    pair.source = std::move(labelled.source);
    pair.target = std::move(labelled.target);
    pair.learned = std::move(labelled.learned);
  } catch (const Error& error) {
    fail(error.code(), error.origin(), place, ": ", error.message());
  }
}

}  // namespace

uint64_t tokenized_fingerprint(const TextCorpus& corpus, const PairEncoding& encoding,
                               SequenceForm form) {
  const uint64_t reading = encoding.tokenizer ? encoding.tokenizer->reading() : 0;
  const TextFrame& frame = encoding.tokens.frame;
  const uint64_t framed = (frame.begin ? 8 : 0) + (frame.end ? 0 : 16);
  uint64_t hash =
      mix_bits(corpus.fingerprint() + static_cast<uint64_t>(form) + 1 + 2 * reading + framed);
  if (corpus.has_chats()) {
    LineHash source;
    source.add(encoding.chat_template().source());
    hash = mix_bits(hash ^ source.value()) + static_cast<uint64_t>(encoding.chat_loss);
  }
  LineHash labels;
  for (const std::string& name : encoding.labels.names) labels.add(name);
  if (!encoding.labels.empty()) hash = mix_bits(hash ^ labels.value());
  return hash;
}

const ChatTemplate& PairEncoding::chat_template() const {
  if (chat_template_ == nullptr) {
    std::optional<ChatTemplate> found;
    if (tokenizer) found = ChatTemplate::of(*tokenizer);
    require(found.has_value(), ErrorCode::invalid_argument, kEncodePairsOrigin,
            "the corpus has conversations, and the vocabulary came without a chat template: give "
            "it one, which the model was trained with (--chat-template FILE), or chatml");
    chat_template_ = std::make_shared<const ChatTemplate>(*std::move(found));
  }
  return *chat_template_;
}

PairFrame frame_of(const TextCorpus& corpus, const PairEncoding& encoding) {
  if (corpus.has_ids() || corpus.has_chats() || !encoding.labels.empty()) return {};
  const SpecialTokens& special = encoding.tokens.special;
  const TextFrame& frame = encoding.tokens.frame;
  PairFrame around;
  around.target_end = special.eos;
  if (corpus.monolingual()) {
    around.source_begin = frame.front(special);  // the whole source
    return around;
  }
  if (frame.begin) around.source_begin = special.bos;
  if (frame.end) around.source_end = special.eos;
  return around;
}

std::optional<std::vector<EncodedPair>> encode_pairs(const TextCorpus& corpus,
                                                     const PairEncoding& encoding, int64_t count,
                                                     const std::function<int64_t(int64_t)>& pair_of,
                                                     const Encoder& encoder, int num_threads,
                                                     const std::atomic<bool>* stop) {
  std::vector<EncodedPair> pairs(static_cast<size_t>(count));
  constexpr int64_t kChunk = 128;
  require(encoding.tokenizer || corpus.has_ids(), ErrorCode::invalid_argument, kEncodePairsOrigin,
          "a corpus of text needs a tokenizer");
  corpus.check_vocabulary(encoding.vocabulary);
  std::optional<Tokenizer> chats;
  if (corpus.has_chats()) {
    encoding.chat_template();  // before several threads ask for it
    chats = encoding.tokenizer->parsing_special();
  }
  std::optional<Tokenizer> targets;
  if (encoding.tokenizer) targets = encoding.tokenizer->for_targets();
  const auto encode_side = [&](std::string_view text, int side, int64_t i,
                               std::vector<int32_t>& ids) {
    if (encoder)
      encoder(text, side, i, ids);
    else
      (side == 0 ? *encoding.tokenizer : *targets).encode(text, ids);
  };
  const auto work = [&](int64_t begin, int64_t end) {
    PairBuffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      EncodedPair& pair = pairs[static_cast<size_t>(i)];
      const PairView text = corpus.view(pair_of(i), buffers);
      const bool preferences = corpus.form() == CorpusForm::preferences;
      pair.identical = text.target == (preferences ? text.rejected : text.source);
      if (!encoding.labels.empty()) {
        encode_labels(encoding, encoder, corpus, pair_of(i), i, text, pair);
        continue;
      }
      if (corpus.has_chats()) {
        if (preferences)
          encode_chat_answers(encoding, *chats, corpus.place(pair_of(i)), text, pair);
        else
          encode_chat(encoding, *chats, corpus.place(pair_of(i)), text.target, pair);
        continue;
      }
      if (corpus.has_ids()) {
        copy_ids(text.source, encoding.source_vocabulary, corpus, pair_of(i), pair.source);
        copy_ids(text.target, encoding.vocabulary, corpus, pair_of(i), pair.target);
        if (pair.source.empty())
          pair.source.push_back(encoding.tokens.frame.front(encoding.tokens.special));
        continue;
      }
      if (!corpus.monolingual()) encode_side(text.source, 0, i, pair.source);
      encode_side(text.target, 1, i, pair.target);
      if (preferences) encode_side(text.rejected, 2, i, pair.rejected);
    }
  };
  if (!parallel_chunks(count, kChunk, num_threads, work, stop)) return std::nullopt;
  return pairs;
}

}  // namespace trafo
