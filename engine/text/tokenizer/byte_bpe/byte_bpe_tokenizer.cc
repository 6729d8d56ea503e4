#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"

#include <algorithm>

#include "engine/core/numeric/shuffle.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"
#include "engine/text/tokenizer/character_length.h"
#include "engine/text/tokenizer/subword_sampling.h"

namespace trafo {
namespace {

constexpr char kHexDigits[] = "0123456789ABCDEF";

// "<0x20>", as the names of byte tokens are.
std::string byte_name(unsigned char byte) {
  return {'<', '0', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15], '>'};
}

class ByteBpeSampler final : public SubwordSampler {
 public:
  ByteBpeSampler(const ByteBpeTokenizer& tokenizer, bool of_parts)
      : tokenizer_(tokenizer), of_parts_(of_parts) {}
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override {
    check_text(text, "text to encode");
    tokenizer_.sample(text, of_parts_, alpha, rng, ids);
  }

 private:
  const ByteBpeTokenizer& tokenizer_;
  const bool of_parts_;
};

}  // namespace

ByteBpeTokenizer::ByteBpeTokenizer(std::string_view serialized, const TokenizerText& text,
                                   std::string_view label, std::vector<CompanionFile> companions)
    : JsonModel(serialized, is_byte_level(text, label)),
      is_byte_level_(names_bytes_),
      merges_(text.merges.size()) {
  const JsonPart file(std::string(label), text.rest);
  const JsonPart model = file.at("model");
  read_vocabulary(model, text.vocabulary);
  if (is_byte_level_)
    read_unknown(model, text.vocabulary);
  else
    read_byte_tokens(model, text.vocabulary);
  read_merges(text);
  read_steps(file);
  add_tokens(file);
  read_decoder(file.at("decoder"));
  finish(file, std::move(companions));
}

void ByteBpeTokenizer::read_vocabulary(const JsonPart& model, const SubwordTable& vocabulary) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto part = model.find(key); part && !part->text().empty())
      part->refuse(quote(part->text()), " is not supported");
  if (const auto part = model.find("dropout")) {
    part->check(part->value().is_number(), "it is not a number");
    if (part->value().number() != 0)
      part->refuse("it is not 0; subword sampling is an option of the training here");
  }
  ignore_merges_ = model.flag("ignore_merges", false);
  reserve_tokens(model, vocabulary);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const uint32_t id = vocabulary.id(i);
    const std::string_view text = vocabulary.text(i);
    set_token(model, id, text);
    if (!is_byte_level_) {
      words_.add(text, id, 0);
    } else if (std::optional<std::string> bytes = from_byte_letters(text)) {
      words_.add(*bytes, id, 0);
      bytes_[id] = *std::move(bytes);
    }
  }
  words_.index();
  whole_ = std::make_unique<std::atomic<Whole>[]>(words_.size());
}

void ByteBpeTokenizer::read_unknown(const JsonPart& model, const SubwordTable& vocabulary) {
  std::string lacking;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char character = static_cast<char>(byte);
    const uint32_t entry = words_.find({&character, 1});
    byte_ids_[byte] = entry == SubwordTable::kNone ? -1 : static_cast<int32_t>(words_.id(entry));
    if (entry == SubwordTable::kNone) lacking = to_byte_letters({&character, 1});
  }
  if (lacking.empty()) return;
  if (model.flag("byte_fallback", false))
    model.at("byte_fallback").refuse("it is true, and vocab has no ", quote(lacking));
  fuse_unknown_ = model.flag("fuse_unk", false);
  if (const auto part = model.find("unk_token")) {
    const uint32_t entry = vocabulary.find(part->text());
    part->check(entry != SubwordTable::kNone, "vocab has no ", quote(part->text()));
    unknown_ = static_cast<int32_t>(vocabulary.id(entry));
  }
}

void ByteBpeTokenizer::read_byte_tokens(const JsonPart& model, const SubwordTable& vocabulary) {
  is_byte_.resize(tokens_.size());
  for (size_t value = 0; value < byte_ids_.size(); ++value) {
    const char character = static_cast<char>(value);
    const std::string name = byte_name(static_cast<unsigned char>(value));
    const uint32_t entry = vocabulary.find(name);
    const uint32_t own =
        value < 0x80 ? vocabulary.find({&character, 1}) : uint32_t{SubwordTable::kNone};
    // Gemma 1 and 2 have a token for the tab, and none for its byte.
    if (entry == SubwordTable::kNone && own == SubwordTable::kNone)
      model.at("byte_fallback").refuse("it is true, and vocab has no ", name);
    if (entry != SubwordTable::kNone) {
      is_byte_[vocabulary.id(entry)] = true;
      bytes_[vocabulary.id(entry)] = character;
    }
    byte_ids_[value] =
        static_cast<int32_t>(vocabulary.id(own == SubwordTable::kNone ? entry : own));
  }
  // The library decodes the digits A to F in either case, each as the byte.
  const auto is_digit = [](char c) {
    return std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos;
  };
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view name = tokens_[id];
    if (!is_byte_[id] && name.size() == 6 && name.starts_with("<0x") && is_digit(name[3]) &&
        is_digit(name[4]) && name[5] == '>')
      model.at("byte_fallback").refuse("it is true, and vocab spells a byte ", name);
  }
  if (const auto part = model.find("unk_token"))
    part->check(vocabulary.find(part->text()) != SubwordTable::kNone, "vocab has no ",
                quote(part->text()));
}

