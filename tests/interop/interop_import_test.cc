// Directories as people have them: weights in several files, tokenizers that transformers saved
// again, padded vocabularies, several ends, and the settings of Llama's relatives.
#include "engine/decode/translator.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/ops/embedding/embedding.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

TEST_F(ImportTest, WeightsInSeveralFiles) {
  const fs::path directory = llama("split");
  const ImportedModel whole = imported(directory);
  split_weights(directory);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model),
            weight_bytes(*context_, *whole.model));
  // Behind links, as a cache has them.
  fs::rename(directory / weight_file(1), path("elsewhere"));
  fs::create_symlink(path("elsewhere"), directory / weight_file(1));
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model),
            weight_bytes(*context_, *whole.model));
}

// A SentencePiece model has no place for a chat template, so it lies beside it.
TEST_F(ImportTest, TheChatTemplateOfASentencePieceModelGoesOutAgain) {
  const fs::path directory = llama("chat");
  EXPECT_TRUE(imported(directory).tokenizer->companions().empty());
  const std::string source = "{{ bos_token }}{{ messages[0].content }}\r\n\n";
  edit_json(directory / "tokenizer_config.json",
            [](FileJson& json) { json["chat_template"] = "{{ 1 }}"; });
  EXPECT_EQ(imported(directory).tokenizer->companions().front().content, "{{ 1 }}");
  write_file_atomically(directory / "chat_template.jinja", source);
  for (const bool spm : {true, false}) {
    if (!spm) fs::remove(directory / "tokenizer.model");
    const ImportedModel model = imported(directory);
    ASSERT_NE(model.tokenizer->as_sentencepiece(), nullptr);
    ASSERT_EQ(model.tokenizer->companions().size(), 1u);
    EXPECT_EQ(model.tokenizer->companions()[0].name, "chat_template.jinja");
    const fs::path again = path(spm ? "again-spm" : "again-json");
    export_model(*context_, *model.model, *model.tokenizer, ExportFormat::hf_llama, again);
    EXPECT_EQ(read_text_file(again / "chat_template.jinja", 1 << 20), source);
  }
}

