// Directories of BERT, RoBERTa, XLM-R and ModernBERT with their heads.
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
    const bool labelled = head == EncoderHead::sequence || head == EncoderHead::token;
    config.labels = labelled ? 3 : 0;
    if (of_class == EncoderClass::modernbert)
      config = modernbert_of(config, head, 4);
    else
      config.token_types = 2;
    return encoder(config);
  }
  std::unique_ptr<Model> encoder(const ModelConfig& config) {
    auto model = model_of(config);
    const bool labelled = config.labels > 0;
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
  for (const EncoderClass of_class : {EncoderClass::bert, EncoderClass::roberta,
                                      EncoderClass::xlm_roberta, EncoderClass::modernbert})
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

TEST_F(BertInteropTest, FormsOfModernBertComeBack) {
  const auto comes_back = [&](const std::string& name, EncoderHead head, auto change) {
    SCOPED_TRACE(name);
    ModelConfig config = encoder(head, EncoderClass::modernbert)->config();
    config.encoder_layers = ModelConfig{}.encoder_layers;  // an encoder has none
    change(config);
    const auto model = encoder(config);
    const ImportedModel again = imported(directory_of(*model, name));
    EXPECT_EQ(to_json(again.model->config()), to_json(config));
    EXPECT_EQ(weight_bytes(*context_, *again.model), weight_bytes(*context_, *model));
  };
  comes_back("mean", EncoderHead::sequence,
             [](ModelConfig& c) { c.classifier_pooling = Pooling::mean; });
  comes_back("all", EncoderHead::token, [](ModelConfig& c) { c.full_attention_interval = 0; });
  comes_back("none", EncoderHead::masked_lm, [](ModelConfig& c) {
    c.sliding_window = c.full_attention_interval = 0;
    c.rope_local_theta = 0;
  });
  comes_back("untied", EncoderHead::masked_lm, [](ModelConfig& c) {
    c.tied_embeddings = c.output_bias = false;
    c.qkv_biases = c.attention_output_bias = true;
  });
  comes_back("swiglu", EncoderHead::none, [](ModelConfig& c) {
    c.ffn = FeedForward::swiglu;
    c.activation = Activation::silu;
    c.ffn_biases = true;
  });
}

TEST_F(BertInteropTest, ConfigurationsOfModernBertAreReadOrRefusedByKey) {
  const fs::path directory =
      directory_of(*encoder(EncoderHead::sequence, EncoderClass::modernbert), "modernbert");
  const ModelConfig usual = imported(directory).model->config();
  const auto with = [&](auto change, auto check) {
    FileJson before;
    edit_config(directory, [&](FileJson& json) {
      before = json;
      change(json);
    });
    check();
    edit_config(directory, [&](FileJson& json) { json = before; });
  };
  const auto reads = [&](auto change, auto expected) {
    with(change, [&] {
      ModelConfig config = usual;
      expected(config);
      EXPECT_EQ(to_json(imported(directory).model->config()), to_json(config));
    });
  };
  const auto refused_with = [&](const char* key, const FileJson& value) {
    with([&](FileJson& json) { json[key] = value; },
         [&] { refused_import(directory, ErrorCode::unsupported, key); });
  };
  // Without keys as the class has them: every third layer from the first on, 64 to each side.
  reads(
      [](FileJson& json) {
        for (const char* key :
             {"layer_types", "global_attn_every_n_layers", "local_attention", "global_rope_theta",
              "local_rope_theta", "hidden_activation", "classifier_pooling", "norm_eps"})
          json.erase(key);
      },
      [](ModelConfig& c) {
        c.full_attention_interval = 3;
        c.sliding_window = 65;
        c.rope_local_theta = 10000;
        c.norm_epsilon = 1e-5;
      });
  reads(
      [](FileJson& json) {
        json.erase("layer_types");
        json["global_attn_every_n_layers"] = 1;
        json["rope_parameters"] = {{"full_attention", {{"rope_theta", 700.0}}}};
      },
      [](ModelConfig& c) {
        c.full_attention_interval = c.sliding_window = 0;
        c.rope_theta = 700;
        c.rope_local_theta = 0;
      });
  reads([](FileJson& json) { json["local_attention"] = 1; },
        [](ModelConfig& c) { c.sliding_window = 1; });
  refused_with("norm_bias", true);
  refused_with("classifier_bias", true);
  refused_with("classifier_activation", "relu");
  refused_with("classifier_pooling", "max");
  refused_with("hidden_activation", "relu");
  refused_with("sliding_window", 8);
  refused_with("head_dim", 2);
  refused_with("rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}});
  refused_with("rope_parameters",
               {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  refused_with("layer_types", FileJson::array({"sliding_attention", "full_attention"}));
  refused_with("layer_types", FileJson::array({"full_attention", "chunked_attention"}));
  refused_with("problem_type", "regression");
  refused_with("architectures", FileJson::array({"ModernBertForQuestionAnswering"}));
  edit_config(directory, [](FileJson& json) { json["layer_types"] = {"full_attention"}; });
  refused_import(directory, ErrorCode::corrupt_file, "layer_types has 1 kinds");
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
