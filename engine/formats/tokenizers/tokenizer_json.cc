#include "engine/formats/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <optional>

#include "engine/formats/hf/directory.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/formats/tokenizers/spelled_tokens.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors_header.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"
#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace trafo::interop {
namespace {

constexpr uint64_t kFileBytes = 64u << 20;  // Gemma's, the largest known, has 33 MB

// Text of a key that may be missing.
std::string text_of(const Json* value) {
  const std::string* text = value != nullptr ? value->as<std::string>() : nullptr;
  return text != nullptr ? *text : std::string();
}

class Converter {
 public:
  Converter(std::string label, TokenizerText text)
      : label_(std::move(label)), text_(std::move(text)) {}

  Tokenizer convert(const SpecialIds& ids);

 private:
  // ---- reading ----
  template <class... Why>
  [[noreturn]] void refuse(const char* key, const Why&... why) const {
    fail(ErrorCode::unsupported, kOrigin, label_, ": ", key, ": ", why...,
         "; the tokenizer cannot be made a SentencePiece model");
  }
  template <class... Why>
  void check(bool good, const Why&... why) const {
    require(good, ErrorCode::corrupt_file, kOrigin, label_, ": ", why...);
  }
  // The object of a key, or null where it is missing or null.
  const Json* object(const Json& from, const char* key) const {
    const Json* found = from.find(key);
    if (found == nullptr || found->as<std::nullptr_t>()) return nullptr;
    check(found->as<Json::Object>() != nullptr, key, " is not an object");
    return found;
  }
  bool flag(const Json& from, const char* key, bool otherwise) const {
    const Json* found = from.find(key);
    if (found == nullptr || found->as<std::nullptr_t>()) return otherwise;
    check(found->as<bool>() != nullptr, key, " is not true or false");
    return *found->as<bool>();
  }
  // A step and, where it is a Sequence, the steps in it.
  std::vector<const Json*> steps(const char* part, const char* list) const;

  void read_model();
  size_t read_map(const std::vector<const Json*>& steps);
  void read_normalizer();
  void read_pre_tokenizer();
  void read_added_tokens();
  void read_listed_tokens();
  void read_spelled();
  void erase_spelled(std::vector<const Json*>& steps) const;
  void read_replacement(const Json& step);
  void set_type(int64_t id, const std::string& content, SubwordType type);
  void score_by_merges();
  void check_all_merges(const std::vector<uint32_t>& listed) const;

  // ---- writing ----
  int32_t named(const char* name) const;
  std::string serialized(const SpecialIds& ids) const;

  std::string label_;
  TokenizerText text_;
  std::vector<ScoredSubword> subwords_;  // by id; an empty text: none
  bool is_unigram_ = false, byte_fallback_ = false;
  int32_t unk_ = -1;
  std::string character_map_;
  bool prefix_ = false, collapse_ = false, strips_ = false, splits_ = false;
  std::optional<SpelledTokens> spelled_;
};

std::vector<const Json*> Converter::steps(const char* part, const char* list) const {
  const Json* top = object(text_.rest, part);
  if (top == nullptr) return {};
  if (text_of(top->find("type")) != "Sequence") return {top};
  const Json* inside = top->find(list);
  const auto* items = inside != nullptr ? inside->as<Json::List>() : nullptr;
  check(items != nullptr, part, " has no list ", list);
  std::vector<const Json*> result;
  for (const Json& item : *items) {
    check(item.as<Json::Object>() != nullptr, part, " has a step that is not an object");
    result.push_back(&item);
  }
  return result;
}

// ---- the model ----

void Converter::read_model() {
  const Json* found = object(text_.rest, "model");
  check(found != nullptr, "it has no model");
  const Json& model = *found;
  const std::string type = text_of(model.find("type"));
  // Files of the first releases have no type.
  is_unigram_ = type == "Unigram" || (type.empty() && text_.has_scores);
  if (!is_unigram_ && type != "BPE" && !(type.empty() && !text_.merges.empty()))
    refuse("model: type", type.empty() ? "none is given" : "it is ", quote(type));
  check(is_unigram_ == text_.has_scores, "model: vocab does not fit its type");
  byte_fallback_ = flag(model, "byte_fallback", false);

  const SubwordTable& vocabulary = text_.vocabulary;
  check(vocabulary.size() > 0, "model: vocab is empty");
  uint32_t last = 0;
  for (size_t i = 0; i < vocabulary.size(); ++i) last = std::max(last, vocabulary.id(i));
  subwords_.resize(last + size_t{1});
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    ScoredSubword& subword = subwords_[vocabulary.id(i)];
    check(subword.text.empty(), "model: vocab: the id ", vocabulary.id(i), " has two subwords");
    subword.text = vocabulary.text(i);
    subword.score = vocabulary.score(i);
  }
  if (is_unigram_) {
    const Json* unk = model.find("unk_id");
    if (unk == nullptr || !unk->is_integer()) refuse("model: unk_id", "there is none");
    check(unk->number() >= 0 && unk->number() <= last, "model: unk_id is not an id of vocab");
    unk_ = static_cast<int32_t>(unk->number());
  } else {
    if (flag(model, "ignore_merges", false)) refuse("model: ignore_merges", "it is true");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!text_of(model.find(key)).empty()) refuse("model", key, " is not empty");
    const Json* dropout = model.find("dropout");
    if (dropout != nullptr && dropout->is_number() && dropout->number() != 0)
      refuse("model: dropout", "it is not 0");
    const std::string unk = text_of(model.find("unk_token"));
    const uint32_t entry = vocabulary.find(unk.empty() ? "<unk>" : unk);
    if (entry == SubwordTable::kNone) refuse("model: unk_token", "vocab has no such subword");
    unk_ = static_cast<int32_t>(vocabulary.id(entry));
    if (!byte_fallback_ && !flag(model, "fuse_unk", false))
      refuse("model: fuse_unk", "it is false");
  }
  subwords_[static_cast<size_t>(unk_)].type = SubwordType::unknown;
  if (!byte_fallback_) return;
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string name = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    const uint32_t entry = vocabulary.find(name);
    if (entry == SubwordTable::kNone) refuse("model: byte_fallback", "vocab has no ", name);
    subwords_[vocabulary.id(entry)].type = SubwordType::byte;
  }
}