void ByteBpeTokenizer::read_decoder(const JsonPart& part) {
  if (is_byte_level_) {
    for (const JsonPart& step : part.steps("decoders"))
      if (step.type() != "ByteLevel" && step.type() != "Fuse")
        step.refuse("type ", quote(step.type()),
                    " is not supported; byte-level BPE has the decoder ByteLevel");
    return;
  }
  decoder_ = FallbackDecoder(part);
  is_byte_.resize(tokens_.size());
  for (size_t id = 0; id < bytes_.size(); ++id)
    if (!is_byte_[id]) decoder_.replace(bytes_[id]);
}

void ByteBpeTokenizer::read_merges(const TokenizerText& text) {
  const auto id = [&](uint32_t entry) { return static_cast<int32_t>(text.vocabulary.id(entry)); };
  for (const Merge& merge : text.merges)
    merges_.add(id(merge.left), id(merge.right), id(merge.result));
}

bool is_byte_level(const TokenizerText& text, std::string_view label) {
  const std::optional<JsonPart> pre = JsonPart(std::string(label), text.rest).find("pre_tokenizer");
  return pre && PreTokenizer::is_byte_level(*pre);
}

bool is_byte_bpe(const TokenizerText& text, std::string_view label) {
  const JsonPart file(std::string(label), text.rest);
  const std::optional<JsonPart> model = file.find("model"), added = file.find("added_tokens"),
                                normalizer = file.find("normalizer");
  if (!model || text.has_scores) return false;
  if (const auto type = model->find("type"); type && type->text() != "BPE") return false;
  if (is_byte_level(text, label)) return true;
  if (!model->flag("byte_fallback", false) || !added || added->list().empty()) return false;
  if (!normalizer) return true;
  const std::vector<JsonPart> steps = normalizer->steps("normalizers");
  return std::none_of(steps.begin(), steps.end(),
                      [](const JsonPart& step) { return step.type() == "Precompiled"; });
}

bool is_byte_bpe_file(std::string_view file_bytes) {
  const size_t begin = file_bytes.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && file_bytes[begin] == '{' &&
         file_bytes.find("\"model\"") != std::string_view::npos;
}

Tokenizer load_byte_bpe(std::string_view file_bytes, std::string_view label,
                        std::vector<CompanionFile> companions) {
  const TokenizerText text = read_tokenizer_text(file_bytes, kTokenizerOrigin, label);
  if (!is_byte_bpe(text, label))
    fail(ErrorCode::unsupported, kTokenizerOrigin, label,
         ": it is not byte-level BPE and not BPE with byte fallback: model is not of the type BPE, "
         "or pre_tokenizer has no ByteLevel and model: byte_fallback is not true; the vocabularies "
         "of SentencePiece in this form come with the import of a model");
  return Tokenizer(
      std::make_shared<ByteBpeTokenizer>(file_bytes, text, label, std::move(companions)));
}

// ---- encoding ----

void ByteBpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  encode_text(text, false, ids);
}

void ByteBpeTokenizer::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  encode_text(text, true, ids);
}

void ByteBpeTokenizer::encode_text(std::string_view text, bool is_part,
                                   std::vector<int32_t>& ids) const {
  encode_words(text, is_part, ids,
               [this](std::string_view word, std::vector<int32_t>& to) { encode_word(word, to); });
}

void ByteBpeTokenizer::sample(std::string_view text, bool is_part, double alpha, ShuffleRng& rng,
                              std::vector<int32_t>& ids) const {
  std::vector<int32_t> tokens;
  encode_words(text, is_part, ids, [&](std::string_view word, std::vector<int32_t>& to) {
    first_tokens(word, tokens);
    merges_.sample(tokens, alpha, rng);
    to.insert(to.end(), tokens.begin(), tokens.end());
  });
}

