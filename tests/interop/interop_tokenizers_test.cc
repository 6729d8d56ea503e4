// Files of tokenizers that were not trained like ours: without <s> or <pad>, with byte tokens, with
// another normaliser, in another order.
#include <algorithm>
#include <cstring>
#include <map>
#include <regex>

#include "engine/decode/translator.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/sentencepiece/character_map_entries.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;
using interop::ScoredSubword;
using interop::SpmModel;

FileJson json_of(const fs::path& file) {
  return FileJson::parse(read_text_file(file, 1 << 22));
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
  FileJson json = json_of(gpt2(normalised(flag_of(spm_field::kDummyPrefix, false) +
                                          flag_of(spm_field::kExtraWhitespaces, false) +
                                          field_of(spm_field::kCharacterMap, "")),
                               "bare") /
                          "tokenizer.json");
  const FileJson spaces = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const FileJson bare = json["normalizer"]["normalizers"];
  EXPECT_EQ(bare[0], spaces);
  // The others keep spelled tokens out of texts.
  EXPECT_EQ(bare.size(), 5u);
  EXPECT_EQ(bare[1]["content"], "\ufdd0");

  // Texts of every length: what is left of a group of three bytes is padded.
  std::string map = interop::parse_spm(tokenizer().serialized()).character_map;
  ASSERT_FALSE(map.empty());
  for (int more = 0; more < 3; ++more, map += '\0') {
    const Tokenizer with = normalised(field_of(spm_field::kCharacterMap, map));
    json = json_of(gpt2(with, concat("map", more)) / "tokenizer.json");
    const FileJson& steps = json["normalizer"]["normalizers"];
    std::vector<std::string> types;
    for (const FileJson& step : steps) types.push_back(step["type"]);
    EXPECT_EQ(types, (std::vector<std::string>{
                         "Replace", "Replace", "Replace", "Replace", "Precompiled", "Replace",
                         "NFC", "Replace", "Replace", "Replace", "Replace", "Prepend", "Replace",
                         "Replace", "Replace", "Replace", "Replace"}));
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
      const FileJson json = json_of(directory / "tokenizer.json");
      const FileJson& model = json["model"];
      EXPECT_EQ(model["byte_fallback"], bytes);
      EXPECT_EQ(model["vocab"].size(), static_cast<size_t>(tokenizer.vocab_size()));
      EXPECT_EQ(model["type"], kind == TokenizerModel::bpe ? "BPE" : "Unigram");
      const FileJson& steps = json["decoder"]["decoders"];
      EXPECT_EQ(steps[2]["type"], bytes ? "ByteFallback" : "Fuse");
      EXPECT_EQ(json["post_processor"]["single"][1]["SpecialToken"]["id"], "</s>");
      const FileJson config = json_of(directory / "tokenizer_config.json");
      EXPECT_EQ(config["model_input_names"], FileJson::array({"input_ids", "attention_mask"}));
      EXPECT_EQ(config["padding_side"], "left");
      EXPECT_EQ(config["add_bos_token"], false);
      EXPECT_EQ(config["add_eos_token"], true);
      EXPECT_EQ(json_of(directory / "generation_config.json")["max_new_tokens"], 16);
      if (kind == TokenizerModel::unigram) continue;
      // The best subword is made first.
      const FileJson& merge = model["merges"][0];
      const std::string best = merge[0].get<std::string>() + merge[1].get<std::string>();
      const int32_t id = model["vocab"][best];
      for (int32_t other = 0; other < tokenizer.vocab_size(); ++other)
        if (tokenizer.as_sentencepiece()->type(other) == SubwordType::normal) {
          EXPECT_LE(tokenizer.as_sentencepiece()->score(other),
                    tokenizer.as_sentencepiece()->score(id));
        }
    }
}

// The ids that the `tokenizers` library gives a text of ASCII letters and signs with a unigram
// vocabulary. It finds every entry of the vocabulary in a text, also special tokens; a run of other
// characters is one unk_id. Written from the library's description, without our steps for other
// scripts.
class LibraryUnigram {
 public:
  explicit LibraryUnigram(const FileJson& file) : file_(file), model_(file.at("model")) {
    for (const FileJson& entry : model_.at("vocab")) {
      scores_.emplace(entry.at(0), std::pair(ids_++, entry.at(1).get<double>()));
      least_ = std::min(least_, entry.at(1).get<double>());
    }
  }
  std::vector<int32_t> encode(const std::string& text) const {
    EXPECT_TRUE(file_.at("added_tokens").empty());  // they would be taken out of the text first
    std::vector<int32_t> ids;
    for (const std::string& part : parts_of(normal_form(text)))
      for (const int32_t id : best_of(part)) ids.push_back(id);
    for (const FileJson& step : file_.at("post_processor").at("single"))
      if (step.contains("SpecialToken")) {
        const std::string name = step.at("SpecialToken").at("id");
        ids.push_back(file_.at("post_processor").at("special_tokens").at(name).at("ids").at(0));
      }
    return ids;
  }