// SentencePiece merges the two neighbours whose subword has the best score; the library those of
// the first merge of its list. Both do the same if every way to make a subword is on the list, one
// behind the other.
void Converter::score_by_merges() {
  const SubwordTable& vocabulary = text_.vocabulary;
  const auto is_normal = [&](uint32_t entry) {
    return subwords_[vocabulary.id(entry)].type == SubwordType::normal;
  };
  std::vector<uint32_t> listed(vocabulary.size());  // merges that give a subword
  uint32_t before = SubwordTable::kNone;
  int64_t rank = 0;
  for (const Merge& merge : text_.merges) {
    if (!is_normal(merge.result) || !is_normal(merge.left) || !is_normal(merge.right)) continue;
    if (merge.result != before) {
      if (listed[merge.result] > 0)
        refuse("model: merges", "those of ", quote(vocabulary.text(merge.result)),
               " do not stand together");
      subwords_[vocabulary.id(merge.result)].score = static_cast<float>(-rank++);
    }
    before = merge.result;
    ++listed[merge.result];
  }
  check_all_merges(listed);
  for (size_t i = 0; i < vocabulary.size(); ++i)  // subwords that no merge makes, after all others
    if (listed[i] == 0) subwords_[vocabulary.id(i)].score = static_cast<float>(-rank);
}

void Converter::check_all_merges(const std::vector<uint32_t>& listed) const {
  const SubwordTable& vocabulary = text_.vocabulary;
  const auto normal = [&](std::string_view part) {
    const uint32_t entry = vocabulary.find(part);
    return entry != SubwordTable::kNone &&
           subwords_[vocabulary.id(entry)].type == SubwordType::normal;
  };
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view text = vocabulary.text(i);
    if (subwords_[vocabulary.id(i)].type != SubwordType::normal) continue;
    uint32_t ways = 0;
    for (size_t cut = 1; cut < text.size(); ++cut)
      if ((text[cut] & 0xc0) != 0x80 && normal(text.substr(0, cut)) && normal(text.substr(cut)))
        ++ways;
    if (ways != listed[i])
      refuse("model: merges", quote(text), " has ", listed[i], " of the ", ways,
             " that SentencePiece would make");
  }
}

// ---- what is done to a text before ----

void Converter::read_replacement(const Json& step) {
  const Json* pattern = object(step, "pattern");
  check(pattern != nullptr, "normalizer: Replace has no pattern");
  const std::string content = text_of(step.find("content"));
  const std::string plain = text_of(pattern->find("String"));
  const std::string regex = text_of(pattern->find("Regex"));
  if (plain == " " && content == kSpace) return;  // done in any case
  if (regex == kSeveralSpaces && (content == " " || content == kSpace))
    collapse_ = true;
  else if (regex == kEdgeSpaces && content.empty())
    strips_ = true;
  else
    refuse("normalizer: Replace", "of ", quote((plain.empty() ? regex : plain).substr(0, 40)));
}

std::string from_base64(const std::string& text) {
  std::string bytes;
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return {};
    group = group << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 0xff);
  }
  return bytes;
}

