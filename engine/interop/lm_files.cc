#include "engine/interop/lm_files.h"

#include <algorithm>

#include "engine/decode/options.h"
#include "engine/interop/fast_tokenizer.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

// The usual limit of a translation (engine/decode/options.h), where the model has the positions:
// half of them are the source's.
int64_t longest_translation(const ModelConfig& config) {
  return std::min(DecodeOptions{}.max_length, std::max<int64_t>(1, config.max_positions / 2));
}

}  // namespace

void put_special_ids(const Tokenizer& tokenizer, Json& json) {
  json["bos_token_id"] = tokenizer.bos_id() < 0 ? tokenizer.eos_id() : tokenizer.bos_id();
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id();
}

void write_generation(const Tokenizer& tokenizer, const ModelConfig& config,
                      const fs::path& directory) {
  Json generation;
  put_special_ids(tokenizer, generation);
  generation["max_new_tokens"] = longest_translation(config);
  Json::List never{tokenizer.unk_id()};
  for (const int32_t id : {tokenizer.bos_id(), tokenizer.pad_id()})
    if (id >= 0 && id != tokenizer.eos_id()) never.push_back(id);
  generation["suppress_tokens"] = never;
  write_json(directory / "generation_config.json", generation);
}

void write_lm_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config,
                        const fs::path& directory) {
  write_file_atomically(directory / "tokenizer.model", tokenizer.serialized());
  const std::optional<Json> fast = fast_tokenizer(tokenizer);
  if (!fast) return;
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["model_max_length"] = config.max_positions;
  json["clean_up_tokenization_spaces"] = false;
  json["model_input_names"] = Json::List{"input_ids", "attention_mask"};
  json["padding_side"] = "left";  // the translation goes on from the end of the source
  json["add_bos_token"] = false;
  json["add_eos_token"] = true;
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0) json[key] = tokenizer.token(id);
  };
  name("unk_token", tokenizer.unk_id());
  name("bos_token", tokenizer.bos_id());
  name("eos_token", tokenizer.eos_id());
  name("pad_token", tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id());
  write_json(directory / "tokenizer_config.json", json);
  write_json(directory / "tokenizer.json", *fast);
}

void read_lm_tokenizer(const fs::path& directory, const ModelConfig& config, Imported& imported) {
  const fs::path spm = directory / "tokenizer.model";
  std::error_code ignored;
  if (!fs::exists(spm, ignored)) {
    imported.note =
        "there is no tokenizer.model: the ids are those of the model's own tokenizer, which is no "
        "SentencePiece model";
    return;
  }
  imported.tokenizer =
      Tokenizer::from_bytes(read_text_file(spm, limits::kTokenizerBytes), spm.string());
  check_vocabulary(config, *imported.tokenizer);
}

}  // namespace trafo::interop
