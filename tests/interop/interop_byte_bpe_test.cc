// Directories with a tokenizer.json of byte-level BPE or BPE with byte fallback: it is kept, and
// written again as it came.
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kChatTemplate = "{{ messages[0]['content'] }}\n";

const Tokenizer& byte_bpe() {
  static const Tokenizer trained = [] {
    const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
    TokenizerTrainOptions options;
    options.kind = "byte-bpe";
    options.vocab_size = 290;
    options.hard_vocab_limit = false;
    return Tokenizer::train(std::span<const std::string>(lines), options);
  }();
  return trained;
}

class ByteBpeInteropTest : public InteropTest {
 protected:
  // As other programs write it: spaces, another order, special tokens in files beside it.
  fs::path directory_of(const std::string& name, ExportFormat format, ModelConfig config) {
    config.vocabulary = byte_bpe().vocab_size();
    model_ = model_of(config);
    export_model(*context_, *model_, byte_bpe(), format, path(name));
    edit_json(path(name) / "tokenizer.json",
              [](FileJson& json) { json["post_processor"] = nullptr; });
    write_file_atomically(path(name) / "tokenizer_config.json",
                          R"({"eos_token": "</s>", "bos_token": null, "pad_token": "<pad>"})");
    write_file_atomically(path(name) / "chat_template.jinja", kChatTemplate);
    return path(name);
  }
  static std::string content(const fs::path& file) { return read_text_file(file, 1 << 22); }

  std::unique_ptr<Model> model_;
};

TEST_F(ByteBpeInteropTest, AVocabularyComesBackAsItCame) {
  ModelConfig gpt2 = config_of(Architecture::decoder_lm, true);
  gpt2.output_bias = false;
  const std::pair<ExportFormat, ModelConfig> forms[] = {
      {ExportFormat::hf_llama, llama_config(1, true)}, {ExportFormat::hf_gpt2, gpt2}};
  for (const auto& [format, config] : forms) {
    const std::string name = enum_name(format);
    const fs::path directory = directory_of(name, format, config);
    const ImportedModel imported = import_model(*context_, directory);
    ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
    EXPECT_EQ(imported.note, "");
    EXPECT_EQ(imported.tokenizer->kind(), "byte-bpe");
    EXPECT_EQ(imported.tokenizer->serialized(), content(directory / "tokenizer.json"));
    EXPECT_EQ(imported.tokenizer->encode("der Hund \U0001F600"),
              byte_bpe().encode("der Hund \U0001F600"));
    EXPECT_EQ(imported.tokenizer->bos_id(), -1);

    export_model(*context_, *imported.model, *imported.tokenizer, format, path(name + "-again"));
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                             "generation_config.json"})
      EXPECT_EQ(content(path(name + "-again") / file), content(directory / file)) << file;
    EXPECT_FALSE(fs::exists(path(name + "-again") / "tokenizer.model"));
    EXPECT_EQ(weight_bytes(*context_, *import_model(*context_, path(name + "-again")).model),
              weight_bytes(*context_, *model_));
  }
}

// The ids of config.json are kept where there is no generation_config.json.
TEST_F(ByteBpeInteropTest, IdsOfTheConfigurationAreTheSpecialTokens) {
  const fs::path directory = directory_of("llama", ExportFormat::hf_llama, llama_config(1, true));
  fs::remove(directory / "generation_config.json");
  fs::remove(directory / "tokenizer_config.json");
  edit_json(directory / "config.json", [](FileJson& json) {
    json["eos_token_id"] = {3, 2};
    json["bos_token_id"] = 5;
    json["pad_token_id"] = nullptr;
  });
  const Tokenizer tokenizer = *import_model(*context_, directory).tokenizer;
  EXPECT_EQ(tokenizer.eos_id(), 3);
  EXPECT_EQ(tokenizer.further_end_ids(), std::vector<int32_t>{2});
  EXPECT_EQ(tokenizer.bos_id(), 5);
  EXPECT_TRUE(tokenizer.bos_is_subword());
  ASSERT_FALSE(tokenizer.companions().empty());
  // A model can be written and read without any special token but the end.
  const Tokenizer again =
      Tokenizer::from_bytes(tokenizer.serialized(), "x", tokenizer.companions());
  EXPECT_EQ(again.further_end_ids(), tokenizer.further_end_ids());
}

