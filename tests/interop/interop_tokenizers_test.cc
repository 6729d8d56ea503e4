// Files of tokenizers that were not trained like ours: without <s> or <pad>, with byte tokens, with
// another normaliser, in another order.
#include <algorithm>
#include <cstring>

#include "engine/interop/spm_subwords.h"
#include "engine/tokenizer/character_map_entries.h"
#include "engine/tokenizer/spm_fields.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;
using interop::ScoredSubword;
using interop::SpmModel;

Json json_of(const fs::path& file) {
  return Json::parse(read_text_file(file, 1 << 22));
}

// A message inside another, below 128 bytes of key and 16,384 of content.
std::string field_of(uint32_t number, std::string_view bytes) {
  std::string field;
  for (uint64_t value : {uint64_t{number} << 3 | 2, uint64_t{bytes.size()}}) {
    for (; value >= 0x80; value >>= 7) field += static_cast<char>(value | 0x80);
    field += static_cast<char>(value);
  }
  return field.append(bytes);
}
std::string flag_of(uint32_t number, bool value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return bytes;
}

// A character map without an entry. NFC changes what it leaves.
std::string empty_map() {
  std::string map(sizeof(uint32_t) + 1024 + 1, '\0');
  const uint32_t trie_bytes = 1024;
  std::memcpy(map.data(), &trie_bytes, sizeof trie_bytes);
  return map;
}

class InteropTokenizerTest : public InteropTest {
 protected:
  // The usual tokenizer with its subwords changed and further fields after the others, which count.
  static Tokenizer changed(const std::function<void(std::vector<ScoredSubword>&)>& change,
                           const std::string& further = "") {
    const SpmModel model = interop::parse_spm(tokenizer().serialized());
    std::vector<ScoredSubword> subwords = model.subwords;
    change(subwords);
    return Tokenizer::from_bytes(interop::serialize_spm(model, subwords) + further);
  }
  static Tokenizer trained(TokenizerModel kind, bool bytes) {
    TokenizerTrainOptions options;
    options.vocab_size = bytes ? 300 : 60;
    options.hard_vocab_limit = false;
    options.byte_fallback = bytes;
    options.model = kind;
    const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze sucht ein Licht"};
    return Tokenizer::train(std::span<const std::string>(lines), options);
  }
  static Tokenizer normalised(const std::string& fields) {
    return changed([](auto&) {}, field_of(spm_field::kNormalizer, fields));
  }
  static Tokenizer without(const char* subword) {
    return changed([&](std::vector<ScoredSubword>& subwords) {
      for (ScoredSubword& each : subwords)
        if (each.text == subword) each = {"none", 0, SubwordType::unused};
    });
  }
  fs::path exported_with(const Tokenizer& tokenizer, Architecture architecture, ExportFormat format,
                         const std::string& name) {
    ModelConfig config = config_of(architecture, architecture == Architecture::decoder_lm);
    config.vocabulary = tokenizer.vocab_size();
    EXPECT_LT(export_model(*context_, *model_of(config), tokenizer, format, path(name)), 1e-4);
    return path(name);
  }
  fs::path gpt2(const Tokenizer& tokenizer, const std::string& name) {
    return exported_with(tokenizer, Architecture::decoder_lm, ExportFormat::hf_gpt2, name);
  }
};

TEST_F(InteropTokenizerTest, TheNormaliserIsWrittenAsItIs) {
  Json json = json_of(gpt2(normalised(flag_of(spm_field::kDummyPrefix, false) +
                                      flag_of(spm_field::kExtraWhitespaces, false) +
                                      field_of(spm_field::kCharacterMap, "")),
                           "bare") /
                      "tokenizer.json");
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  EXPECT_EQ(json["normalizer"]["normalizers"], Json::array({spaces}));

  // Texts of every length: what is left of a group of three bytes is padded.
  std::string map = interop::parse_spm(tokenizer().serialized()).character_map;
  ASSERT_FALSE(map.empty());
  for (int more = 0; more < 3; ++more, map += '\0') {
    const Tokenizer with = normalised(field_of(spm_field::kCharacterMap, map));
    json = json_of(gpt2(with, concat("map", more)) / "tokenizer.json");
    const Json& steps = json["normalizer"]["normalizers"];
    std::vector<std::string> types;
    for (const Json& step : steps) types.push_back(step["type"]);
    EXPECT_EQ(types, (std::vector<std::string>{
                         "Replace", "Replace", "Replace", "Replace", "Precompiled", "Replace",
                         "NFC", "Replace", "Replace", "Replace", "Replace", "Prepend", "Replace"}));
    const std::string text = steps[4]["precompiled_charsmap"];
    EXPECT_EQ(text.size() % 4, 0u);
    EXPECT_EQ(from_base64(text), map);
  }
}