// The model knows the special tokens of its directory, so that its ids say all and it can be
// exported again.
TEST_F(ImportTest, ADirectoryWithoutATokenizerGoesOutAgain) {
  const fs::path directory = llama("bare");
  const VocabularyTokens tokens = tokenizer().tokens();
  EXPECT_EQ(imported(directory).model->tokens(), tokens);
  for (const char* file : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json"})
    fs::remove(directory / file);
  for (const char* file : {"config.json", "generation_config.json"})
    edit_json(directory / file, [&](FileJson& json) {
      json["eos_token_id"] = std::vector<int>{tokens.special.eos, 7};
    });
  const ImportedModel bare = imported(directory);
  ASSERT_FALSE(bare.tokenizer.has_value());
  VocabularyTokens known = tokens;
  known.special.unk = -1;
  known.further_ends = {7};
  EXPECT_EQ(bare.model->tokens(), known);

  EXPECT_EQ(export_model(*context_, *bare.model, {}, ExportFormat::hf_llama, path("again")), 0);
  EXPECT_FALSE(fs::exists(path("again") / "tokenizer.model"));
  const ImportedModel again = imported(path("again"));
  EXPECT_EQ(again.model->tokens(), known);
  EXPECT_EQ(weight_bytes(*context_, *again.model), weight_bytes(*context_, *bare.model));
  const Error error = error_of(
      [&] { export_model(*context_, *bare.model, {}, ExportFormat::gguf, path("no.gguf")); });
  EXPECT_TRUE(mentions(error, "tokenizer is missing, and gguf has one")) << error.what();
  const auto unknown = model_of(llama_config(1, true));
  EXPECT_TRUE(mentions(
      error_of([&] { export_model(*context_, *unknown, {}, ExportFormat::hf_llama, path("no")); }),
      "does not know the special tokens"));
  edit_json(directory / "generation_config.json",
            [](FileJson& json) { json["eos_token_id"] = 1 << 20; });
  refused_import(directory, ErrorCode::corrupt_file, "eos_token_id is 1048576");
}

TEST_F(ImportTest, WhatIsWrongWithSeveralFiles) {
  const auto broken_split = [&](const std::string& text, auto change) {
    const fs::path directory = llama("split");
    const auto [first, second] = split_weights(directory);
    change(directory, first, second);
    refused_import(directory, ErrorCode::corrupt_file, text);
    fs::remove_all(directory);
  };
  using Path = const fs::path&;
  using Name = const std::string&;
  broken_split("'model-00002-of-00002.safetensors', which is not in the directory",
               [](Path d, Name, Name) { fs::remove(d / weight_file(1)); });
  broken_split("and in", [](Path d, Name, Name) {
    fs::copy_file(d / weight_file(0), d / "twice.safetensors");
    edit_map(d, [](FileJson& map) { map["extra"] = "twice.safetensors"; });
  });
  broken_split("has no such tensor", [](Path d, Name first, Name) {
    edit_map(d, [&](FileJson& map) { map[first] = weight_file(1); });
  });
  broken_split("has no such tensor", [](Path d, Name, Name) {
    edit_map(d, [](FileJson& map) { map["extra"] = weight_file(1); });
  });
  broken_split("does not list the tensor", [](Path d, Name, Name second) {
    edit_map(d, [&](FileJson& map) { map.erase(second); });
  });
  for (const char* name : {"../outside", "/etc/passwd", "..", "", "a/b", "a\\b"})
    broken_split("is not the name of a file of this directory", [&](Path d, Name first, Name) {
      edit_map(d, [&](FileJson& map) { map[first] = name; });
    });
  broken_split("is no text", [](Path d, Name first, Name) {
    edit_map(d, [&](FileJson& map) { map[first] = 1; });
  });
  broken_split("weight_map is empty", [](Path d, Name, Name) {
    edit_map(d, [](FileJson& map) { map = FileJson::object(); });
  });
  broken_split("513 files, the limit is 512", [](Path d, Name, Name) {
    edit_map(d, [](FileJson& map) {
      for (int i = 0; i < 511; ++i) map[concat("t", i)] = concat("f", i);
    });
  });
  broken_split("not valid JSON", [](Path d, Name, Name) {
    write_file_atomically(d / kWeightList, std::string_view("{"));
  });
  broken_split("has the shape", [](Path d, Name, Name) {
    edit_config(d, [](FileJson& json) { json["intermediate_size"] = 30; });
  });
}

TEST_F(ImportTest, ATokenizerThatWasSavedAgain) {
  const fs::path directory = resaved("resaved");
  const ImportedModel result = imported(directory);
  ASSERT_TRUE(result.tokenizer.has_value()) << result.note;
  EXPECT_EQ(result.note, "");
  for (const char* line : {"der Hund sieht einen Baum.", "  ein  Licht ", "naïve ﬁ ½ 東京", "",
                           "x\ty", "a\u0327\u0302 \uff76\uff9e \u1100\u1161\u11a8"})
    EXPECT_EQ(result.tokenizer->encode(line), tokenizer().encode(line)) << line;
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) {
    EXPECT_EQ(result.tokenizer->token(id), tokenizer().token(id));
    EXPECT_EQ(result.tokenizer->as_sentencepiece()->type(id),
              tokenizer().as_sentencepiece()->type(id));
  }
  EXPECT_EQ(result.tokenizer->eos_id(), 2);
  EXPECT_EQ(result.tokenizer->bos_id(), 1);
  EXPECT_EQ(result.tokenizer->pad_id(), 3);
}

TEST_F(ImportTest, ATokenizerWithoutMergesMaySayNull) {
  const fs::path directory = resaved("null");
  edit_json(directory / "tokenizer.json",
            [](FileJson& json) { json["model"]["merges"] = nullptr; });
  const ImportedModel result = imported(directory);
  ASSERT_TRUE(result.tokenizer.has_value()) << result.note;
  EXPECT_EQ(result.tokenizer->encode("der Hund"), tokenizer().encode("der Hund"));
}