void ByteBpeTokenizer::first_tokens(std::string_view word, std::vector<int32_t>& tokens) const {
  tokens.clear();
  if (!is_byte_level_) {
    for (size_t at = 0; at < word.size();) {
      const size_t begin = at;
      uint32_t entry = SubwordTable::kNone;
      if (next_code_point(word, at) >= 0x80) entry = words_.find(word.substr(begin, at - begin));
      if (entry != SubwordTable::kNone) {
        tokens.push_back(static_cast<int32_t>(words_.id(entry)));
        continue;
      }
      for (const char byte : word.substr(begin, at - begin))
        tokens.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    }
    return;
  }
  bool was_unknown = false;
  for (const char byte : word) {
    int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    const bool is_unknown = id < 0;
    if (is_unknown) id = was_unknown && fuse_unknown_ ? -1 : unknown_;
    was_unknown = is_unknown;
    if (id >= 0) tokens.push_back(id);
  }
}

bool ByteBpeTokenizer::is_whole(uint32_t entry, std::string_view word) const {
  if (ignore_merges_) return true;
  std::atomic<Whole>& known = whole_[entry];
  Whole whole = known.load(std::memory_order_relaxed);
  if (whole == Whole::unknown) {
    std::vector<int32_t> tokens;
    first_tokens(word, tokens);
    merges_.apply(tokens);
    const bool is_itself =
        tokens.size() == 1 && tokens.front() == static_cast<int32_t>(words_.id(entry));
    whole = is_itself ? Whole::yes : Whole::no;
    known.store(whole, std::memory_order_relaxed);
  }
  return whole == Whole::yes;
}

void ByteBpeTokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (const uint32_t entry = words_.find(word);
      entry != SubwordTable::kNone && is_whole(entry, word)) {
    ids.push_back(static_cast<int32_t>(words_.id(entry)));
    return;
  }
  thread_local std::vector<int32_t> tokens;
  first_tokens(word, tokens);
  merges_.apply(tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

// ---- decoding ----

std::string ByteBpeTokenizer::decode_fallback(std::span<const int32_t> ids) const {
  std::string text, bytes;
  for (const int32_t id : ids) {
    const auto i = static_cast<size_t>(id);
    if (is_special_[i]) continue;
    if (is_byte_[i]) {
      bytes += bytes_[i];
      continue;
    }
    FallbackDecoder::append_bytes(bytes, false, text);
    bytes.clear();
    text += bytes_[i];
  }
  FallbackDecoder::append_bytes(bytes, true, text);
  decoder_.strip(text);
  return text;
}

std::string ByteBpeTokenizer::decode(std::span<const int32_t> ids) const {
  if (!is_byte_level_) return decode_fallback(ids);
  std::string bytes;
  for (const int32_t id : ids)
    if (const auto i = static_cast<size_t>(id); !is_special_[i]) bytes += bytes_[i];
  if (is_valid_utf8(bytes)) return bytes;
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const int length = character_length(bytes, at);
    if (length == 0) break;
    if (length > 0)
      text.append(bytes, at, static_cast<size_t>(length));
    else
      text += "\ufffd";
    at += static_cast<size_t>(std::abs(length));
  }
  return text;
}

std::string ByteBpeTokenizer::token_bytes(int32_t id) const {
  const auto i = static_cast<size_t>(id);
  return is_special_[i] ? std::string() : bytes_[i];
}

// A wrong byte changes all byte tokens before it, as far as only special tokens are between them.
// A byte-level text only ever grows: decode() leaves out a character that is not complete.
size_t ByteBpeTokenizer::open_tail(std::span<const int32_t> ids) const {
  size_t open = 0;
  for (size_t back = 1; back <= ids.size() && !is_byte_level_; ++back) {
    const auto i = static_cast<size_t>(ids[ids.size() - back]);
    if (is_special_[i]) continue;
    if (!is_byte_[i]) break;
    open = back;
  }
  return open;
}

bool ByteBpeTokenizer::continues_character(int32_t id) const {
  const std::string& bytes = bytes_[static_cast<size_t>(id)];
  return !bytes.empty() && (bytes.front() & 0xc0) == 0x80;
}

bool ByteBpeTokenizer::bos_is_subword() const noexcept {
  return special_.bos >= 0 && !is_special_[static_cast<size_t>(special_.bos)];
}

std::shared_ptr<const Tokenizer::Model> ByteBpeTokenizer::after_special() const {
  if (!pre_tokenizer_->marks_the_beginning()) return nullptr;
  constexpr std::string_view kLabel = "tokenizer";
  auto rest = std::make_shared<ByteBpeTokenizer>(
      serialized(), read_tokenizer_text(serialized(), kTokenizerOrigin, kLabel), kLabel,
      companions());
  rest->begins_texts_ = false;
  return rest;
}

std::unique_ptr<const SubwordSampler> ByteBpeTokenizer::sampler() const {
  return std::make_unique<ByteBpeSampler>(*this, false);
}

std::unique_ptr<const SubwordSampler> ByteBpeTokenizer::part_sampler() const {
  return std::make_unique<ByteBpeSampler>(*this, true);
}

}  // namespace trafo
