#include "engine/formats/hf/lm_files.h"

#include <algorithm>

#include "engine/decode/options.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/formats/tokenizers/tokenizer_json.h"
#include "engine/io/atomic_file.h"
#include "engine/text/chat_template/chat_template.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

// The usual limit of a translation (engine/decode/options.h), where the model has the positions:
// half of them are the source's.
int64_t longest_translation(const ModelSpec& spec) {
  return std::min(DecodeOptions{}.max_length, std::max<int64_t>(1, spec.max_positions / 2));
}

bool has_companion(const Tokenizer& tokenizer, std::string_view name) {
  const std::vector<CompanionFile>& files = tokenizer.companions();
  return std::any_of(files.begin(), files.end(),
                     [&](const CompanionFile& file) { return file.name == name; });
}

}  // namespace

void put_special_ids(const VocabularyTokens& tokens, Json& json) {
  const SpecialTokens& special = tokens.special;
  json["bos_token_id"] = special.start();
  const std::vector<int32_t>& further = tokens.further_ends;
  if (further.empty()) {
    json["eos_token_id"] = special.eos;
  } else {
    Json::List ends{special.eos};
    ends.insert(ends.end(), further.begin(), further.end());
    json["eos_token_id"] = std::move(ends);
  }
  json["pad_token_id"] = special.pad < 0 ? special.eos : special.pad;
}

void put_type_and_version(Json& json) {
  json["torch_dtype"] = "float32";
  json["transformers_version"] = "4.57.3";
}

Json never_generated(const SpecialTokens& tokens) {
  Json::List never;
  for (const int32_t id : {tokens.unk, tokens.bos, tokens.pad})
    if (id >= 0 && id != tokens.eos) never.push_back(id);
  return never;
}

void write_generation(const ExportVocabulary& vocabulary, const ModelSpec& spec,
                      const fs::path& directory) {
  // write_lm_tokenizer() writes a companion.
  if (vocabulary.tokenizer && has_companion(*vocabulary.tokenizer, kGenerationFile)) return;
  Json generation;
  put_special_ids(vocabulary.tokens, generation);
  generation["max_new_tokens"] = longest_translation(spec);
  generation["suppress_tokens"] = never_generated(vocabulary.tokens.special);
  write_json(directory / "generation_config.json", generation);
}

namespace {

Json tokenizer_config(const Tokenizer& tokenizer, const TextFrame& frame, const ModelSpec& spec) {
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["model_max_length"] = spec.max_positions;
  json["clean_up_tokenization_spaces"] = false;
  json["model_input_names"] = Json::List{"input_ids", "attention_mask"};
  const bool is_encoder = spec.architecture == Architecture::encoder;
  // A translation follows the end of the source.
  json["padding_side"] = is_encoder ? "right" : "left";
  json["add_bos_token"] = frame.begin;
  json["add_eos_token"] = frame.end;
  json["split_special_tokens"] = true;  // "</s>" in a text is no token, as in SentencePiece
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0) json[key] = tokenizer.token(id);
  };
  name("unk_token", tokenizer.unk_id());
  name("bos_token", tokenizer.bos_id());
  name("eos_token", tokenizer.eos_id());
  name("pad_token", tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id());
  if (!is_encoder) return json;
  name("cls_token", tokenizer.bos_id());
  name("sep_token", tokenizer.eos_id());
  for (const char* mask : {"[MASK]", "<mask>"})
    if (const int32_t id = tokenizer.id(mask); id != tokenizer.unk_id())
      json["mask_token"] = tokenizer.token(id);
  return json;
}

// tokenizer.json with this frame around a text.
std::string with_frame(const Tokenizer& tokenizer, const VocabularyTokens& tokens) {
  const TextFrame& frame = tokens.frame;
  Json processor = nullptr;
  if (frame.begin || frame.end) {
    const auto name = [&](bool there, int32_t id) {
      return there ? tokenizer.token(id) : std::string();
    };
    const std::string begin = name(frame.begin, tokens.special.bos),
                      end = name(frame.end, tokens.special.eos);
    Json::Object listed;
    const auto list = [&](const std::string& token, int32_t id) {
      listed.push_back(
          {token,
           Json::Object{{"id", token}, {"ids", Json::List{id}}, {"tokens", Json::List{token}}}});
    };
    if (frame.begin) list(begin, tokens.special.bos);
    if (frame.end && end != begin) list(end, tokens.special.eos);
    processor = frame_template(frame, begin, end, std::move(listed));
  }
  return with_member(tokenizer.serialized(), "post_processor", processor.dump());
}

}  // namespace