// BPE with byte tokens, in the forms that transformers 4 and 5 save.
TEST_F(ImportTest, ABpeTokenizerThatWasSavedAgain) {
  TokenizerTrainOptions options;
  options.vocab_size = 310;
  options.hard_vocab_limit = false;
  options.model = TokenizerModel::bpe;
  options.byte_fallback = true;
  const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze findet den Stein",
                                       "ein Vogel sucht das Haus"};
  const Tokenizer bpe = Tokenizer::train(std::span<const std::string>(lines), options);
  ModelConfig config = llama_config(1, true);
  config.vocabulary = bpe.vocab_size();
  model_ = model_of(config);
  const fs::path directory = path("bpe");
  export_model(*context_, *model_, bpe, ExportFormat::hf_llama, directory);
  fs::remove(directory / "tokenizer.model");
  const auto same_ids = [&] {
    const ImportedModel result = imported(directory);
    ASSERT_TRUE(result.tokenizer.has_value()) << result.note;
    for (const char* line : {"der Hund sieht die Katze", "Vogel 東京", "das  Haus"})
      EXPECT_EQ(result.tokenizer->encode(line), bpe.encode(line)) << line;
  };
  same_ids();
  edit_json(directory / "tokenizer.json", [](FileJson& json) {  // no map: as Llama's
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\u2581"},
                             {"prepend_scheme", "first"},
                             {"split", false}};
    for (FileJson& merge : json["model"]["merges"])  // as files of older versions have them
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  });
  const ImportedModel result = imported(directory);
  ASSERT_TRUE(result.tokenizer.has_value()) << result.note;
  EXPECT_EQ(result.tokenizer->encode("der Hund sieht"), bpe.encode("der Hund sieht"));
  EXPECT_NE(result.tokenizer->encode("a  b"), bpe.encode("a  b"));  // spaces are kept

  const auto refused_merges = [&](const char* text, const std::function<void(FileJson&)>& change) {
    const std::string before = read_text_file(directory / "tokenizer.json", 1 << 24);
    edit_json(directory / "tokenizer.json", [&](FileJson& json) { change(json["model"]); });
    const ImportedModel other = imported(directory);
    EXPECT_FALSE(other.tokenizer.has_value());
    EXPECT_TRUE(contains(other.note, text)) << other.note;
    write_file_atomically(directory / "tokenizer.json", before);
  };
  refused_merges("that SentencePiece would make",
                 [](FileJson& model) { model["merges"].erase(4); });
  refused_merges("ignore_merges", [](FileJson& model) { model["ignore_merges"] = true; });
  refused_merges("end_of_word_suffix",
                 [](FileJson& model) { model["end_of_word_suffix"] = "</w>"; });
  refused_merges("vocab has no <0x41>", [](FileJson& model) { model["vocab"].erase("<0x41>"); });
}

TEST_F(ImportTest, TokenizersOfAnotherForm) {
  no_tokenizer("model: type: it is 'WordPiece'",
               [](FileJson& json) { json["model"]["type"] = "WordPiece"; });
  no_tokenizer("pre_tokenizer: the step 'ByteLevel'", [](FileJson& json) {
    json["pre_tokenizer"] = {{"type", "ByteLevel"}};
  });
  no_tokenizer("normalizer: the step 'Lowercase'", [](FileJson& json) {
    json["normalizer"]["normalizers"].push_back({{"type", "Lowercase"}});
  });
  no_tokenizer("normalizer: Replace: of 'a'", [](FileJson& json) {
    json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}};
  });
  no_tokenizer("normalizer: the step 'NFC'", [](FileJson& json) {
    json["normalizer"] = {{"type", "NFC"}};
  });
  // The steps of an export stand together, and each is as the map has it.
  no_tokenizer("normalizer: Replace: of '\U00011935",
               [](FileJson& json) { json["normalizer"]["normalizers"].erase(6); });
  no_tokenizer("normalizer: Replace: of '\U00011935",
               [](FileJson& json) { json["normalizer"]["normalizers"][2]["content"] = "\ufdd1"; });
  no_tokenizer("added_tokens: '<x>' has lstrip", [](FileJson& json) {
    json["added_tokens"].push_back(
        {{"id", 5}, {"content", "<x>"}, {"special", false}, {"lstrip", true}});
  });
  no_tokenizer("model: unk_id", [](FileJson& json) { json["model"]["unk_id"] = nullptr; });
}

