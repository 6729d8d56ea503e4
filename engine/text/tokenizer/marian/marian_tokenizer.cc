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
void check_marian_config(std::string_view text, const std::string& label, bool has_target_ids) {
  require(has_separate_vocabs(text, label) == has_target_ids, ErrorCode::corrupt_file,
          kTokenizerOrigin, label, ": separate_vocabs is ", has_target_ids ? "not true" : "true",
          ", and target_vocab.json is ", has_target_ids ? "given" : "missing");
  if (text.empty()) return;
  const Json json = parse_json(text, kTokenizerOrigin, label, {.depth = 32});
  const auto refuse = [&](const char* key, const char* reason) {
    fail(ErrorCode::unsupported, kTokenizerOrigin, label, ": ", key, reason);
  };
  const auto given = [&](const char* key) -> const Json* {
    const Json* found = json.find(key);
    return found == nullptr || found->as<std::nullptr_t>() ? nullptr : found;
  };
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

// The ids of a vocab.json, and those of the languages of M2M100 after them.
struct MarianTokenizer::Ids {
  Ids(std::string_view file, int64_t size, std::vector<std::string> languages,
      const std::string& label)
      : tokens(read_marian_ids(file, size, label)) {
    require(languages.size() < tokens.size(), ErrorCode::corrupt_file, kTokenizerOrigin, label,
            ": it has ", languages.size(), " languages and ", tokens.size(), " tokens");
    subwords = static_cast<int32_t>(tokens.size() - languages.size());
    for (size_t i = 0; i < languages.size(); ++i) {
      std::string& place = tokens[static_cast<size_t>(subwords) + i];
      require(place.empty(), ErrorCode::corrupt_file, kTokenizerOrigin, label, ": ", quote(place),
              " has the id of ", languages[i]);
      place = std::move(languages[i]);
    }
    by_name.reserve(tokens.size());
    for (size_t id = 0; id < tokens.size(); ++id)  // a language is that of the list
      if (!tokens[id].empty()) by_name.insert_or_assign(tokens[id], static_cast<int32_t>(id));
    unk = find("<unk>");
    eos = find("</s>");
    require(unk >= 0 && eos >= 0 && by_name.contains("</s>"), ErrorCode::corrupt_file,
            kTokenizerOrigin, label, " has no ", unk < 0 ? "<unk>" : "</s>");
  }

  int32_t find(std::string_view name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? unk : found->second;
  }

  std::vector<std::string> tokens;                        // names by id
  std::unordered_map<std::string_view, int32_t> by_name;  // of the file
  int32_t unk = -1, eos = -1, subwords = 0;  // ids from `subwords` on are languages of M2M100
};

struct MarianTokenizer::Side {
  Side(std::string_view file, const std::string& label, const Ids& names)
      : model(file, label), ids(names) {
    const int32_t count = model.vocab_size();
    of_subwords.reserve(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) of_subwords.push_back(ids.find(model.token(i)));
  }

  SentencePieceModel model;
  const Ids& ids;
  std::vector<int32_t> of_subwords;  // the ids of the subwords of the model
};

struct MarianTokenizer::Vocabulary {
  Vocabulary(const MarianParts& parts, const std::string& label)
      : ids(parts.files[kMarianIds], parts.source_tokens > 0 ? parts.source_tokens : parts.tokens,
            language_tokens(parts.languages), label + ": vocab.json"),
        target_ids(parts.source_tokens == 0
                       ? nullptr
                       : std::make_unique<Ids>(parts.files[kMarianTargetIds], parts.tokens,
                                               std::vector<std::string>(),
                                               label + ": target_vocab.json")),
        source(parts.files[kMarianSource], label + ": source.spm", ids),
        target(parts.files[kMarianTarget], label + ": target.spm", target_ids ? *target_ids : ids) {
    require(target.ids.eos == parts.ends.front(), ErrorCode::corrupt_file, kTokenizerOrigin, label,
            ": its first end is not </s> of ", target_ids ? "target_" : "", "vocab.json");
    require(ids.eos == target.ids.eos, ErrorCode::unsupported, kTokenizerOrigin, label,
            ": </s> is ", ids.eos, " in vocab.json and ", target.ids.eos,
            " in target_vocab.json; MarianTokenizer ends both sides with one id");
    for (Ids* each : {&ids, target_ids.get()})
      for (size_t id = 0; each != nullptr && id < each->tokens.size(); ++id)
        if (each->tokens[id].empty()) each->tokens[id] = concat("<unused:", id, ">");
  }

  bool has_languages() const { return ids.subwords < std::ssize(ids.tokens); }
  // The language tag in front of a text of MarianTokenizer, and the rest.
  std::pair<std::string_view, std::string_view> split(std::string_view text) const {
    return has_languages() ? std::pair{std::string_view(), text} : split_language(text);
  }

  Ids ids;
  std::unique_ptr<Ids> target_ids;  // null: targets have the ids of sources
  Side source, target;
};

MarianTokenizer::MarianTokenizer(std::string_view serialized, std::string_view label)
    : Model(serialized) {
  const MarianParts parts = parse_marian(serialized_, label);
  const std::string name(label);
  check_marian_config(parts.files[kMarianConfig], name + ": tokenizer_config.json",
                      parts.source_tokens > 0);
  vocabulary_ = std::make_shared<const Vocabulary>(parts, name);
  side_ = &vocabulary_->source;
  ids_side_ = &vocabulary_->target;
  const Ids& ids = ids_side_->ids;
  special_ = {.bos = parts.start, .eos = parts.ends.front(), .pad = -1, .unk = ids.unk};
  if (const auto pad = ids.by_name.find("<pad>");
      vocabulary_->has_languages() && pad != ids.by_name.end())
    special_.pad = pad->second;
  further_ends_.assign(parts.ends.begin() + 1, parts.ends.end());
  for (const Side* side : {&vocabulary_->source, &vocabulary_->target}) {
    if (&side->ids != &ids) continue;
    const std::string& start = ids.tokens[static_cast<size_t>(parts.start)];
    const int32_t id = side->model.id(start);
    if (side->model.token(id) == start && side->model.type(id) == SubwordType::normal)
      start_is_subword_ = true;
  }
  const auto side_of = [&](const Side& side) {
    return std::shared_ptr<const MarianTokenizer>(new MarianTokenizer(*this, side));
  };
  targets_ = side_of(vocabulary_->target);
  if (vocabulary_->target_ids) sources_ = side_of(vocabulary_->source);
}

MarianTokenizer::MarianTokenizer(const MarianTokenizer& sources, const Side& side)
    : Model(sources.serialized_),
      vocabulary_(sources.vocabulary_),
      side_(&side),
      ids_side_(sources.vocabulary_->target_ids ? &side : sources.ids_side_),
      start_is_subword_(sources.start_is_subword_) {
  special_ = sources.special_;
  further_ends_ = sources.further_ends_;
  if (&ids_side_->ids == &sources.ids_side_->ids) return;
  // Sources with their own ids have no first token of the decoder and one end.
  special_ = {.bos = -1, .eos = special_.eos, .pad = -1, .unk = ids_side_->ids.unk};
  further_ends_.clear();
  start_is_subword_ = false;
}

bool MarianTokenizer::is_language(int32_t id) const {
  return id >= ids_side_->ids.subwords;
}

int32_t MarianTokenizer::vocab_size() const noexcept {
  return static_cast<int32_t>(ids_side_->ids.tokens.size());
}

void MarianTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const auto [language, rest] = vocabulary_->split(text);
  side_->model.encode(rest, ids);
  // The library joins unknown characters. vocab.json may have what they are together.
  if (std::find(ids.begin(), ids.end(), side_->model.special_tokens().unk) != ids.end()) {
    ids.clear();
    for (const std::string& subword : side_->model.encode_as_text(rest))
      ids.push_back(side_->ids.find(subword));
  } else {
    for (int32_t& id : ids) id = side_->of_subwords[static_cast<size_t>(id)];
  }
  if (!language.empty()) ids.insert(ids.begin(), side_->ids.find(language));
}