 private:
  std::string normal_form(std::string text) const {
    bool prefixed = false;
    for (const FileJson& step : file_.at("normalizer").at("normalizers")) {
      prefixed |= step.at("type") == "Prepend";
      if (step.at("type") == "Prepend") text = step.at("prepend").get<std::string>() + text;
      if (!prefixed || step.at("type") != "Replace")
        continue;  // those before are for other scripts
      const bool plain = step.at("pattern").contains("String");
      const std::string from = step.at("pattern").at(plain ? "String" : "Regex");
      text = std::regex_replace(text, std::regex(from), step.at("content").get<std::string>());
    }
    return text;
  }
  // "MergedWithPrevious": a match ends a part.
  std::vector<std::string> parts_of(const std::string& text) const {
    const FileJson& split = file_.at("pre_tokenizer");
    if (split.is_null()) return {text};
    EXPECT_EQ(split.at("behavior"), "MergedWithPrevious");
    const std::regex pattern(split.at("pattern").at("Regex").get<std::string>());
    std::vector<std::string> parts;
    size_t begin = 0;
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), none; match != none;
         ++match) {
      const auto end = static_cast<size_t>(match->position() + match->length());
      parts.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    if (begin < text.size()) parts.push_back(text.substr(begin));
    return parts;
  }
  std::vector<int32_t> best_of(const std::string& text) const {
    constexpr double kUnknownPenalty = 10;
    const int32_t unknown = model_.at("unk_id");
    struct Way {
      double score = -1e300;
      size_t from = 0;
      int32_t id = -1;
    };
    std::vector<Way> ways(text.size() + 1);
    ways[0].score = 0;
    for (size_t begin = 0; begin < text.size(); ++begin) {
      if (ways[begin].score == -1e300) continue;
      size_t character = begin + 1;
      while (character < text.size() && (text[character] & 0xc0) == 0x80) ++character;
      const auto offer = [&](size_t end, double score, int32_t id) {
        if (ways[begin].score + score > ways[end].score)
          ways[end] = {ways[begin].score + score, begin, id};
      };
      bool has_character = false;
      for (size_t end = begin + 1; end <= text.size(); ++end)
        if (const auto found = scores_.find(text.substr(begin, end - begin));
            found != scores_.end()) {
          offer(end, found->second.second, found->second.first);
          has_character |= end == character;
        }
      if (!has_character) offer(character, least_ - kUnknownPenalty, unknown);
    }
    std::vector<int32_t> ids;
    for (size_t end = text.size(); end > 0; end = ways[end].from)
      if (ways[end].id != unknown || ids.empty() || ids.back() != unknown)
        ids.push_back(ways[end].id);
    std::reverse(ids.begin(), ids.end());
    return ids;
  }

  const FileJson& file_;
  const FileJson& model_;
  std::map<std::string, std::pair<int32_t, double>> scores_;
  int32_t ids_ = 0;
  double least_ = 0;
};