// The number of the steps that normalizer_steps() made.
size_t Converter::read_map(const std::vector<const Json*>& steps) {
  const auto map = std::find_if(steps.begin(), steps.end(), [](const Json* step) {
    return text_of(step->find("type")) == "Precompiled";
  });
  if (map == steps.end()) return 0;
  const std::string text = text_of((*map)->find("precompiled_charsmap"));
  character_map_ = from_base64(text);
  check(text.empty() || !character_map_.empty(), "normalizer: precompiled_charsmap is no base64");
  if (map == steps.begin() || character_map_.empty()) return 0;
  const std::optional<Json::List> known = normalizer_steps(character_map_, label_);
  const bool same = known && known->size() <= steps.size() &&
                    std::equal(known->begin(), known->end(), steps.begin(),
                               [](const Json& a, const Json* b) { return a == *b; });
  return same ? known->size() : 0;
}

void Converter::read_normalizer() {
  std::vector<const Json*> all = steps("normalizer", "normalizers");
  erase_spelled(all);
  all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(read_map(all)));
  for (const Json* step : all) {
    const std::string type = text_of(step->find("type"));
    if (type == "Precompiled") continue;
    if (type == "Replace") {
      read_replacement(*step);
    } else if (type == "Prepend") {
      if (text_of(step->find("prepend")) != kSpace)
        refuse("normalizer: Prepend", "of ", quote(text_of(step->find("prepend"))));
      prefix_ = true;
    } else if (type == "Strip") {
      strips_ = true;
    } else {
      refuse("normalizer", "the step ", quote(type));
    }
  }
  if (strips_ && !collapse_) refuse("normalizer: Strip", "spaces inside a text are kept");
}

void Converter::read_pre_tokenizer() {
  for (const Json* step : steps("pre_tokenizer", "pretokenizers")) {
    if (spelled_ && *step == spelled_->pre_tokenizer) continue;
    const std::string type = text_of(step->find("type"));
    if (type == "WhitespaceSplit") {
      collapse_ = splits_ = true;
      continue;
    }
    if (type != "Metaspace") refuse("pre_tokenizer", "the step ", quote(type));
    if (text_of(step->find("replacement")) != kSpace)
      refuse("pre_tokenizer: replacement", quote(text_of(step->find("replacement"))));
    const std::string scheme = text_of(step->find("prepend_scheme"));
    prefix_ = scheme.empty() ? flag(*step, "add_prefix_space", true) : scheme != "never";
    splits_ = splits_ || flag(*step, "split", true);
  }
  if (!splits_) return;
  for (const ScoredSubword& subword : subwords_)
    if (subword.type == SubwordType::normal && subword.text.rfind(kSpace) != std::string::npos &&
        subword.text.rfind(kSpace) > 0)
      refuse("pre_tokenizer: split", "it is true, and ", quote(subword.text),
             " is longer than a word");
}

// ---- special tokens ----

void Converter::set_type(int64_t id, const std::string& content, SubwordType type) {
  const auto place = static_cast<size_t>(id);
  if (place >= subwords_.size()) subwords_.resize(place + 1);
  ScoredSubword& subword = subwords_[place];
  check(subword.text.empty() || subword.text == content, "added_tokens: ", quote(content),
        " has the id of ", quote(subword.text));
  subword.text = content;
  if (subword.type == SubwordType::normal) subword.type = type;
}

void Converter::read_added_tokens() {
  const Json* found = text_.rest.find("added_tokens");
  if (found == nullptr) return;
  const auto* list = found->as<Json::List>();
  check(list != nullptr, "added_tokens is no list");
  // No token of a real file is far from the others.
  const size_t limit = subwords_.size() + list->size() + 65536;
  for (const Json& token : *list) {
    const Json* id = token.find("id");
    const std::string content = text_of(token.find("content"));
    check(id != nullptr && id->is_integer() && id->number() >= 0 &&
              id->number() < static_cast<double>(limit) && !content.empty(),
          "added_tokens: ", quote(content), " has no id below ", limit);
    const bool special = flag(token, "special", false);
    if (!special)
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (flag(token, key, false)) refuse("added_tokens", quote(content), " has ", key);
    set_type(static_cast<int64_t>(id->number()), content,
             special ? SubwordType::control : SubwordType::user_defined);
  }
}

// The post-processor's special tokens, named as they are: files of ours have them there alone.
void Converter::read_listed_tokens() {
  for (const Json* step : steps("post_processor", "processors")) {
    const Json* listed = object(*step, "special_tokens");
    if (listed == nullptr) continue;
    for (const Json::Member& member : *listed->as<Json::Object>()) {
      const Json* found = member.value.find("ids");
      const auto* ids = found != nullptr ? found->as<Json::List>() : nullptr;
      if (ids == nullptr || ids->size() != 1) continue;  // a name for several tokens
      const uint32_t entry = text_.vocabulary.find(member.key);
      if (entry == SubwordTable::kNone) continue;
      check(ids->front().is_integer() && ids->front().number() == text_.vocabulary.id(entry),
            "post_processor: ", quote(member.key), " has another id than in vocab");
      set_type(text_.vocabulary.id(entry), member.key, SubwordType::control);
    }
  }
}