TEST_F(InteropTokenizerTest, EntriesOfACharacterMapAreVisitedInOrderUpToALimit) {
  const std::string blob = interop::parse_spm(tokenizer().serialized()).character_map;
  const CharacterMap map(blob, "map");
  std::vector<std::string> entries;
  EXPECT_TRUE(visit_entries(blob, "map", 1 << 18, [&](std::string_view text) {
    entries.emplace_back(text);
    return true;
  }));
  EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end()));
  EXPECT_TRUE(std::binary_search(entries.begin(), entries.end(), "e\u0302\u0301"));
  for (const std::string& entry : entries) {
    size_t position = 0;
    map.next(entry, position);
    ASSERT_EQ(position, entry.size());
  }
  const auto never = [](std::string_view) { return false; };
  const auto always = [](std::string_view) { return true; };
  EXPECT_FALSE(visit_entries(blob, "map", 1 << 18, never));
  EXPECT_FALSE(visit_entries(blob, "map", entries.size() - 1, always));
  EXPECT_TRUE(visit_entries(blob, "map", entries.size(), always));
  EXPECT_TRUE(visit_entries(empty_map(), "map", 0, always));
  expect_error(ErrorCode::corrupt_file, "character map",
               [&] { visit_entries("no map", "map", 1, always); });
}

TEST_F(InteropTokenizerTest, WhatTheFastFormCannotSayIsLeftToTheModelFile) {
  const auto retyped = [](SubwordType type) {
    return changed([type](std::vector<ScoredSubword>& subwords) { subwords.back().type = type; });
  };
  const SpmModel bpe = interop::parse_spm(trained(TokenizerModel::bpe, false).serialized());
  const auto changed_bpe = [&](const std::function<void(std::vector<ScoredSubword>&)>& change) {
    std::vector<ScoredSubword> subwords = bpe.subwords;
    change(subwords);
    return Tokenizer::from_bytes(interop::serialize_spm(bpe, subwords));
  };
  std::vector<Tokenizer> slow{retyped(SubwordType::user_defined), retyped(SubwordType::unused),
                              normalised(flag_of(spm_field::kEscape, false)),
                              normalised(field_of(spm_field::kCharacterMap, empty_map()))};
  // A subword that no two others make; two whose merges have no order.
  slow.push_back(changed_bpe([](auto& subwords) { subwords[4].text = "xyz"; }));
  slow.push_back(changed_bpe([](auto& subwords) { subwords[5].score = subwords[4].score; }));
  for (size_t i = 0; i < slow.size(); ++i) {
    const fs::path directory = gpt2(slow[i], concat("slow", i));
    EXPECT_FALSE(fs::exists(directory / "tokenizer.json")) << i;
    EXPECT_FALSE(fs::exists(directory / "tokenizer_config.json")) << i;
    EXPECT_EQ(import_model(*context_, directory).tokenizer->serialized(), slow[i].serialized());
  }
  EXPECT_TRUE(fs::exists(gpt2(tokenizer(), "fast") / "tokenizer.json"));
}

TEST_F(InteropTokenizerTest, EveryKindOfVocabularyHasItsFastForm) {
  for (const TokenizerModel kind : {TokenizerModel::unigram, TokenizerModel::bpe})
    for (const bool bytes : {false, true}) {
      const Tokenizer tokenizer = trained(kind, bytes);
      const fs::path directory = gpt2(tokenizer, concat("kind", static_cast<int>(kind), bytes));
      const Json json = json_of(directory / "tokenizer.json");
      const Json& model = json["model"];
      EXPECT_EQ(model["byte_fallback"], bytes);
      EXPECT_EQ(model["vocab"].size(), static_cast<size_t>(tokenizer.vocab_size()));
      EXPECT_EQ(model["type"], kind == TokenizerModel::bpe ? "BPE" : "Unigram");
      const Json& steps = json["decoder"]["decoders"];
      EXPECT_EQ(steps[1]["type"], bytes ? "ByteFallback" : "Fuse");
      EXPECT_EQ(json["post_processor"]["single"][1]["SpecialToken"]["id"], "</s>");
      const Json config = json_of(directory / "tokenizer_config.json");
      EXPECT_EQ(config["model_input_names"], Json::array({"input_ids", "attention_mask"}));
      EXPECT_EQ(config["padding_side"], "left");
      EXPECT_EQ(config["add_bos_token"], false);
      EXPECT_EQ(config["add_eos_token"], true);
      EXPECT_EQ(json_of(directory / "generation_config.json")["max_new_tokens"], 16);
      if (kind == TokenizerModel::unigram) continue;
      // The best subword is made first.
      const Json& merge = model["merges"][0];
      const std::string best = merge[0].get<std::string>() + merge[1].get<std::string>();
      const int32_t id = model["vocab"][best];
      for (int32_t other = 0; other < tokenizer.vocab_size(); ++other)
        if (tokenizer.type(other) == SubwordType::normal) {
          EXPECT_LE(tokenizer.score(other), tokenizer.score(id));
        }
    }
}

