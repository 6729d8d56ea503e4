#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"

#include <algorithm>

#include "engine/core/limits.h"
#include "engine/core/shuffle.h"
#include "engine/core/utf8.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

// Ids of added tokens are not far from the others in real files.
constexpr size_t kIdGap = 65536;

bool is_blank(char32_t c) {
  static const CodePointTable table(white_space_set().united({{0, 0x20}}));
  return table.has(c);
}

constexpr char kHexDigits[] = "0123456789ABCDEF";

// "<0x20>", as the names of byte tokens are.
std::string byte_name(unsigned char byte) {
  return {'<', '0', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15], '>'};
}

class ByteBpeSampler final : public SubwordSampler {
 public:
  explicit ByteBpeSampler(const ByteBpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override {
    check_text(text, "text to encode");
    tokenizer_.sample(text, alpha, rng, ids);
  }

 private:
  const ByteBpeTokenizer& tokenizer_;
};

}  // namespace

ByteBpeTokenizer::ByteBpeTokenizer(std::string_view serialized, const TokenizerText& text,
                                   std::string_view label, std::vector<CompanionFile> companions)
    : Model(serialized), is_byte_level_(is_byte_level(text, label)), merges_(text.merges.size()) {
  const JsonPart file(std::string(label), text.rest);
  const JsonPart model = file.at("model");
  read_vocabulary(model, text.vocabulary);
  if (is_byte_level_)
    read_unknown(model, text.vocabulary);
  else
    read_byte_tokens(model, text.vocabulary);
  read_merges(text);
  if (const auto part = file.find("normalizer")) normalizer_ = TextNormalizer(*part);
  const std::optional<JsonPart> pre_tokenizer = file.find("pre_tokenizer");
  pre_tokenizer_ =
      std::make_unique<PreTokenizer>(pre_tokenizer ? PreTokenizer(*pre_tokenizer) : PreTokenizer());
  // A normalizer may take the beginning of a text away, which then has no mark.
  if (pre_tokenizer_->marks_the_beginning() && !normalizer_.changes_nothing())
    pre_tokenizer->refuse("prepend_scheme first is not supported with a normalizer");
  add_tokens(file);
  read_decoder(file.at("decoder"));
  index_tokens(file);
  companions_ = std::move(companions);
  const auto find = [this](std::string_view name) {
    const uint32_t entry = names_.find(name_of(name));
    return entry == SubwordTable::kNone ? -1 : static_cast<int32_t>(names_.id(entry));
  };
  const auto find_special = [&](std::string_view name) {
    const int32_t id = find(name);
    return id >= 0 && is_special_[static_cast<size_t>(id)] ? id : -1;
  };
  const VocabularyLookup lookup{find, find_special, vocab_size()};
  SpecialChoice choice = choose_special_tokens(file, companions_, lookup);
  special_ = choice.tokens;
  further_ends_ = std::move(choice.further_ends);
  text_begin_ = choice.text_begin;
}

// A token as its name. White space is written "<0x20>" or, where that is a byte token, "<U+0020>".
std::string ByteBpeTokenizer::name_of(std::string_view text) const {
  std::string name;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t character = next_code_point(text, at);
    if (!is_blank(character)) {
      name.append(text, begin, at - begin);
    } else if (is_byte_level_) {
      for (const char byte : text.substr(begin, at - begin))
        name += byte_name(static_cast<unsigned char>(byte));
    } else {
      name += "<U+";
      for (int bits = 12; bits >= 0; bits -= 4) name += kHexDigits[character >> bits & 15];
      name += '>';
    }
  }
  return name;
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
  model.check(vocabulary.size() > 0, "vocab is empty");
  uint32_t last = 0;
  for (size_t i = 0; i < vocabulary.size(); ++i) last = std::max(last, vocabulary.id(i));
  tokens_.resize(last + size_t{1});
  bytes_.resize(last + size_t{1});
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const uint32_t id = vocabulary.id(i);
    model.check(tokens_[id].empty(), "vocab: the id ", id, " has two subwords");
    const std::string_view text = vocabulary.text(i);
    tokens_[id] = name_of(text);
    if (!is_byte_level_) {
      words_.add(text, id, 0);
      bytes_[id] = text;
    } else if (std::optional<std::string> bytes = from_byte_letters(text)) {
      words_.add(*bytes, id, 0);
      bytes_[id] = *std::move(bytes);
    } else {
      bytes_[id] = text;
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
    if (entry == SubwordTable::kNone)
      model.at("byte_fallback").refuse("it is true, and vocab has no ", name);
    const uint32_t id = vocabulary.id(entry);
    is_byte_[id] = true;
    bytes_[id] = character;
    const uint32_t own =
        value < 0x80 ? vocabulary.find({&character, 1}) : uint32_t{SubwordTable::kNone};
    byte_ids_[value] = static_cast<int32_t>(own == SubwordTable::kNone ? id : vocabulary.id(own));
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

void ByteBpeTokenizer::add_tokens(const JsonPart& file) {
  is_special_.resize(tokens_.size());
  const std::optional<JsonPart> part = file.find("added_tokens");
  if (!part) return;
  added_ = AddedTokens(*part, normalizer_);
  const size_t limit = tokens_.size() + added_.all().size() + kIdGap;
  for (const AddedToken& token : added_.all()) {
    const auto id = static_cast<size_t>(token.id);
    const std::string name = name_of(token.text);
    part->check(id < limit, quote(token.text), " has no id below ", limit);
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      bytes_.resize(id + 1);
      is_special_.resize(id + 1);
    }
    part->check(tokens_[id].empty() || tokens_[id] == name, quote(token.text), " has the id of ",
                quote(tokens_[id]));
    if (tokens_[id].empty()) bytes_[id] = token.decoded;
    tokens_[id] = name;
    is_special_[id] = token.special;
  }
}