TEST_F(ImportTest, DamagedTokenizers) {
  damaged_tokenizer("model has no vocab", [](FileJson& json) { json["model"].erase("vocab"); });
  const auto added = [](FileJson& json, int id) {
    json["added_tokens"].push_back({{"id", id}, {"content", "<s>"}, {"special", true}});
  };
  damaged_tokenizer("'<s>' has the id of", [&](FileJson& json) { added(json, 7); });
  damaged_tokenizer("has no id below", [&](FileJson& json) { added(json, 1 << 30); });
  damaged_tokenizer("post_processor: '<s>' has another id than in vocab", [](FileJson& json) {
    json["post_processor"]["special_tokens"]["<s>"]["ids"] = {7};
  });
  damaged_tokenizer("has a subword twice", [](FileJson& json) {
    json["model"]["vocab"].push_back({"<s>", 0.0});
  });
  damaged_tokenizer("is not a finite number",
                    [](FileJson& json) { json["model"]["vocab"][5][1] = 1e300; });
  damaged_tokenizer("a list that is no pair",
                    [](FileJson& json) { json["model"]["vocab"][5] = {"x"}; });
  damaged_tokenizer("model: vocab has a value of another kind",
                    [](FileJson& json) { json["model"]["vocab"][5] = nullptr; });
  damaged_tokenizer("vocab does not fit its type",
                    [](FileJson& json) { json["model"]["type"] = "BPE"; });
  damaged_tokenizer("unk_id is not an id", [](FileJson& json) { json["model"]["unk_id"] = 1000; });
  damaged_tokenizer("precompiled_charsmap is no base64", [](FileJson& json) {
    for (FileJson& step : json["normalizer"]["normalizers"])
      if (step["type"] == "Precompiled") step["precompiled_charsmap"] = "*";
  });
  damaged_tokenizer("merges: the vocabulary has no 'q'", [](FileJson& json) {
    FileJson& model = json["model"];
    model["type"] = "BPE";
    model["vocab"] = {{"<unk>", 0}, {"a", 1}};
    model["merges"] = {"a q"};
  });
  damaged_tokenizer("the tokenizer has", [](FileJson& json) {
    json["model"]["vocab"].push_back({"more", -20.0});
  });
  const fs::path directory = resaved("no-json");
  write_file_atomically(directory / "tokenizer.json",
                        std::string_view("{\"model\": {\"vocab\": {"));
  refused_import(directory, ErrorCode::corrupt_file, "not valid JSON at byte");
  write_file_atomically(directory / "tokenizer.json", std::string(100000, '['));
  refused_import(directory, ErrorCode::corrupt_file, "nested more than 16 deep");
}

// Rows that no token has are left out, in every kind of model.
TEST_F(ImportTest, PaddedVocabularies) {
  const auto padded = [&](const fs::path& directory) {
    const int64_t size = tokenizer().vocab_size();
    edit_config(directory, [&](FileJson& json) {
      json["vocab_size"] = size + 3;
      if (json.contains("decoder_vocab_size")) json["decoder_vocab_size"] = size + 3;
    });
    edit_tensors(directory, [&](std::vector<Stored>& tensors) {
      for (Stored& tensor : tensors)
        for (int64_t& rows : tensor.shape)
          if (rows == size) {
            rows += 3;
            tensor.bytes.resize(tensor.bytes.size() / static_cast<size_t>(size) *
                                static_cast<size_t>(rows));
            break;
          }
    });
    const ImportedModel result = imported(directory);
    EXPECT_EQ(result.model->config(), model_->config());
    EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
    EXPECT_TRUE(contains(result.note, concat("have ", size + 3, " rows"))) << result.note;
  };
  padded(llama("llama"));
  ModelConfig gpt2 = config_of(Architecture::decoder_lm, true);
  gpt2.encoder_layers = ModelConfig{}.encoder_layers;
  gpt2.output_bias = false;
  gpt2.ffn_dropout = 0;
  model_ = model_of(gpt2);
  exported(*model_, ExportFormat::hf_gpt2, "gpt2");
  padded(path("gpt2"));
  model_ = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model_, ExportFormat::hf_marian, "marian");
  padded(path("marian"));
}

