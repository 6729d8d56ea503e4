// The special tokens around a text that the files of a directory say, in a model and out again.
#include "engine/models/model_io.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kConfig = "tokenizer_config.json";

// A post-processor that adds these ids.
FileJson added_around(const std::vector<int>& before, const std::vector<int>& after) {
  FileJson single = FileJson::array(), tokens = FileJson::object();
  const auto add = [&](int id) {
    const std::string name = concat("token ", id);
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  for (const int id : before) add(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const int id : after) add(id);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", FileJson::array()},
          {"special_tokens", tokens}};
}

class FrameTest : public ImportTest {
 protected:
  fs::path directory(const FileJson& flags, const FileJson& post_processor) {
    const fs::path made = llama(concat("form", forms_++));
    edit_json(made / kConfig, [&](FileJson& json) {
      json.erase("add_bos_token");
      json.erase("add_eos_token");
      json.update(flags);
    });
    edit_json(made / "tokenizer.json",
              [&](FileJson& json) { json["post_processor"] = post_processor; });
    return made;
  }
  TextFrame frame(const fs::path& from) { return imported(from).model->tokens()->frame; }

  int forms_ = 0;
};

// <s> is 1 and </s> 2.
TEST_F(FrameTest, FilesSayWhatIsAroundAText) {
  const FileJson none = FileJson::object();
  const FileJson letters = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const TextFrame usual;
  EXPECT_EQ(frame(llama("ours")), usual);
  const struct {
    const char* name;
    FileJson flags, post_processor;
    TextFrame frame;
  } forms[] = {
      {"Llama 3",
       none,
       {{"type", "Sequence"}, {"processors", {letters, added_around({1}, {})}}},
       {true, false}},
      {"Llama 2",
       {{"add_bos_token", true}, {"add_eos_token", false}},
       added_around({1}, {}),
       {true, false}},
      // transformers reads the flags where there is no tokenizer.json.
      {"DeepSeek", {{"add_bos_token", true}, {"add_eos_token", false}}, letters, {false, false}},
      {"Qwen", {{"add_bos_token", false}}, letters, {false, false}},
      {"GPT-2", none, letters, {false, false}},
      {"GPT-4", none, nullptr, {false, false}},
      {"both", none, added_around({1}, {2}), {true, true}},
      {"an end", {{"add_eos_token", false}}, added_around({}, {2}), {false, true}},
      // The end of the model replaces it, which config.json may name.
      {"another end", none, added_around({}, {5}), {false, true}}};
  for (const auto& [name, flags, post_processor, expected] : forms)
    EXPECT_EQ(frame(directory(flags, post_processor)), expected) << name;
  // A SentencePiece model says nothing; the flags do.
  const fs::path alone = directory({{"add_bos_token", true}}, nullptr);
  fs::remove(alone / "tokenizer.json");
  EXPECT_EQ(frame(alone), (TextFrame{true, false}));
  edit_json(alone / kConfig, [](FileJson& json) {
    json["add_eos_token"] = true;
    json["x"] = std::string(size_t{3} << 19, 'x');  // Gemma's has 1.1 MiB
  });
  EXPECT_EQ(frame(alone), (TextFrame{true, true}));
  edit_json(alone / kConfig, [](FileJson& json) {
    json.erase("add_bos_token");
    json.erase("add_eos_token");
  });
  EXPECT_EQ(frame(alone), usual);
  fs::remove(alone / kConfig);
  EXPECT_EQ(frame(alone), usual);
}

TEST_F(FrameTest, OtherTokensAroundATextAreRefused) {
  for (const FileJson& other :
       {added_around({1, 5}, {}), added_around({5}, {}), added_around({1}, {2, 2})})
    refused_import(directory(FileJson::object(), other), ErrorCode::unsupported,
                   "tokenizer.json: post_processor: it adds");
}

