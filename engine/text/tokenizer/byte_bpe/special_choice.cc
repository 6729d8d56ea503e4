#include "engine/text/tokenizer/byte_bpe/special_choice.h"

#include <algorithm>
#include <optional>

namespace trafo {
namespace {

constexpr int32_t kNone = -1;

// Names for files that say nothing of special tokens.
constexpr std::string_view kEnds[] = {
    "</s>",  "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<｜end▁of▁sentence｜>", "<eos>",
    "[EOS]", "[SEP]"};
constexpr std::string_view kBegins[] = {
    "<s>",  "<|begin_of_text|>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", "<bos>", "[BOS]",
    "[CLS]"};
constexpr std::string_view kUnknown[] = {"<unk>"};
constexpr std::string_view kPads[] = {"<pad>", "<|pad|>", "<|finetune_right_pad_id|>", "[PAD]"};

int32_t first_known(std::span<const std::string_view> names, const VocabularyLookup& vocabulary) {
  for (const std::string_view name : names)
    if (const int32_t id = vocabulary.special_id(name); id >= 0) return id;
  return kNone;
}

// A companion as JSON.
class Companion {
 public:
  Companion(std::span<const CompanionFile> companions, std::string_view name,
            const VocabularyLookup& vocabulary)
      : vocabulary_(vocabulary) {
    for (const CompanionFile& each : companions) {
      if (each.name != name) continue;
      JsonBounds bounds;
      bounds.bytes = kCompanionBytes;
      json_ = parse_json(each.content, kTokenizerOrigin, each.label(), bounds);
      part_.emplace(each.label(), json_);
    }
  }
  Companion(const Companion&) = delete;

  // The token that a key names, as a text or an object with `content`. None: the key is missing.
  // -1: it is null.
  std::optional<int32_t> named(std::string_view key) const {
    if (!part_) return std::nullopt;
    const std::optional<JsonPart> found = part_->find(key);
    if (!found) return part_->value().find(key) != nullptr ? std::optional(kNone) : std::nullopt;
    const bool is_object = found->value().as<Json::Object>() != nullptr;
    const std::string& name = is_object ? found->at("content").text() : found->text();
    const int32_t id = vocabulary_.id(name);
    found->check(id >= 0, "tokenizer.json has no token ", quote(name));
    return id;
  }
  // The ids of a key: a number or a list. Negative ones are none.
  std::vector<int32_t> ids(std::string_view key) const {
    const std::optional<JsonPart> found = part_ ? part_->find(key) : std::nullopt;
    std::vector<int32_t> ids;
    if (!found) return ids;
    const bool is_list = found->value().as<Json::List>() != nullptr;
    for (const JsonPart& each : is_list ? found->list() : std::vector{*found}) {
      const auto id = static_cast<int32_t>(each.integer(kNone, vocabulary_.size - 1));
      if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }

  // UNSUPPORTED: transformers takes spaces out of decoded texts. Without the second key, it ignores
  // the first one for BPE.
  void refuse_clean_up() const {
    constexpr const char* kForced =
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
    if (part_ && part_->flag("clean_up_tokenization_spaces", false) && part_->flag(kForced, false))
      part_->at(kForced).refuse("it is true, and decoding here leaves spaces as they are");
  }

 private:
  const VocabularyLookup& vocabulary_;
  Json json_;
  std::optional<JsonPart> part_;
};

void read_template(const JsonPart& part, int32_t size, AddedAround& around) {
  bool is_after = false;
  for (const JsonPart& item : part.at("single").list()) {
    if (item.find("Sequence")) {
      is_after = true;
      continue;
    }
    const JsonPart name = item.at("SpecialToken").at("id");
    for (const JsonPart& each : part.at("special_tokens").at(name.text()).at("ids").list())
      (is_after ? around.after : around.before)
          .push_back(static_cast<int32_t>(each.integer(0, size - 1)));
  }
}

}  // namespace

AddedAround read_post_processor(const JsonPart& file, int32_t size) {
  AddedAround around;
  const std::optional<JsonPart> part = file.find("post_processor");
  if (!part) return around;
  const auto second = [&](const JsonPart& pair) {
    const std::vector<JsonPart> items = pair.list();
    pair.check(items.size() == 2, "it is not [token, id]");
    return static_cast<int32_t>(items[1].integer(0, size - 1));
  };
  for (const JsonPart& step : part->steps("processors")) {
    const std::string type = step.type();
    if (type == "TemplateProcessing") {
      read_template(step, size, around);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      around = {{second(step.at("cls"))}, {second(step.at("sep"))}};
    } else if (type != "ByteLevel") {
      step.refuse("type ", quote(type),
                  " is not supported; ByteLevel, TemplateProcessing, RobertaProcessing, "
                  "BertProcessing and Sequence are");
    }
  }
  return around;
}

SpecialChoice choose_special_tokens(const JsonPart& file, std::span<const CompanionFile> companions,
                                    const VocabularyLookup& vocabulary) {
  const Companion config(companions, kTokenizerConfigFile, vocabulary);
  const Companion map(companions, kSpecialTokensFile, vocabulary);
  const Companion generation(companions, kGenerationFile, vocabulary);
  const AddedAround around = read_post_processor(file, vocabulary.size);
  config.refuse_clean_up();

  // kNone only where a file says that there is none, or none knows of one.
  const auto choose = [&](std::string_view key, std::string_view id_key, int32_t framed,
                          std::span<const std::string_view> names) {
    if (const std::optional<int32_t> named = config.named(key)) return *named;
    if (const std::optional<int32_t> named = map.named(key)) return *named;
    if (const std::vector<int32_t> ids = generation.ids(id_key); !ids.empty()) return ids.front();
    return framed >= 0 ? framed : first_known(names, vocabulary);
  };
  SpecialChoice choice;
  choice.tokens.bos = choose("bos_token", "bos_token_id",
                             around.before.empty() ? kNone : around.before.front(), kBegins);
  choice.tokens.pad = choose("pad_token", "pad_token_id", kNone, kPads);
  const auto unk = file.at("model").find("unk_token");
  const int32_t fallback = unk ? vocabulary.id(unk->text()) : kNone;
  choice.tokens.unk = choose("unk_token", "", fallback, kUnknown);
  if (choice.tokens.unk < 0) choice.tokens.unk = fallback;
  int32_t end = choose("eos_token", "eos_token_id",
                       around.after.empty() ? kNone : around.after.back(), kEnds);
  std::vector<int32_t> ends = generation.ids("eos_token_id");
  if (!ends.empty()) {
    const auto found = std::find(ends.begin(), ends.end(), end);
    if (found != ends.end()) std::rotate(ends.begin(), found, found + 1);
    end = ends.front();
    choice.further_ends.assign(ends.begin() + 1, ends.end());
  }
  if (end < 0)
    file.refuse(
        "no token ends a text: post_processor adds none, and added_tokens has no usual one such as "
        "</s> or <|endoftext|>; eos_token in a tokenizer_config.json beside the file can name it");
  choice.tokens.eos = end;
  const std::vector<int32_t> start = generation.ids("decoder_start_token_id");
  if (!start.empty() && around.before.size() == 1) {
    choice.text_begin = around.before.front();
    choice.tokens.bos = start.front();
  }
  return choice;
}

}  // namespace trafo