TEST_F(ImportTest, TheModelsOwnEnds) {
  const fs::path directory = llama("ends");
  const auto with = [&](const FileJson& config, const FileJson& generation) {
    edit_config(directory, [&](FileJson& json) { json["eos_token_id"] = config; });
    edit_json(directory / "generation_config.json", [&](FileJson& json) {
      if (generation.is_null())
        json.erase("eos_token_id");
      else
        json["eos_token_id"] = generation;
    });
    return *imported(directory).tokenizer;
  };
  EXPECT_EQ(with(2, nullptr).serialized(), tokenizer().serialized());
  EXPECT_EQ(with(2, 9).eos_id(), 9);  // generation_config.json goes before
  const Tokenizer several = with(FileJson::array({2, 9, 12, 9}), nullptr);
  EXPECT_EQ(several.eos_id(), 2);
  EXPECT_EQ(several.further_end_ids(), (std::vector<int32_t>{9, 12}));
  // An end that is an ordinary subword stays one: texts have the same ids.
  const Tokenizer ordinary = with(9, nullptr);
  EXPECT_EQ(ordinary.as_sentencepiece()->type(9), SubwordType::normal);
  EXPECT_EQ(ordinary.encode("der Hund sieht"), tokenizer().encode("der Hund sieht"));
  for (const FileJson& wrong : {FileJson({2, "three"}), FileJson("2"), FileJson(1e300)}) {
    edit_config(directory, [&](FileJson& json) { json["eos_token_id"] = wrong; });
    refused_import(directory, ErrorCode::corrupt_file, "eos_token_id must be");
  }
  edit_config(directory, [](FileJson& json) { json["eos_token_id"] = 500; });
  refused_import(directory, ErrorCode::corrupt_file, "eos_token_id 500 is not one of");

  // Exported and imported again, and one end in place of several.
  ModelConfig config = llama_config(1, true);
  const auto model = model_of(config);
  export_model(*context_, *model, several, ExportFormat::hf_llama, path("again"));
  const Tokenizer again = *imported(path("again")).tokenizer;
  EXPECT_EQ(again.further_end_ids(), several.further_end_ids());
  for (const char* name : {"config.json", "generation_config.json"})
    edit_json(path("again") / name, [](FileJson& json) { json["eos_token_id"] = 2; });
  EXPECT_EQ(imported(path("again")).tokenizer->further_end_ids(), (std::vector<int32_t>{}));
}

