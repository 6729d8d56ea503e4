#include "engine/text/tokenizer/marian/marian_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "engine/core/argument_error.h"
#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/subword_sampling.h"

namespace trafo {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// A language tag and the text after it. As MarianTokenizer finds it: from ">>" at the beginning to
// the first "<<".
std::pair<std::string_view, std::string_view> split_language(std::string_view text) {
  const size_t end = text.starts_with(">>") ? text.find("<<") : std::string_view::npos;
  if (end == std::string_view::npos) return {{}, text};
  return {text.substr(0, end + 2), text.substr(end + 2)};
}

// Refuses what MarianTokenizer would read otherwise than it is read here.
void check_marian_config(std::string_view text, const std::string& label) {
  if (text.empty()) return;
  const Json json = parse_json(text, kTokenizerOrigin, label, {.depth = 32});
  const auto refuse = [&](const char* key, const char* reason) {
    fail(ErrorCode::unsupported, kTokenizerOrigin, label, ": ", key, reason);
  };
  const auto given = [&](const char* key) -> const Json* {
    const Json* found = json.find(key);
    return found == nullptr || found->as<std::nullptr_t>() ? nullptr : found;
  };
  if (const Json* separate = given("separate_vocabs")) {
    const bool* flag = separate->as<bool>();
    if (flag == nullptr || *flag)
      refuse("separate_vocabs", " is not false; models here have one vocabulary for both sides");
  }
  if (const Json* options = given("sp_model_kwargs")) {
    const auto* members = options->as<Json::Object>();
    if (members == nullptr || !members->empty())
      refuse("sp_model_kwargs", " is given; subwords are not sampled by a vocabulary here");
  }
  const auto demand = [&](const char* key, std::string_view wanted, const char* reason) {
    const Json* found = given(key);
    if (found == nullptr) return;
    if (const Json* content = found->find("content")) found = content;
    const auto* name = found->as<std::string>();
    if (name == nullptr || *name != wanted) refuse(key, reason);
  };
  demand("unk_token", "<unk>", " is not <unk>");
  demand("eos_token", "</s>", " is not </s>");
}

}  // namespace

struct MarianTokenizer::Side {
  Side(std::string_view file, const std::string& label) : model(file, label) {}

  SentencePieceModel model;
  std::vector<int32_t> ids;  // of the subwords of the model
};

struct MarianTokenizer::Vocabulary {
  Vocabulary(const MarianParts& parts, const std::string& label)
      : source(parts.files[kMarianSource], label + ": source.spm"),
        target(parts.files[kMarianTarget], label + ": target.spm"),
        tokens(read_marian_ids(parts.files[kMarianIds], parts.tokens, label + ": vocab.json")) {
    std::vector<std::string> languages = language_tokens(parts.languages);
    require(languages.size() < tokens.size(), ErrorCode::corrupt_file, kTokenizerOrigin, label,
            ": it has ", languages.size(), " languages and ", tokens.size(), " tokens");
    subwords = static_cast<int32_t>(tokens.size() - languages.size());
    for (size_t i = 0; i < languages.size(); ++i) {
      std::string& place = tokens[static_cast<size_t>(subwords) + i];
      require(place.empty(), ErrorCode::corrupt_file, kTokenizerOrigin, label, ": ", quote(place),
              " of vocab.json has the id of ", languages[i]);
      place = std::move(languages[i]);
    }
    by_name.reserve(tokens.size());
    for (size_t id = 0; id < tokens.size(); ++id)  // a language is that of the list
      if (!tokens[id].empty()) by_name.insert_or_assign(tokens[id], static_cast<int32_t>(id));
    const auto unknown = by_name.find("<unk>");
    require(unknown != by_name.end(), ErrorCode::corrupt_file, kTokenizerOrigin, label,
            ": vocab.json has no <unk>");
    unk = unknown->second;
    const auto end = by_name.find("</s>");
    require(end != by_name.end() && end->second == parts.ends.front(), ErrorCode::corrupt_file,
            kTokenizerOrigin, label, ": its first end is not </s> of vocab.json");
    for (Side* side : {&source, &target}) {
      const int32_t count = side->model.vocab_size();
      side->ids.reserve(static_cast<size_t>(count));
      for (int32_t i = 0; i < count; ++i) side->ids.push_back(find(side->model.token(i)));
    }
    for (size_t id = 0; id < tokens.size(); ++id)
      if (tokens[id].empty()) tokens[id] = concat("<unused:", id, ">");
  }

  int32_t find(std::string_view name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? unk : found->second;
  }

  bool has_languages() const { return subwords < std::ssize(tokens); }
  // The language tag in front of a text of MarianTokenizer, and the rest.
  std::pair<std::string_view, std::string_view> split(std::string_view text) const {
    return has_languages() ? std::pair{std::string_view(), text} : split_language(text);
  }

  Side source, target;
  std::vector<std::string> tokens;                        // names by id
  std::unordered_map<std::string_view, int32_t> by_name;  // of vocab.json
  int32_t unk = -1, subwords = 0;  // ids from `subwords` on are languages of M2M100
};