TextFrame read_frame(const fs::path& directory, const VocabularyTokens& tokens,
                     const std::optional<Tokenizer>& tokenizer) {
  const SpecialTokens& special = tokens.special;
  std::error_code ignored;
  const fs::path file = directory / "tokenizer.json", flags = directory / kTokenizerConfigFile;
  const bool is_stored = fs::exists(file, ignored);
  // A vocab.txt has become a tokenizer.json.
  if (tokenizer && (is_stored || tokenizer->kind() == WordPieceTokenizer::kKind)) {
    const std::string label = is_stored ? file.string() : std::string(tokenizer->file_name());
    const TokenizerText text = read_tokenizer_text(
        is_stored ? read_text_file(file, limits::kTokenizerBytes) : tokenizer->serialized(),
        kOrigin, label);
    const JsonPart json(label, text.rest);
    const AddedAround around = read_post_processor(json, tokenizer->vocab_size());
    const std::vector<int32_t>&before = around.before, &after = around.after;
    // The end of the model replaces any that is added (eos_token_id).
    if (before.size() > 1 || after.size() > 1 || (!before.empty() && before[0] != special.bos))
      json.at("post_processor")
          .refuse("it adds ", before.size(), " tokens before a text and ", after.size(),
                  " after it; bos_token, ", special.bos, ", and an end can be added");
    return {!before.empty(), !after.empty()};
  }
  if (!fs::exists(flags, ignored)) return {};
  JsonBounds bounds;
  bounds.bytes = kCompanionBytes;
  const std::string label = flags.string();
  const Json json = parse_json(read_text_file(flags, kCompanionBytes), kOrigin, label, bounds);
  const JsonPart config(label, json);
  if (!config.find("add_bos_token") && !config.find("add_eos_token")) return {};
  return {config.flag("add_bos_token", false) && special.bos >= 0,
          config.flag("add_eos_token", false)};
}