TEST_F(InteropTokenizerTest, HalfOfThePositionsAreTheTranslationsAndOneAtLeast) {
  ModelConfig config = config_of(Architecture::decoder_lm, true);
  for (const auto& [positions, longest] : {std::pair{3, 1}, {5, 2}, {1000, 200}}) {
    config.max_positions = positions;
    const std::string name = concat("positions-", positions);
    exported(*model_of(config), ExportFormat::hf_gpt2, name);
    EXPECT_EQ(json_of(path(name) / "generation_config.json")["max_new_tokens"], longest);
  }
}

TEST_F(InteropTokenizerTest, TheEndStandsForSpecialTokensThatAreNotThere) {
  const Tokenizer no_pad = without("<pad>");
  ASSERT_EQ(no_pad.pad_id(), -1);
  Json json = json_of(gpt2(no_pad, "no-pad") / "config.json");
  EXPECT_EQ(json["pad_token_id"], no_pad.eos_id());
  EXPECT_EQ(json["bos_token_id"], no_pad.bos_id());
  json = json_of(path("no-pad") / "generation_config.json");
  EXPECT_EQ(json["suppress_tokens"], Json::array({no_pad.unk_id(), no_pad.bos_id()}));

  const Tokenizer no_bos = without("<s>");
  ASSERT_EQ(no_bos.bos_id(), -1);
  json = json_of(gpt2(no_bos, "no-bos") / "config.json");
  EXPECT_EQ(json["bos_token_id"], no_bos.eos_id());
  json = json_of(exported_with(no_bos, Architecture::decoder_lm, ExportFormat::ctranslate2, "ct") /
                 "config.json");
  EXPECT_EQ(json["bos_token"], "</s>");
  // A decoder that starts from <s> needs one.
  for (const ExportFormat format : {ExportFormat::hf_marian, ExportFormat::ctranslate2}) {
    const auto model = model_of(config_of(Architecture::encoder_decoder, false));
    expect_error(ErrorCode::invalid_argument, "the tokenizer has no <s>",
                 [&] { export_model(*context_, *model, no_bos, format, path("refused")); });
    EXPECT_FALSE(fs::exists(path("refused")));
  }

  // As GPT-2 itself has it: one subword that begins and ends a text.
  const Tokenizer one =
      changed([](auto&) {}, field_of(spm_field::kTrainer, field_of(spm_field::kBosToken, "</s>")));
  ASSERT_EQ(one.bos_id(), one.eos_id());
  json = json_of(gpt2(one, "one") / "generation_config.json");
  EXPECT_EQ(json["suppress_tokens"], Json::array({one.unk_id(), one.pad_id()}));
  EXPECT_EQ(json_of(path("one") / "tokenizer_config.json")["bos_token"], "</s>");
}

// transformers' generate() then gives the translations that are made here.
TEST_F(InteropTokenizerTest, HowAnEncoderDecoderGenerates) {
  for (const ExportFormat format : {ExportFormat::hf_marian, ExportFormat::hf_pegasus}) {
    const auto model =
        model_of(config_of(Architecture::encoder_decoder, format == ExportFormat::hf_pegasus));
    const std::string name = export_format_name(format);
    exported(*model, format, name);
    const Json json = json_of(path(name) / "generation_config.json");
    EXPECT_EQ(json["early_stopping"], true);
    EXPECT_EQ(json["decoder_start_token_id"], tokenizer().bos_id());
    EXPECT_EQ(json["suppress_tokens"],
              Json::array({tokenizer().unk_id(), tokenizer().bos_id(), tokenizer().pad_id()}));
    EXPECT_EQ(json_of(path(name) / "config.json")["forced_eos_token_id"], nullptr);
    EXPECT_EQ(json_of(path(name) / "tokenizer_config.json")["tokenizer_class"], "MarianTokenizer");
  }
}