// The error names the file that has the id: generation_config.json or, without it, config.json.
TEST_F(ByteBpeInteropTest, AnEndThatIsNoTokenIsNamedWithItsFile) {
  const fs::path directory = directory_of("llama", ExportFormat::hf_llama, llama_config(1, true));
  const auto refused = [&](const char* file) {
    edit_json(directory / file, [](FileJson& json) { json["eos_token_id"] = {2, 100000}; });
    const Error error = error_of([&] { import_model(*context_, directory); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    EXPECT_TRUE(mentions(error, (directory / file).string() + ": eos_token_id[1]: it is not"))
        << error.what();
  };
  refused("generation_config.json");
  fs::remove(directory / "generation_config.json");
  refused("config.json");
}

TEST_F(ByteBpeInteropTest, WhatIsNotDoneIsANoteThatNamesTheKey) {
  const fs::path directory = directory_of("llama", ExportFormat::hf_llama, llama_config(1, true));
  edit_json(directory / "tokenizer.json", [](FileJson& json) {
    json["normalizer"] = {{"type", "StripAccents"}};
  });
  const ImportedModel imported = import_model(*context_, directory);
  EXPECT_FALSE(imported.tokenizer.has_value());
  EXPECT_TRUE(contains(imported.note, "no tokenizer was imported")) << imported.note;
  EXPECT_TRUE(contains(imported.note, "tokenizer.json: normalizer: type 'StripAccents' is not "))
      << imported.note;
  edit_json(directory / "tokenizer.json",
            [](FileJson& json) { json["added_tokens"][0].erase("lstrip"); });
  edit_json(directory / "tokenizer.json", [](FileJson& json) { json["normalizer"] = nullptr; });
  const Error error = error_of([&] { import_model(*context_, directory); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
  EXPECT_TRUE(mentions(error, "added_tokens[0]: there is no lstrip")) << error.what();
}

// A directory as Llama 2's without tokenizer.model. Formats that have SentencePiece models alone
// get one with the same ids.
TEST_F(ByteBpeInteropTest, ByteFallbackComesBackAsItCame) {
  TokenizerTrainOptions options;
  options.vocab_size = 310;
  options.hard_vocab_limit = false;
  options.model = TokenizerModel::bpe;
  options.byte_fallback = true;
  options.normalization = Normalization::identity;
  const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze findet den Stein"};
  const Tokenizer spm = Tokenizer::train(std::span<const std::string>(lines), options);
  ModelConfig config = llama_config(1, true);
  config.vocabulary = spm.vocab_size();
  model_ = model_of(config);
  const fs::path directory = path("llama2");
  export_model(*context_, *model_, spm, ExportFormat::hf_llama, directory);
  fs::remove(directory / "tokenizer.model");
  edit_json(directory / "tokenizer.json", [](FileJson& json) {
    for (int id = 0; id < 4; ++id)
      json["added_tokens"].push_back({{"id", id},
                                      {"content", std::vector{"<unk>", "<s>", "</s>", "<pad>"}[id]},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    const FileJson space = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
    json["normalizer"] = {{"type", "Sequence"},
                          {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, space}}};
    json["decoder"]["decoders"].erase(0);  // of special tokens
  });
  const ImportedModel imported = import_model(*context_, directory);
  ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
  const Tokenizer& tokenizer = *imported.tokenizer;
  EXPECT_EQ(tokenizer.kind(), "byte-bpe");
  EXPECT_EQ(tokenizer.serialized(), content(directory / "tokenizer.json"));
  EXPECT_EQ(tokenizer.special_tokens(), spm.special_tokens());
  for (const char* line : {"der Hund sieht die Katze", "Vogel 東京", "den Stein \U0001F600"}) {
    EXPECT_EQ(tokenizer.encode(line), spm.encode(line)) << line;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(line)), line);
  }
  export_model(*context_, *imported.model, tokenizer, ExportFormat::hf_llama, path("again"));
  EXPECT_EQ(content(path("again") / "tokenizer.json"), content(directory / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(path("again") / "tokenizer.model"));
  export_model(*context_, *imported.model, tokenizer, ExportFormat::gguf, path("gguf"));
  export_model(*context_, *imported.model, tokenizer, ExportFormat::ctranslate2, path("ct2"));
  EXPECT_TRUE(contains(content(path("gguf") / "model.gguf"), "tokenizer.ggml.scores"));
  EXPECT_TRUE(contains(content(path("ct2") / "vocabulary.json"), "Hund"));

  // A setting that a SentencePiece model cannot express is refused there by its key.
  edit_json(directory / "tokenizer.json", [](FileJson& json) { json["model"]["merges"].erase(4); });
  const ImportedModel other = import_model(*context_, directory);
  ASSERT_TRUE(other.tokenizer.has_value()) << other.note;
  const Error error = error_of([&] {
    export_model(*context_, *other.model, *other.tokenizer, ExportFormat::gguf, path("refused"));
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, "tokenizer.json: model: merges: ")) << error.what();
  EXPECT_FALSE(fs::exists(path("refused")));
}

TEST_F(ByteBpeInteropTest, FormatsWithoutItSaySo) {
  ModelConfig config = llama_config(1, true);
  config.vocabulary = byte_bpe().vocab_size();
  const auto llama = model_of(config);
  config = config_of(Architecture::encoder_decoder, false);
  config.vocabulary = byte_bpe().vocab_size();
  const auto marian = model_of(config);
  for (const auto& [model, format] :
       {std::pair(&llama, ExportFormat::ctranslate2), std::pair(&marian, ExportFormat::hf_marian),
        std::pair(&marian, ExportFormat::onnx)}) {
    const Error error =
        error_of([&] { export_model(*context_, **model, byte_bpe(), format, path("refused")); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_TRUE(mentions(error, "a byte-bpe vocabulary")) << error.what();
  }
  EXPECT_FALSE(fs::exists(path("refused")));
}

}  // namespace
}  // namespace trafo