// A text that spells "</s>" has no end in it, here and in the exported files.
TEST_F(InteropTokenizerTest, SpelledTokensAreText) {
  // Vocabularies without and with the characters of the special tokens; the second has "</".
  TokenizerTrainOptions options;
  options.vocab_size = 60;
  options.hard_vocab_limit = false;
  const std::vector<std::string> html{"<b> a </b> <i>s</i> n k", "</b> s> un pad> <s a </i> </b>",
                                      "<p> d </p> </a> /s> unk> <pa"};
  const Tokenizer marked = Tokenizer::train(std::span<const std::string>(html), options);
  for (const Tokenizer* each : {&tokenizer(), &marked}) {
    const fs::path directory = gpt2(*each, each == &marked ? "marked" : "plain");
    const FileJson file = json_of(directory / "tokenizer.json");
    EXPECT_EQ(file["pre_tokenizer"].is_null(), each != &marked);
    const LibraryUnigram library(file);
    fs::remove(directory / "tokenizer.model");
    const ImportedModel imported = import_model(*context_, directory);
    ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
    EXPECT_EQ(json_of(directory / "tokenizer_config.json")["split_special_tokens"], true);
    for (const char* text :
         {"</s>", "<unk>", "<s>", "<pad>", "a</s>b", "der </s> Hund", "<s>der<unk></s><pad>",
          "<</s>>", "</s", "/s>", "s</s></s>", "ein Licht", "<b></s></b>"}) {
      std::vector<int32_t> ids = each->encode(text);
      EXPECT_EQ(imported.tokenizer->encode(text), ids) << text;
      ids.push_back(each->eos_id());
      EXPECT_EQ(library.encode(text), ids) << text;
    }
    for (const int32_t id : {0, 1, 2, 3})
      EXPECT_EQ(imported.tokenizer->as_sentencepiece()->type(id),
                each->as_sentencepiece()->type(id))
          << id;
  }
  exported(*model_of(config_of(Architecture::encoder_decoder, true)), ExportFormat::hf_pegasus,
           "m");
  EXPECT_EQ(json_of(path("m") / "tokenizer_config.json")["split_special_tokens"], true);
}

// Subwords across every place of "</s>": the library would always find the token.
TEST_F(InteropTokenizerTest, ATokenThatCannotBeKeptOutOfTextsLeavesNoFastForm) {
  const Tokenizer crossed = changed([](std::vector<ScoredSubword>& subwords) {
    size_t place = 10;
    for (const char* text : {"<", "/", ">", "</", "/s", "s>", "s"}) {
      const auto known = std::find_if(subwords.begin(), subwords.end(),
                                      [&](const auto& each) { return each.text == text; });
      if (known == subwords.end()) subwords[place++].text = text;
    }
  });
  EXPECT_FALSE(fs::exists(gpt2(crossed, "crossed") / "tokenizer.json"));
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
  FileJson json = json_of(gpt2(no_pad, "no-pad") / "config.json");
  EXPECT_EQ(json["pad_token_id"], no_pad.eos_id());
  EXPECT_EQ(json["bos_token_id"], no_pad.bos_id());
  json = json_of(path("no-pad") / "generation_config.json");
  EXPECT_EQ(json["suppress_tokens"], FileJson::array({no_pad.unk_id(), no_pad.bos_id()}));

  const Tokenizer no_bos = without("<s>");
  ASSERT_EQ(no_bos.bos_id(), -1);
  json = json_of(gpt2(no_bos, "no-bos") / "config.json");
  EXPECT_EQ(json["bos_token_id"], no_bos.eos_id());
  json = json_of(exported_with(no_bos, Architecture::decoder_lm, ExportFormat::ctranslate2, "ct") /
                 "config.json");
  EXPECT_EQ(json["bos_token"], "</s>");
  // A decoder starts from it, too.
  json = json_of(exported_with(no_bos, Architecture::encoder_decoder, ExportFormat::hf_marian,
                               "no-bos-marian") /
                 "generation_config.json");
  EXPECT_EQ(json["decoder_start_token_id"], no_bos.eos_id());
  EXPECT_EQ(json["suppress_tokens"], FileJson::array({no_bos.unk_id(), no_bos.pad_id()}));
  json = json_of(exported_with(no_bos, Architecture::encoder_decoder, ExportFormat::ctranslate2,
                               "no-bos-ct2") /
                 "config.json");
  EXPECT_EQ(json["decoder_start_token"], "</s>");

  // As GPT-2 itself has it: one subword that begins and ends a text.
  const Tokenizer one =
      changed([](auto&) {}, field_of(spm_field::kTrainer, field_of(spm_field::kBosToken, "</s>")));
  ASSERT_EQ(one.bos_id(), one.eos_id());
  json = json_of(gpt2(one, "one") / "generation_config.json");
  EXPECT_EQ(json["suppress_tokens"], FileJson::array({one.unk_id(), one.pad_id()}));
  EXPECT_EQ(json_of(path("one") / "tokenizer_config.json")["bos_token"], "</s>");
}