MarianTokenizer::MarianTokenizer(std::string_view serialized, std::string_view label)
    : Model(serialized) {
  const MarianParts parts = parse_marian(serialized_, label);
  const std::string name(label);
  check_marian_config(parts.files[kMarianConfig], name + ": tokenizer_config.json");
  vocabulary_ = std::make_shared<const Vocabulary>(parts, name);
  side_ = &vocabulary_->source;
  special_ = {.bos = parts.start, .eos = parts.ends.front(), .pad = -1, .unk = vocabulary_->unk};
  if (const auto pad = vocabulary_->by_name.find("<pad>");
      vocabulary_->has_languages() && pad != vocabulary_->by_name.end())
    special_.pad = pad->second;
  further_ends_.assign(parts.ends.begin() + 1, parts.ends.end());
  for (const Side* side : {&vocabulary_->source, &vocabulary_->target}) {
    const std::string& start = vocabulary_->tokens[static_cast<size_t>(parts.start)];
    const int32_t id = side->model.id(start);
    if (side->model.token(id) == start && side->model.type(id) == SubwordType::normal)
      start_is_subword_ = true;
  }
  targets_ =
      std::shared_ptr<const MarianTokenizer>(new MarianTokenizer(*this, vocabulary_->target));
}

MarianTokenizer::MarianTokenizer(const MarianTokenizer& sources, const Side& side)
    : Model(sources.serialized_),
      vocabulary_(sources.vocabulary_),
      side_(&side),
      start_is_subword_(sources.start_is_subword_) {
  special_ = sources.special_;
  further_ends_ = sources.further_ends_;
}

int32_t MarianTokenizer::vocab_size() const noexcept {
  return static_cast<int32_t>(vocabulary_->tokens.size());
}

void MarianTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const auto [language, rest] = vocabulary_->split(text);
  side_->model.encode(rest, ids);
  // The library joins unknown characters. vocab.json may have what they are together.
  if (std::find(ids.begin(), ids.end(), side_->model.special_tokens().unk) != ids.end()) {
    ids.clear();
    for (const std::string& subword : side_->model.encode_as_text(rest))
      ids.push_back(vocabulary_->find(subword));
  } else {
    for (int32_t& id : ids) id = side_->ids[static_cast<size_t>(id)];
  }
  if (!language.empty()) ids.insert(ids.begin(), vocabulary_->find(language));
}

std::string MarianTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> names;
  for (const int32_t id : ids) {
    const bool is_control = id == special_.eos || (id == special_.bos && !start_is_subword_) ||
                            id == special_.pad || id >= vocabulary_->subwords;
    if (!is_control) names.push_back(token(id));
  }
  std::string text = vocabulary_->target.model.decode_names(names);
  for (size_t mark = 0; (mark = text.find(kSpaceMark, mark)) != std::string::npos;)
    text.replace(mark, kSpaceMark.size(), " ");
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

size_t MarianTokenizer::open_tail(std::span<const int32_t> ids) const {
  const SentencePieceModel& targets = vocabulary_->target.model;
  std::vector<int32_t> subwords;
  for (const int32_t id : ids) subwords.push_back(targets.id(token(id)));
  return targets.open_tail(subwords);
}

const std::string& MarianTokenizer::token(int32_t id) const {
  return vocabulary_->tokens[static_cast<size_t>(id)];
}

int32_t MarianTokenizer::id(std::string_view token) const {
  return vocabulary_->find(token);
}

bool MarianTokenizer::continues_character(int32_t id) const {
  const SentencePieceModel& targets = vocabulary_->target.model;
  return targets.continues_character(targets.id(token(id)));
}

std::vector<NamedToken> MarianTokenizer::special_names() const {
  std::vector<NamedToken> names;
  const auto add = [&](int32_t id) { names.push_back({.name = token(id), .id = id}); };
  add(special_.eos);
  add(special_.unk);
  if (special_.bos != special_.eos) add(special_.bos);
  if (special_.pad >= 0) add(special_.pad);
  for (int32_t id = vocabulary_->subwords; id < vocab_size(); ++id) add(id);
  return names;
}

// Samples the subwords of the text after the language.
class MarianTokenizer::Sampler final : public SubwordSampler {
 public:
  explicit Sampler(const MarianTokenizer& tokenizer)
      : vocabulary_(*tokenizer.vocabulary_),
        side_(*tokenizer.side_),
        sampler_(side_.model.sampler()) {}
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override {
    const auto [language, rest] = vocabulary_.split(text);
    sampler_->sample(rest, alpha, rng, ids);
    for (int32_t& id : ids) id = side_.ids[static_cast<size_t>(id)];
    if (!language.empty()) ids.insert(ids.begin(), vocabulary_.find(language));
  }

 private:
  const Vocabulary& vocabulary_;
  const Side& side_;
  std::unique_ptr<const SubwordSampler> sampler_;
};

std::unique_ptr<const SubwordSampler> MarianTokenizer::sampler() const {
  return std::make_unique<Sampler>(*this);
}

Tokenizer load_marian(std::string_view file_bytes, std::string_view label) {
  return Tokenizer(std::make_shared<MarianTokenizer>(file_bytes, label));
}

void validate_marian(const TokenizerTrainOptions&) {
  refuse_argument(kTokenizerOrigin, "kind",
                  " is marian: such a vocabulary comes with an imported model and is not trained");
}

}  // namespace trafo
