// Directories of decoder-only models with BERT's tokenizer, as tokenizer.json or vocab.txt.
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kBertLines =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nder\nhund\nsie\n##ht\nein\n##en\nbaum\n,\n.\n";
constexpr const char* kBertConfig =
    R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})";

class WordPieceInteropTest : public InteropTest {
 protected:
  static Tokenizer pieces() {
    return load_vocab_txt(kBertLines, "vocab.txt", {{"tokenizer_config.json", kBertConfig}});
  }
  fs::path directory_of(const std::string& name, ExportFormat format, ModelConfig config) {
    config.vocabulary = pieces().vocab_size();
    const auto model = model_of(config);
    model->set_tokens(
        VocabularyTokens{pieces().special_tokens(), {}, {.begin = true, .end = true}});
    export_model(*context_, *model, pieces(), format, path(name));
    return path(name);
  }
  static std::string content(const fs::path& file) { return read_text_file(file, 1 << 22); }
};

TEST_F(WordPieceInteropTest, AVocabularyComesBackAsItCame) {
  ModelConfig gpt2 = config_of(Architecture::decoder_lm, true);
  gpt2.output_bias = false;
  const std::pair<ExportFormat, ModelConfig> forms[] = {
      {ExportFormat::hf_llama, llama_config(1, true)}, {ExportFormat::hf_gpt2, gpt2}};
  for (const auto& [format, config] : forms) {
    const std::string name = enum_name(format);
    const fs::path directory = directory_of(name, format, config);
    EXPECT_EQ(content(directory / "tokenizer.json"), pieces().serialized());
    EXPECT_EQ(content(directory / "tokenizer_config.json"), kBertConfig);
    const ImportedModel imported = import_model(*context_, directory);
    ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
    EXPECT_EQ(imported.note, "");
    EXPECT_EQ(imported.tokenizer->kind(), "wordpiece");
    EXPECT_EQ(imported.tokenizer->serialized(), pieces().serialized());
    EXPECT_EQ(imported.tokenizer->encode("Der Hund sieht einen Baum!"),
              (std::vector<int32_t>{5, 6, 7, 8, 9, 10, 11, 1}));
    EXPECT_EQ(imported.model->tokens()->frame, (TextFrame{.begin = true, .end = true}));
    EXPECT_EQ(imported.model->tokens()->special, pieces().special_tokens());
  }
}

TEST_F(WordPieceInteropTest, AVocabTxtIsRead) {
  const fs::path directory = directory_of("llama", ExportFormat::hf_llama, llama_config(1, true));
  fs::remove(directory / "tokenizer.json");
  write_file_atomically(directory / "vocab.txt", kBertLines);
  const ImportedModel imported = import_model(*context_, directory);
  ASSERT_TRUE(imported.tokenizer.has_value()) << imported.note;
  EXPECT_EQ(imported.tokenizer->serialized(), pieces().serialized());
  EXPECT_EQ(imported.model->tokens()->frame, (TextFrame{.begin = true, .end = true}));
  // Of another kind of tokenizer.
  write_file_atomically(directory / "vocab.txt", "<unk>\nder\nHund\n");
  const ImportedModel bare = import_model(*context_, directory);
  EXPECT_FALSE(bare.tokenizer.has_value());
  EXPECT_TRUE(contains(bare.note, "no vocab.txt of WordPiece")) << bare.note;
}

TEST_F(WordPieceInteropTest, OtherFormatsRefuseIt) {
  ModelConfig config = config_of(Architecture::decoder_lm, true);
  config.vocabulary = pieces().vocab_size();
  const auto model = model_of(config);
  expect_error(ErrorCode::unsupported, "a wordpiece vocabulary", [&] {
    export_model(*context_, *model, pieces(), ExportFormat::ctranslate2, path("refused"));
  });
}

}  // namespace
}  // namespace trafo