void ByteBpeTokenizer::index_tokens(const JsonPart& file) {
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) tokens_[id] = "<unused:" + std::to_string(id) + ">";
    names_.add(tokens_[id], static_cast<uint32_t>(id), 0);
  }
  const uint32_t twice = names_.index();
  file.check(twice == SubwordTable::kNone, "two tokens have the name ",
             quote(twice == SubwordTable::kNone ? std::string_view() : names_.text(twice)));
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

template <class Word>
void ByteBpeTokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids,
                                    const Word& word) const {
  std::vector<AddedTokens::Piece> pieces, inside;
  PreTokenizer::Words words;
  std::string normal;
  ids.clear();
  added_.cut(text, false, pieces);
  for (const AddedTokens::Piece& piece : pieces) {
    if (piece.token != nullptr) {
      ids.push_back(piece.token->id);
      continue;
    }
    std::string_view plain = piece.text;
    if (!normalizer_.changes_nothing()) {
      normal = plain;
      normalizer_.apply(normal);
      plain = normal;
    }
    added_.cut(plain, true, inside);
    for (const AddedTokens::Piece& part : inside) {
      if (part.token != nullptr) {
        ids.push_back(part.token->id);
        continue;
      }
      const bool is_beginning = begins_texts_ && &piece == pieces.data() && &part == inside.data();
      pre_tokenizer_->split(part.text, words, is_beginning);
      for (const Pattern::Match& span : words.spans)
        word(std::string_view(words.text).substr(span.begin, span.end - span.begin), ids);
    }
  }
}

void ByteBpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  encode_words(text, ids,
               [this](std::string_view word, std::vector<int32_t>& to) { encode_word(word, to); });
}

void ByteBpeTokenizer::sample(std::string_view text, double alpha, ShuffleRng& rng,
                              std::vector<int32_t>& ids) const {
  std::vector<int32_t> tokens;
  encode_words(text, ids, [&](std::string_view word, std::vector<int32_t>& to) {
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

int32_t ByteBpeTokenizer::id(std::string_view token) const {
  const uint32_t entry = names_.find(token);
  return entry == SubwordTable::kNone ? special_.unk : static_cast<int32_t>(names_.id(entry));
}

bool ByteBpeTokenizer::continues_character(int32_t id) const {
  const std::string& bytes = bytes_[static_cast<size_t>(id)];
  return !bytes.empty() && (bytes.front() & 0xc0) == 0x80;
}

bool ByteBpeTokenizer::bos_is_subword() const noexcept {
  return special_.bos >= 0 && !is_special_[static_cast<size_t>(special_.bos)];
}

std::vector<NamedToken> ByteBpeTokenizer::special_names() const {
  std::vector<NamedToken> names;
  for (const AddedToken& token : added_.all())
    names.push_back({.name = token.text,
                     .id = token.id,
                     .takes_space_before = token.lstrip,
                     .takes_space_after = token.rstrip,
                     .is_single_word = token.single_word,
                     .stays_in_text = !token.special});
  return names;
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
  return std::make_unique<ByteBpeSampler>(*this);
}

}  // namespace trafo