namespace {

// None: what the files say is no frame.
std::optional<TextFrame> stored_frame(const fs::path& directory,
                                      const ExportVocabulary& vocabulary) {
  try {
    return read_frame(directory, vocabulary.tokens, vocabulary.tokenizer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

}  // namespace

void write_lm_tokenizer(const ExportVocabulary& vocabulary, const ModelSpec& spec,
                        const fs::path& directory) {
  if (!vocabulary.tokenizer) return;
  const Tokenizer& tokenizer = *vocabulary.tokenizer;
  const TextFrame& frame = vocabulary.tokens.frame;
  const fs::path config = directory / kTokenizerConfigFile;
  if (tokenizer.as_sentencepiece() == nullptr) {  // a tokenizer.json: as it came
    const fs::path json = directory / tokenizer.file_name();
    write_file_atomically(json, tokenizer.serialized());
    for (const CompanionFile& file : tokenizer.companions())
      write_file_atomically(directory / file.name, file.content);
    if (!has_companion(tokenizer, kTokenizerConfigFile))
      write_json(config, tokenizer_config(tokenizer, frame, spec));
    if (stored_frame(directory, vocabulary) != frame)
      write_file_atomically(json, with_frame(tokenizer, vocabulary.tokens));
    return;
  }
  write_file_atomically(directory / "tokenizer.model", tokenizer.serialized());
  for (const CompanionFile& file : tokenizer.companions())
    write_file_atomically(directory / file.name, file.content);
  const std::optional<Json> fast = fast_tokenizer(tokenizer, frame);
  if (!fast) return;
  write_json(config, tokenizer_config(tokenizer, frame, spec));
  write_json(directory / "tokenizer.json", *fast);
}

std::vector<int32_t> read_end_ids(const ConfigReader& config) {
  std::vector<int32_t> ends;
  if (!config.has("eos_token_id")) return ends;
  for (const int64_t id : config.integers("eos_token_id", -1, limits::kVocabulary))
    if (id >= 0 && std::find(ends.begin(), ends.end(), id) == ends.end())
      ends.push_back(static_cast<int32_t>(id));
  return ends;
}

SpecialIds read_special_ids(const fs::path& directory, const ConfigReader& config) {
  SpecialIds ids;
  const auto single = [&](const char* key) {
    if (!config.has(key)) return -1;
    const std::vector<int64_t> found = config.integers(key, -1, limits::kVocabulary);
    return found.empty() ? -1 : static_cast<int32_t>(found.front());
  };
  ids.bos = single("bos_token_id");
  ids.pad = single("pad_token_id");
  const fs::path generation = directory / "generation_config.json";
  std::error_code ignored;
  if (fs::exists(generation, ignored)) ids.eos = read_end_ids(ConfigReader(generation));
  if (ids.eos.empty()) ids.eos = read_end_ids(config);
  return ids;
}

ConfigReader generation_options(const fs::path& directory, const ConfigReader& config) {
  const fs::path file = directory / kGenerationFile;
  std::error_code ignored;
  return fs::exists(file, ignored) ? ConfigReader(file) : config;
}

int32_t read_decoder_start(const ConfigReader& config, int64_t stored, bool has_default) {
  constexpr const char* kKey = "decoder_start_token_id";
  constexpr int32_t kDefault = 2;  // of BartConfig and M2M100Config; what mBART-50 has
  if (has_default && !config.has(kKey)) return kDefault;
  return static_cast<int32_t>(config.integer(kKey, 0, stored - 1));
}

std::optional<VocabularyTokens> read_tokens(const fs::path& directory, const ConfigReader& config,
                                            const ModelSpec& spec) {
  SpecialIds ids = read_special_ids(directory, config);
  if (spec.has_encoder())
    ids.bos = read_decoder_start(config, spec.vocabulary,
                                 spec.embedding.positions == PositionTable::fairseq ||
                                     spec.embedding.positions == PositionTable::learned);
  const auto known = [&](int32_t id) { return id >= 0 && id < spec.vocabulary; };
  if (ids.eos.empty()) return std::nullopt;
  for (const int32_t end : ids.eos)
    require(known(end), ErrorCode::corrupt_file, kOrigin, config.label(), ": eos_token_id is ", end,
            ", the vocabulary has ", spec.vocabulary, " tokens");
  return VocabularyTokens{{.bos = known(ids.bos) ? ids.bos : -1,
                           .eos = ids.eos.front(),
                           .pad = known(ids.pad) ? ids.pad : -1,
                           .unk = -1},
                          {ids.eos.begin() + 1, ids.eos.end()}};
}

namespace {

// The files of the directory that belong to its tokenizer.json. If there is no
// generation_config.json, one with the ids of config.json.
std::vector<CompanionFile> companions_in(const fs::path& directory, const ConfigReader& config,
                                         const SpecialIds& ids) {
  std::vector<CompanionFile> companions;
  std::error_code ignored;
  for (const std::string_view name : kTokenizerCompanions)
    if (const fs::path file = directory / name; fs::exists(file, ignored))
      companions.push_back(
          {std::string(name), read_text_file(file, kCompanionBytes), file.string()});
  if (fs::exists(directory / kGenerationFile, ignored)) return companions;
  Json generation;
  if (ids.bos >= 0)
    generation[ids.bos_starts_decoder ? "decoder_start_token_id" : "bos_token_id"] = ids.bos;
  if (!ids.eos.empty()) generation["eos_token_id"] = Json(ids.eos);
  if (ids.pad >= 0) generation["pad_token_id"] = ids.pad;
  constexpr const char* kForced = "forced_bos_token_id";
  if (ids.bos_starts_decoder && config.has(kForced))
    generation[kForced] = config.integer(kForced, 0, limits::kVocabulary);
  if (generation.as<Json::Object>() != nullptr)
    companions.push_back({std::string(kGenerationFile), generation.dump(2) + "\n", config.label()});
  return companions;
}

// The vocab.txt of a WordPiece tokenizer. None: there is none, or it is of another kind.
std::optional<Tokenizer> read_vocab_txt(const fs::path& directory,
                                        std::vector<CompanionFile> companions) {
  const fs::path file = directory / kVocabTxt;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  const std::string bytes = read_text_file(file, limits::kTokenizerBytes);
  if (!is_vocab_txt(bytes)) return std::nullopt;
  return load_vocab_txt(bytes, file.string(), std::move(companions));
}

// tokenizer.model with the ends of the configuration.
Tokenizer with_ends(const Tokenizer& tokenizer, const SpecialIds& ids, const std::string& label) {
  std::vector<int32_t> ends{tokenizer.eos_id()};
  ends.insert(ends.end(), tokenizer.further_end_ids().begin(), tokenizer.further_end_ids().end());
  if (ids.eos.empty() || ids.eos == ends) return tokenizer;
  const SpmModel spm = parse_spm(tokenizer.serialized());
  return load_sentencepiece(serialize_spm(spm, spm.subwords, {-1, -1, ids.eos}, label), label);
}

// With the chat template of the directory, if there is one.
Tokenizer with_chat_of(const fs::path& directory, const Tokenizer& tokenizer) {
  std::error_code ignored;
  for (const std::string_view name : {kChatTemplateFile, kTokenizerConfigFile}) {
    const fs::path file = directory / name;
    if (!fs::exists(file, ignored)) continue;
    std::string content = read_text_file(file, kCompanionBytes);
    if (name == kTokenizerConfigFile) content = chat_template_in(content, file.string());
    if (!content.empty())
      return tokenizer.with_companion({std::string(kChatTemplateFile), std::move(content)});
  }
  return tokenizer;
}

}  // namespace

ReadTokenizer read_lm_tokenizer(const fs::path& directory, const ConfigReader& config,
                                int64_t stored) {
  return read_tokenizer_of(directory, config, stored, read_special_ids(directory, config));
}

ReadTokenizer read_tokenizer_of(const fs::path& directory, const ConfigReader& config,
                                int64_t stored, const SpecialIds& ids) {
  const fs::path spm = directory / "tokenizer.model", json = directory / "tokenizer.json";
  std::error_code ignored;
  ReadTokenizer read;
  const int32_t last = ids.eos.empty() ? -1 : *std::max_element(ids.eos.begin(), ids.eos.end());
  if (fs::exists(spm, ignored)) {
    Tokenizer tokenizer =
        load_sentencepiece(read_text_file(spm, limits::kTokenizerBytes), spm.string());
    // Tokens that were added to a model are in tokenizer.json alone.
    if (last < tokenizer.vocab_size() || !fs::exists(json, ignored))
      read.tokenizer = with_ends(tokenizer, ids, spm.string());
  }
  if (!read.tokenizer) {
    try {
      if (fs::exists(json, ignored))
        read.tokenizer = read_tokenizer_json(json, ids, companions_in(directory, config, ids));
      else
        read.tokenizer = read_vocab_txt(directory, companions_in(directory, config, ids));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      read.note = concat("no tokenizer was imported, the ids are those of the model's own: ",
                         error.message());
      return read;
    }
  }
  if (!read.tokenizer) {
    read.note =
        "there is no tokenizer.model, no tokenizer.json and no vocab.txt of WordPiece: the ids are "
        "those of the model's own tokenizer";
    return read;
  }
  if (read.tokenizer->as_sentencepiece() != nullptr)
    read.tokenizer = with_chat_of(directory, *read.tokenizer);
  const int64_t tokens = read.tokenizer->vocab_size();
  // bart-large-cnn has no row for <mask>, the last token of its tokenizer.json.
  if (ids.bos_starts_decoder && tokens == stored + 1 &&
      read.tokenizer->token(static_cast<int32_t>(stored)) == "<mask>") {
    read.tokenizer.reset();
    read.note = concat(config.label(), ": vocab_size is ", stored, ", the tokenizer has ", tokens,
                       " tokens with <mask>: the ids belong to the model's own tokenizer");
    return read;
  }
  require(tokens <= stored, ErrorCode::corrupt_file, kOrigin, config.label(), ": vocab_size is ",
          stored, ", the tokenizer has ", tokens, " tokens");
  read.note = spare_rows_note(stored, tokens);
  return read;
}

std::string spare_rows_note(int64_t stored, int64_t tokens) {
  if (tokens == stored) return {};
  return concat("the embeddings have ", stored, " rows, the tokenizer ", tokens,
                " tokens: the rows without a token were left out");
}

}  // namespace trafo::interop