TEST_F(ImportTest, SettingsOfLlamasRelatives) {
  ModelConfig config = llama_config(1, true);
  config.head_width = 12;
  config.qkv_biases = config.attention_output_bias = config.ffn_biases = true;
  config.rope_factor = 8;
  config.rope_original_positions = 20;
  config.rope_high_turns = 3;
  const fs::path directory = llama("variants", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  for (const ExportFormat format : {ExportFormat::ctranslate2, ExportFormat::onnx})
    expect_error(ErrorCode::unsupported, "cannot express heads of 12 elements",
                 [&] { exported(*model_, format, "none"); });
  // GGUF has an architecture with such heads, which has no biases.
  expect_error(ErrorCode::unsupported, "GGUF cannot express biases of linear layers (all)",
               [&] { exported(*model_, ExportFormat::gguf, "none"); });

  config = llama_config(1, true);
  config.qkv_biases = true;
  config.rope_factor = 2;
  const fs::path qwen2 = llama("qwen2", config);
  EXPECT_EQ(imported(qwen2).model->config(), config);
  edit_config(qwen2, [](FileJson& json) {
    EXPECT_EQ(json["model_type"], "qwen2");
    json["sliding_window"] = 4;  // not used
  });
  EXPECT_EQ(imported(qwen2).model->config(), config);
  // The usual max_window_layers are more than there are.
  edit_config(qwen2, [](FileJson& json) { json["use_sliding_window"] = true; });
  EXPECT_EQ(imported(qwen2).model->config(), config);
  edit_config(qwen2, [](FileJson& json) { json["max_window_layers"] = 1; });
  refused_import(qwen2, ErrorCode::unsupported, "max_window_layers must have layers without");
  edit_config(qwen2, [](FileJson& json) { json["max_window_layers"] = 0; });
  config.sliding_window = 4;
  EXPECT_EQ(imported(qwen2).model->config(), config);

  const fs::path mistral = llama("mistral");
  const auto window = [&](const FileJson& value) {
    edit_config(mistral, [&](FileJson& json) {
      json["model_type"] = "mistral";
      json["sliding_window"] = value;
    });
  };
  for (const FileJson& wide : {FileJson(nullptr), FileJson(4096)}) {
    window(wide);
    EXPECT_EQ(imported(mistral).model->config(), model_->config());
  }
  window(8);
  EXPECT_EQ(imported(mistral).model->config().sliding_window, 8);
  EXPECT_EQ(imported(mistral).model->config().full_attention_interval, 0);
  const FileJson one = FileJson::array({"sliding_attention"});
  for (const FileJson& kinds : {FileJson::array(), one}) {
    edit_config(mistral, [&](FileJson& json) { json["layer_types"] = kinds; });
    refused_import(mistral, ErrorCode::corrupt_file,
                   concat("layer_types has ", kinds.size(), " kinds, there are 2 layers"));
  }
  edit_config(mistral, [](FileJson& json) {
    json["layer_types"] = {"sliding_attention", "full_attention"};
  });
  refused_import(mistral, ErrorCode::unsupported, "layer_types has full_attention");
  edit_config(mistral, [](FileJson& json) { json.erase("layer_types"); });
  window(0);
  refused_import(mistral, ErrorCode::corrupt_file, "sliding_window");
  window(nullptr);
  edit_config(mistral, [](FileJson& json) { json.erase("num_key_value_heads"); });
  refused_import(mistral, ErrorCode::corrupt_file, "has no num_key_value_heads");
}

TEST_F(ImportTest, EmbeddingsThatAreNotScaled) {
  const struct {
    ExportFormat format;
    const char* last_norm;
  } kForms[] = {{ExportFormat::hf_marian, "model.decoder.layers.1.final_layer_norm"},
                {ExportFormat::hf_pegasus, "model.decoder.layer_norm"}};
  for (const auto& [format, last_norm] : kForms) {
    SCOPED_TRACE(last_norm);
    const bool pre_norm = format == ExportFormat::hf_pegasus;
    const auto model = model_of(config_of(Architecture::encoder_decoder, pre_norm));
    const fs::path right = path(concat("scaled", pre_norm)),
                   other = path(concat("plain", pre_norm));
    for (const fs::path& each : {right, other}) exported(*model, format, each.filename());
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(model->config().width)));
    edit_config(other, [](FileJson& json) { json["scale_embedding"] = false; });
    // Multiplies the embedding beforehand, and divides it again where the matrix is the output's.
    edit_tensors(other, [&](std::vector<Stored>& tensors) {
      const auto scale = [&](const std::string& name, float factor) {
        Stored& tensor = find(tensors, name);
        auto* values = reinterpret_cast<float*>(tensor.bytes.data());
        for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) values[i] *= factor;
      };
      scale("model.shared.weight", root);
      scale(concat(last_norm, ".weight"), 1 / root);
      scale(concat(last_norm, ".bias"), 1 / root);
    });
    const ImportedModel scaled = imported(right), plain = imported(other);
    const std::vector<std::string_view> lines{"der Hund sieht einen Baum.", "ein Licht"};
    const auto a = Translator(*context_, *scaled.model, tokenizer()).score(lines, lines);
    const auto b = Translator(*context_, *plain.model, tokenizer()).score(lines, lines);
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_NEAR(a[i].log_probability, b[i].log_probability, 1e-4);
  }
}

// The decoder of a MarianMT model may start with a subword that texts have too.
TEST_F(ImportTest, AStartThatIsASubword) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model, ExportFormat::hf_marian, "start");
  edit_config(path("start"), [](FileJson& json) { json["decoder_start_token_id"] = 11; });
  const ImportedModel result = imported(path("start"));
  EXPECT_EQ(result.tokenizer->bos_id(), 11);
  EXPECT_TRUE(result.tokenizer->bos_is_subword());
  EXPECT_EQ(result.tokenizer->token(11), tokenizer().token(11));
  EXPECT_EQ(result.tokenizer->encode("der Hund sieht einen Baum."),
            tokenizer().encode("der Hund sieht einen Baum."));
}