TEST_F(InteropTokenizerTest, ADirectoryWithoutATokenizerSaysSo) {
  fs::remove(gpt2(tokenizer(), "bare") / "tokenizer.model");
  fs::remove(path("bare") / "tokenizer.json");
  const ImportedModel imported = import_model(*context_, path("bare"));
  EXPECT_FALSE(imported.tokenizer.has_value());
  EXPECT_TRUE(contains(imported.note, "there is no tokenizer.model")) << imported.note;
}

class MarianVocabularyTest : public InteropTokenizerTest {
 protected:
  void SetUp() override {
    exported_with(tokenizer(), Architecture::encoder_decoder, ExportFormat::hf_marian, "m");
  }
  // vocab.json with the ids of two subwords exchanged.
  void exchange(const std::string& a, const std::string& b) {
    edit_json(path("m") / "vocab.json", [&](Json& json) { std::swap(json.at(a), json.at(b)); });
  }
  Tokenizer imported() { return *import_model(*context_, path("m")).tokenizer; }
};

TEST_F(MarianVocabularyTest, SpecialTokensMayStandAnywhere) {
  const std::string other = tokenizer().token(10);
  exchange("<unk>", other);
  EXPECT_EQ(imported().unk_id(), 10);
  EXPECT_EQ(imported().token(0), other);
  exchange("<unk>", other);
  exchange("</s>", other);
  edit_json(path("m") / "config.json", [](Json& json) { json["eos_token_id"] = 10; });
  EXPECT_EQ(imported().eos_id(), 10);
  EXPECT_EQ(imported().token(tokenizer().eos_id()), other);
}

TEST_F(MarianVocabularyTest, SubwordsThatTheModelsDoNotKnow) {
  const std::string known = tokenizer().token(20);
  const auto renamed = [&](const std::string& to) {
    const std::string text = read_text_file(path("m") / "vocab.json", 1 << 22);
    edit_json(path("m") / "vocab.json", [&](Json& json) {
      json[to] = json.at(known);
      json.erase(known);
    });
    const SpmModel joined = interop::parse_spm(imported().serialized());
    EXPECT_EQ(joined.subwords[20].text, to);
    write_file_atomically(path("m") / "vocab.json", text);
    return joined.subwords[20].type;
  };
  EXPECT_EQ(renamed(">>de<<"), SubwordType::user_defined);  // the language of a multilingual model
  EXPECT_EQ(renamed(">>de"), SubwordType::unused);
  EXPECT_EQ(renamed("strange"), SubwordType::unused);
  edit_json(path("m") / "vocab.json", [](Json& json) { json[std::string(5000, 'x')] = 20; });
  expect_error(ErrorCode::corrupt_file, "vocab.json", [&] { imported(); });
}

TEST_F(MarianVocabularyTest, TwoTokenizersAreJoinedIfBothAreUnigramModels) {
  const auto shorter = changed([](std::vector<ScoredSubword>& subwords) { subwords.pop_back(); });
  write_file_atomically(path("m") / "target.spm", shorter.serialized());
  const ImportedModel joined = import_model(*context_, path("m"));
  EXPECT_TRUE(contains(joined.note, "joined into one")) << joined.note;
  EXPECT_EQ(joined.tokenizer->vocab_size(), tokenizer().vocab_size());
  EXPECT_EQ(joined.tokenizer->encode("ein Hund"), tokenizer().encode("ein Hund"));
  // Both shorter than the model: the last row has its subword from the vocabulary alone.
  write_file_atomically(path("m") / "source.spm", shorter.serialized());
  const ImportedModel longer = import_model(*context_, path("m"));
  EXPECT_EQ(longer.note, "");
  EXPECT_EQ(longer.tokenizer->vocab_size(), tokenizer().vocab_size());

  TokenizerTrainOptions options;
  options.vocab_size = 40;
  options.hard_vocab_limit = false;
  options.model = TokenizerModel::bpe;
  const std::vector<std::string> lines{"der Hund sieht einen Baum"};
  const Tokenizer bpe = Tokenizer::train(std::span<const std::string>(lines), options);
  for (const char* side : {"source.spm", "target.spm"}) {
    const std::string before = read_text_file(path("m") / side, 1 << 22);
    write_file_atomically(path("m") / side, bpe.serialized());
    expect_error(ErrorCode::unsupported, "are not both unigram models", [&] { imported(); });
    write_file_atomically(path("m") / side, before);
  }
}

}  // namespace
}  // namespace trafo
