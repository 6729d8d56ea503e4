// export and import as their users meet them: a model goes out and comes back, and what cannot be
// is one line that says why.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/training_fixture.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;

class InteropCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_demo_corpus(*folder_, 11, 200, 20);
    for (const char* norm : {"pre", "post"}) {
      const Outcome trained =
          run(with_tiny_model({"train", "-t", "t.de", "t.en", "--model", norm, "--transformer-norm",
                               norm, "--after", "3u", "--task", "tiny", "--device", "cpu"}));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
  }
  static void TearDownTestSuite() { delete folder_; }

  static Outcome run(const Arguments& arguments, const std::string& input = "") {
    return run_program(folder_->path(), arguments, input);
  }
  static void expect_refused(const Arguments& arguments, const std::string& text, int code) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    const auto lines = lines_of(outcome.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_TRUE(lines.back().starts_with("translate-train: error: ")) << outcome.err;
    EXPECT_NE(lines.back().find(text), std::string::npos) << outcome.err;
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* InteropCli::folder_ = nullptr;

TEST_F(InteropCli, AModelGoesOutAndComesBack) {
  const Outcome out = run({"export", "-m", "post", "--to", "hf-marian", "-o", "marian"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_NE(out.err.find("logits differ by at most 0.0e+00"), std::string::npos) << out.err;
  const std::string card = read_file(folder_->file("marian") + "/README.md");
  for (const char* part :
       {"---\nlibrary_name: transformers\npipeline_tag: translation\n", "| format | hf-marian |",
        "| checkpoint | update 3 of 3 |", "| training pairs | 180 |", "validation pairs, with",
        "| cross-entropy a word | ", "AutoModelForSeq2SeqLM.from_pretrained"})
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
  const Outcome back = run({"import", "--from", "marian", "-o", "start"});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  const Arguments translate{"translate", "--beam-size", "2",       "--max-length", "6",
                            "--device",  "cpu",         "--quiet", "--model"};
  Arguments ours = translate, theirs = translate;
  ours.emplace_back("post");
  theirs.emplace_back("start");
  const std::string text = "ein Hund schläft\ndas Haus\n";
  const Outcome before = run(ours, text), after = run(theirs, text);
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(before.out, after.out);
  EXPECT_EQ(lines_of(before.out).size(), 2u);
  EXPECT_EQ(run({"info", "start"}).exit_code, 0);
  expect_refused({"import", "--from", "marian", "-o", "start"}, "exists already", 2);
}

// Settings of a stranger's run are text in the model card, and no link, picture or HTML.
TEST_F(InteropCli, AForgedRunIsTextInTheModelCard) {
  fs::copy(folder_->file("post"), folder_->file("forged"), fs::copy_options::recursive);
  const std::string metrics = folder_->file("forged") + "/metrics.jsonl";
  const std::string device = R"("[a](http://x) ![b](y) <i> &lt; | `c` *d* \u001b[2J www.x @e")";
  write_file(metrics, std::regex_replace(read_file(metrics), std::regex("\"device\": ?\"[^\"]*\""),
                                         "\"device\":" + device));
  const Outcome out = run({"export", "-m", "forged", "--to", "hf-marian", "-o", "forged-out"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  const std::string card = read_file(folder_->file("forged-out") + "/README.md");
  EXPECT_NE(card.find(R"(| device | \[a\]\(http\://x\) \!\[b\]\(y\) \<i\> \&lt; \| \`c\` \*d\* )"
                      R"(\\u001B\[2J www\.x \@e |)"),
            std::string::npos)
      << card;
}

TEST_F(InteropCli, APreNormModelGoesOutAndComesBack) {
  const Outcome out = run({"export", "-m", "pre", "--to", "hf-pegasus", "-o", "pegasus"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_NE(out.err.find("logits differ by at most 0.0e+00"), std::string::npos) << out.err;
  const std::string card = read_file(folder_->file("pegasus") + "/README.md");
  EXPECT_NE(card.find("AutoModelForSeq2SeqLM.from_pretrained"), std::string::npos) << card;
  EXPECT_EQ(card.find("inputs.input_ids.shape"), std::string::npos) << card;
  EXPECT_EQ(run({"import", "--from", "pegasus", "-o", "pre-again"}).exit_code, 0);
  const auto translated = [&](const char* model) {
    return run({"translate", "--max-length", "6", "--device", "cpu", "--quiet", "--model", model},
               "ein Hund schläft\ndas Haus\n")
        .out;
  };
  EXPECT_EQ(lines_of(translated("pre")).size(), 2u);
  EXPECT_EQ(translated("pre"), translated("pre-again"));
  expect_refused({"export", "-m", "post", "--to", "hf-pegasus", "-o", "y"}, "use hf-marian", 2);
}

TEST_F(InteropCli, LanguagesComeInPairsAndFromTheVocabulary) {
  expect_refused({"translate", "-m", "pre", "--source-language", "en"}, "give both of them", 2);
  expect_refused({"translate", "-m", "pre", "--source-language", "en", "--target-language", "de"},
                 "the vocabulary has no languages", 2);
  expect_refused(
      {"distill", "-m", "pre", "-t", "t.de", "-o", "d.de", "d.en", "--target-language", "de"},
      "give both of them", 2);
  expect_refused(
      {"translate", "-m", "pre", "--ids", "--source-language", "en", "--target-language", "de"},
      "excludes", 2);
}

TEST_F(InteropCli, ALlamaIsTrainedGoesOutAndComesBack) {
  const Outcome trained = run(with_tiny_model(
      words_of("train -t t.de t.en --model llama --after 3u --task llama --transformer-kv-heads 1 "
               "--device cpu"),
      {.width = 32, .vocabulary = 100, .batch_tokens = 500, .decoder_only = true}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Outcome info = run({"info", "llama/ckpt/3/model.safetensors"});
  EXPECT_NE(info.out.find("RMS norm, rotary positions (theta 10000), SwiGLU, no biases"),
            std::string::npos)
      << info.out;
  EXPECT_NE(info.out.find("over 1 of keys and values"), std::string::npos) << info.out;
  const Outcome out = run({"export", "-m", "llama", "--to", "hf-llama", "-o", "hf"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_NE(out.err.find("logits differ by at most 0.0e+00"), std::string::npos) << out.err;
  EXPECT_EQ(run({"import", "--from", "hf", "-o", "again"}).exit_code, 0);
  EXPECT_EQ(run({"info", "again"}).out.find("further"), std::string::npos);
  const auto in_files = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--memory-directory", folder_->path()});
    return run(words).exit_code;
  };
  EXPECT_EQ(in_files({"import", "--from", "hf", "-o", "paged"}), 0);
  EXPECT_EQ(in_files({"export", "-m", "paged", "--to", "hf-llama", "-o", "paged-hf"}), 0);
  for (const auto& [file, same] : {std::pair{"paged", "again"}, {"paged-hf", "hf"}})
    EXPECT_EQ(read_file(folder_->file(file) + "/model.safetensors"),
              read_file(folder_->file(same) + "/model.safetensors"));
  expect_refused({"import", "--from", "hf", "-o", "y", "--memory-directory", "nowhere"},
                 "nowhere is no directory", 2);
  auto config = nlohmann::json::parse(read_file(folder_->file("hf") + "/config.json"));
  config["model_type"] = "granite";
  config["embedding_multiplier"] = 12;
  config["residual_multiplier"] = 0.25;
  write_file(folder_->file("hf") + "/config.json", config.dump());
  ASSERT_EQ(run({"import", "--from", "hf", "-o", "granite"}).exit_code, 0);
  const std::string granite = run({"info", "granite"}).out;
  EXPECT_NE(granite.find("\nfurther       embedding_scale 12, "), std::string::npos) << granite;
  EXPECT_NE(granite.find(", residual_scale 0.25\n"), std::string::npos) << granite;
  EXPECT_EQ(run({"export", "-m", "again", "--to", "hf-llama", "-o", "copy"}).exit_code, 0);
  const std::string card = read_file(folder_->file("copy") + "/README.md");
  EXPECT_NE(card.find("pipeline_tag: text-generation"), std::string::npos) << card;
  EXPECT_NE(card.find("from no run directory: there are no figures"), std::string::npos) << card;
  const std::string text = "ein Hund schläft\ndas Haus\n";
  const auto translated = [&](const char* model) {
    return run({"translate", "--max-length", "6", "--device", "cpu", "--quiet", "--model", model},
               text)
        .out;
  };
  EXPECT_EQ(lines_of(translated("llama")).size(), 2u);
  EXPECT_EQ(translated("llama"), translated("again"));
  expect_refused({"export", "-m", "llama", "--to", "hf-gpt2", "-o", "y"}, "use hf-llama", 2);
  expect_refused({"export", "-m", "llama", "--to", "gguf", "-o", "y"}, "a unigram vocabulary", 2);
  expect_refused({"export", "-m", "pre", "--to", "hf-llama", "-o", "y"}, "encoder-decoder", 2);
}

TEST_F(InteropCli, WeightsInFewerBitsMakeSmallerFiles) {
  const Outcome vocab =
      run(words_of("vocab -t t.de t.en -o bpe.spm --dim-vocabs 400 --soft-limit --bpe "
                   "--byte-fallback --quiet"));
  ASSERT_EQ(vocab.exit_code, 0) << vocab.err;
  const Outcome trained = run(with_tiny_model(
      words_of("train -t t.de t.en --model blocks --after 1u --task llama --vocabs bpe.spm "
               "--device cpu"),
      {.width = 32, .vocabulary = 0, .batch_tokens = 500, .decoder_only = true}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto size_of = [&](const std::string& format, const std::string& weights) {
    const std::string folder = format + "-" + weights;
    const Outcome out = run(
        {"export", "-m", "blocks", "--to", format, "--weights", weights, "-o", folder, "--quiet"});
    EXPECT_EQ(out.exit_code, 0) << out.err;
    return fs::file_size(folder_->file(folder) + (format == "gguf" ? "/model.gguf"
                                                  : format == "ctranslate2"
                                                      ? "/model.bin"
                                                      : "/model.safetensors"));
  };
  const auto whole = size_of("gguf", "f32"), half = size_of("gguf", "f16");
  const auto eight = size_of("gguf", "q8_0"), four = size_of("gguf", "q4_0");
  EXPECT_GT(whole, half);
  EXPECT_GT(half, eight);
  EXPECT_GT(eight, four);
  const auto sixteen = size_of("ctranslate2", "int16");
  EXPECT_GT(size_of("ctranslate2", "float32"), sixteen);
  EXPECT_GT(sixteen, size_of("ctranslate2", "int8"));
  EXPECT_GT(size_of("hf-compressed", "int8"), size_of("hf-compressed", "int4"));
}

TEST_F(InteropCli, WhatCannotBeIsSaid) {
  EXPECT_EQ(run({"export", "-m", "pre", "--to", "ctranslate2", "-o", "ct2"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_->file("ct2") + "/model.bin"));
  expect_refused({"export", "-m", "pre", "--to", "hf-marian", "-o", "x"}, "--transformer-norm pre",
                 2);
  expect_refused({"export", "-m", "pre", "--to", "hf-gpt2", "-o", "x"}, "encoder-decoder", 2);
  expect_refused({"export", "-m", "pre", "--to", "paper", "-o", "x"}, "there are hf-marian", 2);
  expect_refused({"export", "-m", "pre", "--to", "gguf", "-o", "x"}, "layer norm", 2);
  expect_refused(words_of("export -m pre --to ctranslate2 --weights int3 -o x"),
                 "--weights int3: there is no such choice; there are float32 (f32)", 2);
  expect_refused(words_of("export -m pre --to ctranslate2 --weights q8_0 -o x"),
                 "ctranslate2 cannot express weights of the type q8_0 (--weights), it has float32",
                 2);
  EXPECT_EQ(run({"export", "-m", "pre", "--to", "onnx", "-o", "onnx"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_->file("onnx") + "/decoder_with_past_model.onnx"));
  expect_refused({"export", "-m", "pre", "--to", "ctranslate2", "-o", "ct2"}, "not an empty", 2);
  expect_refused({"export", "-m", "none", "--to", "ctranslate2", "-o", "x"}, "none: no such", 2);
  expect_refused({"export", "-m", "pre"}, "--to", 2);
  expect_refused({"import", "--from", "nowhere"}, "nowhere: no such directory", 2);
  expect_refused({"import", "--from", "pre"}, "config.json", 2);
  EXPECT_FALSE(fs::exists(folder_->file("x")));
  EXPECT_FALSE(fs::exists(folder_->file("imported")));
}

}  // namespace
}  // namespace translate_train::testing