TEST_F(FrameTest, ItGoesOutAgain) {
  const fs::path from = directory({{"add_bos_token", true}}, added_around({1}, {}));
  const ImportedModel base = imported(from);
  export_model(*context_, *base.model, base.tokenizer, ExportFormat::hf_llama, path("again"));
  const auto json_of = [&](const char* file) {
    return FileJson::parse(read_text_file(path("again") / file, 1 << 22));
  };
  EXPECT_EQ(json_of(kConfig)["add_bos_token"], true);
  EXPECT_EQ(json_of(kConfig)["add_eos_token"], false);
  const FileJson single = json_of("tokenizer.json")["post_processor"]["single"];
  ASSERT_EQ(single.size(), 2u);
  EXPECT_EQ(single[0]["SpecialToken"]["id"], "<s>");
  EXPECT_EQ(frame(path("again")), (TextFrame{true, false}));
  fs::remove(path("again") / "tokenizer.json");  // tokenizer.model is read in its place
  EXPECT_EQ(frame(path("again")), (TextFrame{true, false}));

  // Files of models have it, where it is not the usual one.
  save_model(path("m"), *context_, *base.model);
  EXPECT_EQ(load_model(*context_, path("m"))->tokens(), base.model->tokens());
  const auto other = make_model(*context_, base.model->config(), 9);
  load_pretrained(*context_, SafetensorsReader::open(path("m")), *other);
  EXPECT_EQ(other->tokens(), base.model->tokens());
  const auto text_of = [&](const std::string& name) {
    return SafetensorsReader::open(path(name)).metadata().at(kTokensKey);
  };
  EXPECT_TRUE(contains(text_of("m"), "\"begin_source\":true,\"end_source\":false")) << text_of("m");
  const ImportedModel usual = imported(llama("usual"));
  save_model(path("u"), *context_, *usual.model);
  EXPECT_FALSE(contains(text_of("u"), "source")) << text_of("u");
}

// The files of byte-level BPE go out as they came, unless the model was trained otherwise since.
TEST_F(FrameTest, OfATokenizerThatIsKept) {
  const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
  TokenizerTrainOptions options;
  options.kind = "byte-bpe";
  options.vocab_size = 290;
  options.hard_vocab_limit = false;
  const Tokenizer letters = Tokenizer::train(std::span<const std::string>(lines), options);
  ModelConfig config = llama_config(1, true);
  config.vocabulary = letters.vocab_size();
  const auto model = model_of(config);
  export_model(*context_, *model, letters, ExportFormat::hf_llama, path("from"));
  edit_json(path("from") / "tokenizer.json",
            [](FileJson& json) { json["post_processor"] = added_around({1}, {}); });
  const std::string kept = R"({"eos_token": "</s>", "bos_token": "<s>", "x": 1})";
  write_file_atomically(path("from") / kConfig, kept);
  const ImportedModel base = imported(path("from"));
  EXPECT_EQ(base.model->tokens()->frame, (TextFrame{true, false}));
  const auto exported_again = [&](const std::string& name, TextFrame frame) {
    VocabularyTokens tokens = *base.model->tokens();
    tokens.frame = frame;
    base.model->set_tokens(tokens);
    export_model(*context_, *base.model, base.tokenizer, ExportFormat::hf_llama, path(name));
    EXPECT_EQ(read_text_file(path(name) / kConfig, 1 << 20), kept) << name;
    return read_text_file(path(name) / "tokenizer.json", 1 << 22);
  };
  const std::string whole = base.tokenizer->serialized();
  EXPECT_EQ(exported_again("same", {true, false}), whole);
  int number = 0;
  for (const TextFrame other : {TextFrame{}, {true, true}, {false, false}}) {
    const std::string name = concat("other", number++);
    FileJson json = FileJson::parse(exported_again(name, other));
    EXPECT_EQ(frame(path(name)), other);
    EXPECT_EQ(json["post_processor"].is_null(), !other.begin && !other.end);
    json["post_processor"] = added_around({1}, {});
    EXPECT_EQ(json, FileJson::parse(whole));
  }
  // A file that has no post-processor gets one.
  edit_json(path("from") / "tokenizer.json", [](FileJson& json) { json.erase("post_processor"); });
  ImportedModel bare = imported(path("from"));
  EXPECT_EQ(bare.model->tokens()->frame, (TextFrame{false, false}));
  VocabularyTokens tokens = *bare.model->tokens();
  tokens.frame = {true, false};
  bare.model->set_tokens(tokens);
  export_model(*context_, *bare.model, bare.tokenizer, ExportFormat::hf_llama, path("bare"));
  EXPECT_EQ(frame(path("bare")), (TextFrame{true, false}));
}

}  // namespace
}  // namespace trafo