// transformers' generate() then gives the translations that are made here.
TEST_F(InteropTokenizerTest, HowAnEncoderDecoderGenerates) {
  for (const ExportFormat format : {ExportFormat::hf_marian, ExportFormat::hf_pegasus}) {
    const auto model =
        model_of(config_of(Architecture::encoder_decoder, format == ExportFormat::hf_pegasus));
    const std::string name = enum_name(format);
    exported(*model, format, name);
    const FileJson json = json_of(path(name) / "generation_config.json");
    EXPECT_EQ(json["early_stopping"], true);
    EXPECT_EQ(json["decoder_start_token_id"], tokenizer().bos_id());
    EXPECT_EQ(json["suppress_tokens"],
              FileJson::array({tokenizer().unk_id(), tokenizer().bos_id(), tokenizer().pad_id()}));
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

// As Marian trains its vocabularies: </s> is 0, <unk> is 1, and there is no <s> and no <pad>.
TEST_F(InteropTokenizerTest, VocabulariesOfMarianTrainTranslateScoreAndExport) {
  const SpmModel model = interop::parse_spm(tokenizer().serialized());
  std::vector<ScoredSubword> subwords;
  for (const char* name : {"</s>", "<unk>", ""})
    for (const ScoredSubword& each : model.subwords)
      if (*name != '\0' ? each.text == name : each.type == SubwordType::normal)
        subwords.push_back(each);
  const Tokenizer marian = Tokenizer::from_bytes(interop::serialize_spm(model, subwords));
  ASSERT_EQ(marian.eos_id(), 0);
  ASSERT_EQ(marian.unk_id(), 1);
  ASSERT_EQ(marian.bos_id(), -1);
  ASSERT_EQ(marian.pad_id(), -1);
  std::vector<std::string> lines;
  for (const char* subject : {"der Hund", "die Katze", "ein Vogel"})
    for (const char* object : {"einen Baum.", "den Stein.", "ein Licht."})
      lines.push_back(concat(subject, " sieht ", object));
  const ParallelCorpus corpus = make_parallel(lines, lines);
  TrainOptions options = quick_options();
  options.after_updates = 3;
  options.valid_metrics = {"ce-mean-words", "bleu"};
  for (const Architecture architecture :
       {Architecture::encoder_decoder, Architecture::decoder_lm}) {
    ModelConfig config = config_of(architecture, true);
    config.vocabulary = marian.vocab_size();
    config.max_positions = 64;
    options.max_length = 64;
    const TrainingData data = prepare_data(corpus, &corpus, marian, spec_of(config), options, 1);
    EXPECT_EQ(data.tokens.start(), 0);
    Process process(data, options, path(concat("run", static_cast<int>(architecture))), 1, config);
    process.run->run({});
    const Model& trained = *process.model;
    const Translator translator(*process.context, trained, marian);
    const std::vector<std::string_view> sources(lines.begin(), lines.end());
    const std::vector<Translation> translations = translator.translate(sources);
    for (const PairScore& score : translator.score(sources, sources))
      EXPECT_LT(score.log_probability, 0);
    const bool translates = architecture == Architecture::encoder_decoder;
    for (const ExportFormat format :
         translates
             ? std::vector{ExportFormat::hf_pegasus, ExportFormat::ctranslate2, ExportFormat::onnx}
             : std::vector{ExportFormat::hf_gpt2, ExportFormat::ctranslate2, ExportFormat::onnx}) {
      const fs::path directory = path(concat(enum_name(format), translates));
      export_model(*process.context, trained, marian, format, directory);
      if (format != ExportFormat::hf_pegasus && format != ExportFormat::hf_gpt2) continue;
      const FileJson json = json_of(directory / "config.json");
      EXPECT_EQ(json["eos_token_id"], 0);
      EXPECT_EQ(json["bos_token_id"], 0);
      EXPECT_EQ(json_of(directory / "generation_config.json")["suppress_tokens"],
                FileJson::array({1}));
      const ImportedModel imported = import_model(*context_, directory);
      ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
      const Translator again(*context_, *imported.model, *imported.tokenizer);
      const std::vector<Translation> theirs = again.translate(sources);
      for (size_t i = 0; i < theirs.size(); ++i)
        EXPECT_EQ(theirs[i].hypotheses[0].tokens, translations[i].hypotheses[0].tokens) << i;
    }
  }
}

class MarianVocabularyTest : public InteropTokenizerTest {
 protected:
  void SetUp() override {
    exported_with(tokenizer(), Architecture::encoder_decoder, ExportFormat::hf_marian, "m");
  }
  // vocab.json with the ids of two subwords exchanged.
  void exchange(const std::string& a, const std::string& b) {
    edit_json(path("m") / "vocab.json", [&](FileJson& json) { std::swap(json.at(a), json.at(b)); });
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
  edit_json(path("m") / "config.json", [](FileJson& json) { json["eos_token_id"] = 10; });
  EXPECT_EQ(imported().eos_id(), 10);
  EXPECT_EQ(imported().token(tokenizer().eos_id()), other);
}

TEST_F(MarianVocabularyTest, SubwordsThatTheModelsDoNotKnow) {
  const std::string known = tokenizer().token(20);
  const auto renamed = [&](const std::string& to) {
    const std::string text = read_text_file(path("m") / "vocab.json", 1 << 22);
    edit_json(path("m") / "vocab.json", [&](FileJson& json) {
      json[to] = json.at(known);
      json.erase(known);
    });
    const Tokenizer changed = imported();
    EXPECT_EQ(changed.kind(), "marian");
    EXPECT_EQ(changed.token(20), to);
    EXPECT_EQ(changed.id(known), changed.unk_id());
    write_file_atomically(path("m") / "vocab.json", text);
    return changed;
  };
  std::vector<int32_t> tagged = tokenizer().encode("ein Hund");
  tagged.insert(tagged.begin(), 20);
  EXPECT_EQ(renamed(">>de<<").encode(">>de<< ein Hund"), tagged);
  renamed("strange");
  edit_json(path("m") / "vocab.json", [](FileJson& json) { json[std::string(5000, 'x')] = 20; });
  expect_error(ErrorCode::corrupt_file, "vocab.json", [&] { imported(); });
}

// Files of OPUS-MT go in and out unchanged, and no subword is cut otherwise than by its own model.
TEST_F(MarianVocabularyTest, TwoModelsStayTwo) {
  const std::vector<std::string> lines{"the dog sees a tree. the cat finds the stone."};
  TokenizerTrainOptions options;
  options.vocab_size = 40;
  options.hard_vocab_limit = false;
  options.model = TokenizerModel::bpe;
  const Tokenizer english = Tokenizer::train(std::span<const std::string>(lines), options);
  write_file_atomically(path("m") / "target.spm", english.serialized());
  const ImportedModel two = import_model(*context_, path("m"));
  EXPECT_EQ(two.note, "");
  ASSERT_EQ(two.tokenizer->kind(), "marian");
  EXPECT_EQ(two.tokenizer->vocab_size(), tokenizer().vocab_size());
  EXPECT_EQ(two.tokenizer->encode("ein Hund"), tokenizer().encode("ein Hund"));
  std::vector<int32_t> ids;
  for (const int32_t id : english.encode("the dog"))
    ids.push_back(two.tokenizer->id(english.token(id)));
  EXPECT_EQ(two.tokenizer->for_targets().encode("the dog"), ids);
  EXPECT_NE(two.tokenizer->encode("the dog"), ids);

  // A model scores the ids of each side.
  const Translator translator(*context_, *two.model, *two.tokenizer);
  const std::vector<std::string_view> source{"ein Hund"}, target{"the dog"};
  std::vector<int32_t> source_ids = two.tokenizer->encode("ein Hund"), target_ids = ids;
  source_ids.push_back(two.tokenizer->eos_id());
  target_ids.push_back(two.tokenizer->eos_id());
  const Hypothesis scored = translator.force_decode(source, target)[0].hypotheses[0],
                   of_ids =
                       translator.force_decode_ids({{source_ids, target_ids}})[0].hypotheses[0];
  EXPECT_EQ(scored.tokens, of_ids.tokens);
  EXPECT_EQ(scored.log_probability, of_ids.log_probability);

  for (const ExportFormat format : {ExportFormat::hf_marian, ExportFormat::onnx}) {
    const fs::path again = path(enum_name(format));
    export_model(*context_, *two.model, two.tokenizer, format, again);
    for (const char* file : {"vocab.json", "source.spm", "target.spm", "tokenizer_config.json"})
      EXPECT_EQ(read_text_file(again / file, 1 << 22), read_text_file(path("m") / file, 1 << 22))
          << file;
  }
  EXPECT_EQ(import_model(*context_, path("hf-marian")).tokenizer->serialized(),
            two.tokenizer->serialized());
  export_model(*context_, *two.model, two.tokenizer, ExportFormat::ctranslate2, path("ct2"));
  EXPECT_EQ(read_text_file(path("ct2") / "target.spm", 1 << 22), english.serialized());

  edit_json(path("m") / "tokenizer_config.json",
            [](FileJson& json) { json["separate_vocabs"] = true; });
  expect_error(ErrorCode::unsupported,
               "separate_vocabs is true, and share_encoder_decoder_embeddings",
               [&] { imported(); });
}

}  // namespace
}  // namespace trafo