void Converter::read_spelled() {
  if (!is_unigram_) return;
  SpmModel model;
  model.subwords = subwords_;
  spelled_ = keep_spelled(model);
}

// Takes out the steps of keep_spelled(), which SentencePiece does not need.
void Converter::erase_spelled(std::vector<const Json*>& steps) const {
  if (!spelled_) return;
  const Json::List& known = spelled_->normalizers;
  const auto place = std::search(steps.begin(), steps.end(), known.begin(), known.end(),
                                 [](const Json* a, const Json& b) { return *a == b; });
  if (place != steps.end()) steps.erase(place, place + std::ssize(known));
}

int32_t Converter::named(const char* name) const {
  for (size_t id = 0; id < subwords_.size(); ++id)
    if (subwords_[id].text == name && subwords_[id].type == SubwordType::control)
      return static_cast<int32_t>(id);
  return -1;
}

std::string Converter::serialized(const SpecialIds& ids) const {
  namespace field = spm_field;
  WireWriter trainer, normalizer, out;
  trainer.integer(field::kModelType,
                  static_cast<int64_t>(is_unigram_ ? SpmKind::unigram : SpmKind::bpe));
  trainer.integer(field::kByteFallback, byte_fallback_ ? 1 : 0);
  trainer.bytes(field::kUnkToken, subwords_[static_cast<size_t>(unk_)].text);
  if (!character_map_.empty()) normalizer.bytes(field::kCharacterMap, character_map_);
  normalizer.integer(field::kDummyPrefix, prefix_ ? 1 : 0);
  normalizer.integer(field::kExtraWhitespaces, collapse_ ? 1 : 0);
  normalizer.integer(field::kEscape, 1);
  out.bytes(field::kTrainer, trainer.message());
  out.bytes(field::kNormalizer, normalizer.message());
  SpmModel model;
  model.rest = out.message();
  const auto known = [&](int32_t id, const char* name) {
    const bool there = id >= 0 && static_cast<size_t>(id) < subwords_.size() &&
                       subwords_[static_cast<size_t>(id)].type == SubwordType::control;
    return there ? id : named(name);
  };
  SpecialIds special{known(ids.bos, "<s>"), known(ids.pad, "<pad>"), ids.eos};
  if (special.eos.empty() && named("</s>") >= 0) special.eos.push_back(named("</s>"));
  if (special.eos.empty()) refuse("added_tokens", "no token ends a text: there is no </s>");
  return serialize_spm(model, subwords_, special, label_);
}

Tokenizer Converter::convert(const SpecialIds& ids) {
  read_model();
  read_added_tokens();
  read_listed_tokens();
  read_spelled();
  read_normalizer();
  read_pre_tokenizer();
  if (!is_unigram_) score_by_merges();
  for (size_t id = 0; id < subwords_.size(); ++id)
    if (subwords_[id].text.empty())
      subwords_[id] = {concat("<unused:", id, ">"), 0, SubwordType::unused};
  return load_sentencepiece(serialized(ids), label_);
}

}  // namespace

Tokenizer read_tokenizer_json(const std::filesystem::path& file, const SpecialIds& ids,
                              std::vector<CompanionFile> companions) {
  const std::string label = file.string();
  std::error_code ignored;
  require(std::filesystem::file_size(file, ignored) <= kFileBytes || ignored,
          ErrorCode::unsupported, kOrigin, label, " has more than ", kFileBytes,
          " bytes, which no tokenizer needs");
  const std::string bytes = read_text_file(file, kFileBytes);
  TokenizerText text = read_tokenizer_text(bytes, kOrigin, label);
  if (is_wordpiece_file(bytes))
    return Tokenizer(
        std::make_shared<WordPieceTokenizer>(bytes, text, label, std::move(companions)));
  if (is_byte_bpe(text, label))
    return Tokenizer(std::make_shared<ByteBpeTokenizer>(bytes, text, label, std::move(companions)));
  return Converter(label, std::move(text)).convert(ids);
}

std::optional<Tokenizer> sentencepiece_form(const Tokenizer& tokenizer) {
  if (tokenizer.kind() != ByteBpeTokenizer::kKind) return std::nullopt;
  const std::string label(tokenizer.file_name());
  TokenizerText text = read_tokenizer_text(tokenizer.serialized(), kOrigin, label);
  if (is_byte_level(text, label)) return std::nullopt;
  SpecialIds ids{tokenizer.bos_id(), tokenizer.pad_id(), {tokenizer.eos_id()}};
  ids.eos.insert(ids.eos.end(), tokenizer.further_end_ids().begin(),
                 tokenizer.further_end_ids().end());
  return Converter(label, std::move(text)).convert(ids);
}

}  // namespace trafo::interop