// A base model continues a text; the space before the next word is there.
TEST_F(ImportTest, ATextIsContinued) {
  const fs::path directory = llama("base");
  const ImportedModel base = imported(directory);
  const Translator translator(*context_, *base.model, *base.tokenizer);
  TranslateOptions options;
  options.end_source = FrameToken::off;
  options.decode.beam = 1;
  options.decode.max_length = 5;
  const std::vector<std::string_view> lines{"der Hund"};
  const auto expected = [&](std::vector<int32_t> prompt) {
    DecodeOptions decode = options.decode;
    decode.tokens = tokenizer().special_tokens();
    decode.end_source = false;
    return translate_tokens(*context_, *base.model, {&prompt, 1}, decode)[0][0].tokens;
  };
  std::vector<int32_t> ids = tokenizer().encode(lines[0]);
  const auto found = translator.translate(lines, options)[0];
  EXPECT_EQ(found.used_tokens, static_cast<int64_t>(ids.size()));
  EXPECT_EQ(found.hypotheses[0].tokens, expected(ids));
  std::vector<int32_t> whole = ids;
  whole.insert(whole.end(), found.hypotheses[0].tokens.begin(), found.hypotheses[0].tokens.end());
  EXPECT_EQ("der Hund" + found.hypotheses[0].text, tokenizer().decode(whole));
  options.begin_source = FrameToken::on;
  ids.insert(ids.begin(), 1);
  EXPECT_EQ(translator.translate(lines, options)[0].hypotheses[0].tokens, expected(ids));
  // A text that is too long loses its beginning.
  std::string text = "der Hund";
  while (tokenizer().encode(text).size() < 60) text += " sieht einen Baum";
  const auto cut = translator.translate(std::vector<std::string_view>{text}, options)[0];
  std::vector<int32_t> kept = tokenizer().encode(text);
  const int64_t limit = longest_source(base.model->spec(), 5);
  EXPECT_EQ(limit, base.model->config().max_positions - 5);
  kept.erase(kept.begin(), kept.end() - (limit - 1));
  kept.insert(kept.begin(), 1);
  EXPECT_EQ(cut.used_tokens, limit);
  EXPECT_EQ(cut.hypotheses[0].tokens, expected(kept));

  const auto other = model_of(config_of(Architecture::encoder_decoder, false));
  for (const bool begins : {false, true}) {
    options.begin_source = begins ? FrameToken::on : FrameToken::off;
    options.end_source = begins ? FrameToken::on : FrameToken::off;
    expect_error(ErrorCode::invalid_argument, begins ? "begin_source" : "end_source",
                 [&] { Translator(*context_, *other, tokenizer()).translate(lines, options); });
  }
}

// Each end ends a hypothesis, in a search and in samples.
TEST_F(ImportTest, EveryEndEndsATranslation) {
  const fs::path directory = llama("ends");
  const ImportedModel base = imported(directory);
  std::vector<int32_t> source{5, 6, 7, 2};
  const auto tokens = [&](const std::vector<int32_t>& more, bool sampling) {
    DecodeOptions decode;
    decode.tokens = tokenizer().special_tokens();
    decode.more_ends = more;
    decode.beam = 1;
    decode.max_length = 12;
    decode.sampling.on = sampling;
    const Hypothesis found = translate_tokens(*context_, *base.model, {&source, 1}, decode)[0][0];
    EXPECT_TRUE(more.empty() || found.finished);
    for (const int32_t id : found.tokens) EXPECT_EQ(std::count(more.begin(), more.end(), id), 0);
    return found.tokens;
  };
  for (const bool sampling : {false, true}) {
    std::vector<int32_t> free = tokens({}, sampling);
    while (free.size() < 3 && source[0] < 50) {
      ++source[0];
      free = tokens({}, sampling);
    }
    ASSERT_GE(free.size(), 3u);
    const auto place = std::find(free.begin(), free.end(), free[2]) - free.begin();
    EXPECT_EQ(tokens({free[2]}, sampling),
              std::vector<int32_t>(free.begin(), free.begin() + place));
  }
}

}  // namespace
}  // namespace trafo