std::string MarianTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> names;
  for (const int32_t id : ids) {
    const bool is_control = id == special_.eos || (id == special_.bos && !start_is_subword_) ||
                            id == special_.pad || is_language(id);
    if (!is_control) names.push_back(token(id));
  }
  std::string text = ids_side_->model.decode_names(names);
  for (size_t mark = 0; (mark = text.find(kSpaceMark, mark)) != std::string::npos;)
    text.replace(mark, kSpaceMark.size(), " ");
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

size_t MarianTokenizer::open_tail(std::span<const int32_t> ids) const {
  const SentencePieceModel& model = ids_side_->model;
  std::vector<int32_t> subwords;
  for (const int32_t id : ids) subwords.push_back(model.id(token(id)));
  return model.open_tail(subwords);
}

const std::string& MarianTokenizer::token(int32_t id) const {
  return ids_side_->ids.tokens[static_cast<size_t>(id)];
}

int32_t MarianTokenizer::id(std::string_view token) const {
  return ids_side_->ids.find(token);
}

bool MarianTokenizer::continues_character(int32_t id) const {
  const SentencePieceModel& model = ids_side_->model;
  return model.continues_character(model.id(token(id)));
}

// Names in texts are of the side of texts.
std::vector<NamedToken> MarianTokenizer::special_names() const {
  const Ids& ids = side_->ids;
  std::vector<NamedToken> names;
  const auto add = [&](int32_t id) {
    names.push_back({.name = ids.tokens[static_cast<size_t>(id)], .id = id});
  };
  add(ids.eos);
  add(ids.unk);
  if (&ids == &ids_side_->ids) {
    if (special_.bos >= 0 && special_.bos != special_.eos) add(special_.bos);
    if (special_.pad >= 0) add(special_.pad);
  } else if (const auto pad = ids.by_name.find("<pad>"); pad != ids.by_name.end()) {
    add(pad->second);
  }
  for (int32_t id = ids.subwords; id < std::ssize(ids.tokens); ++id) add(id);
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
    for (int32_t& id : ids) id = side_.of_subwords[static_cast<size_t>(id)];
    if (!language.empty()) ids.insert(ids.begin(), side_.ids.find(language));
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
