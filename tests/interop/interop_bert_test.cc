// Directories of BERT, RoBERTa and XLM-R with their heads.
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

class BertInteropTest : public ImportTest {
 protected:
  static Tokenizer bert_pieces() {
    return load_vocab_txt("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nder\nhund\nsie\n##ht\n", "vocab.txt",
                          {{"tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})"}});
  }
  std::unique_ptr<Model> encoder(EncoderHead head, EncoderClass of_class = EncoderClass::bert) {
    ModelConfig config = config_of(Architecture::decoder_lm, false);
    config.architecture = Architecture::encoder;
    config.vocabulary = bert_pieces().vocab_size();
    config.encoder_class = of_class;
    config.encoder_head = head;
    config.token_types = 2;
    const bool labelled = head == EncoderHead::sequence || head == EncoderHead::token;
    config.labels = labelled ? 3 : 0;
    auto model = model_of(config);
    if (labelled) model->set_labels({"down", "\xc3\xa4ther", "up"});
    model->set_tokens(
        VocabularyTokens{bert_pieces().special_tokens(), {}, {.begin = true, .end = true}});
    return model;
  }
  fs::path directory_of(const Model& model, const std::string& name) {
    export_model(*context_, model, bert_pieces(), ExportFormat::hf_bert, path(name));
    return path(name);
  }
};

TEST_F(BertInteropTest, EveryHeadOfEveryClassComesBack) {
  for (const EncoderClass of_class :
       {EncoderClass::bert, EncoderClass::roberta, EncoderClass::xlm_roberta})
    for (const EncoderHead head :
         {EncoderHead::none, EncoderHead::masked_lm, EncoderHead::sequence, EncoderHead::token}) {
      const std::string name = concat(enum_name(of_class), "-", enum_name(head));
      SCOPED_TRACE(name);
      const auto model = encoder(head, of_class);
      const ImportedModel again = imported(directory_of(*model, name));
      EXPECT_EQ(weight_bytes(*context_, *again.model), weight_bytes(*context_, *model));
      EXPECT_EQ(again.model->labels(), model->labels());
      EXPECT_EQ(again.model->config().encoder_class, of_class);
      EXPECT_EQ(again.model->tokens()->frame, (TextFrame{.begin = true, .end = true}));
      ASSERT_TRUE(again.tokenizer.has_value()) << again.note;
      EXPECT_EQ(again.tokenizer->serialized(), bert_pieces().serialized());
    }
}

TEST_F(BertInteropTest, SettingsThatModelsHereLackAreRefusedByKey) {
  const fs::path directory = directory_of(*encoder(EncoderHead::sequence), "bert");
  const auto refused_with = [&](const char* key, const FileJson& value) {
    FileJson before;
    edit_config(directory, [&](FileJson& json) {
      before = json;
      json[key] = value;
    });
    refused_import(directory, ErrorCode::unsupported, key);
    edit_config(directory, [&](FileJson& json) { json = before; });
  };
  refused_with("is_decoder", true);
  refused_with("add_cross_attention", true);
  refused_with("position_embedding_type", "relative_key");
  refused_with("problem_type", "regression");
  refused_with("architectures", FileJson::array({"BertForQuestionAnswering"}));
  edit_config(directory, [](FileJson& json) { json.erase("id2label"); });
  refused_import(directory, ErrorCode::corrupt_file, "classifier");  // two labels, three rows
}

TEST_F(BertInteropTest, NamesOfOldFilesAndOfOtherClassesAreRead) {
  const auto model = encoder(EncoderHead::none);
  const auto wanted = weight_bytes(*context_, *model);
  const fs::path directory = directory_of(*model, "bert");
  edit_tensors(directory, [](std::vector<Stored>& all) {
    for (Stored& tensor : all) {
      tensor.name = "bert." + tensor.name;
      if (tensor.name.ends_with("LayerNorm.weight"))
        tensor.name.replace(tensor.name.size() - 6, 6, "gamma");
      if (tensor.name.ends_with("LayerNorm.bias"))
        tensor.name.replace(tensor.name.size() - 4, 4, "beta");
    }
  });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
}

TEST_F(BertInteropTest, OtherFormatsRefuseEncoders) {
  const auto model = encoder(EncoderHead::sequence);
  for (const ExportFormat format : {ExportFormat::hf_gpt2, ExportFormat::gguf, ExportFormat::onnx})
    EXPECT_EQ(error_of([&] {
                export_model(*context_, *model, bert_pieces(), format, path("refused"));
              }).code(),
              ErrorCode::unsupported);
}

}  // namespace
}  // namespace trafo
