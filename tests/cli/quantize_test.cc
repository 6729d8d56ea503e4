// quantize and --weights int8 as their users meet them.
#include <algorithm>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

using QuantizeCli = Cli;

TEST_F(QuantizeCli, AStoredModelTranslatesAsOneThatIsQuantizedAtLoad) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome made = run({"quantize", "-m", "run", "-o", "small"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("small/model.safetensors: int8 weights"), std::string::npos) << made.err;
  EXPECT_LT(fs::file_size(file("small/model.safetensors")),
            fs::file_size(file("run/ckpt/20/model.safetensors")) / 2);

  const std::string text = "ein Hund schläft\ndas Haus\n\nder Mann\n";
  const auto translated = [&](const std::string& flags) {
    const Outcome outcome =
        run(words_of("translate --quiet --device cpu --max-length 8 " + flags), text);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).size(), 4u);
    return outcome.out;
  };
  const std::string stored = translated("-m small --cpu-threads 1");
  EXPECT_EQ(translated("-m small --cpu-threads 2"), stored);
  EXPECT_EQ(translated("-m run --weights int8"), stored);
  EXPECT_EQ(translated("-m small --weights int8"), stored);

  const auto scored = [&](const std::string& flags) {
    const Outcome outcome = run(words_of("score --quiet --device cpu -t v.de v.en " + flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(scored("-m small"), scored("-m run --weights int8"));
  EXPECT_NE(scored("-m small"), scored("-m run"));
}

TEST_F(QuantizeCli, InfoSaysWhatIsQuantizedAndWhichKernelRuns) {
  ASSERT_EQ(run({"quantize", "-m", "run", "-o", "told", "--quiet"}).exit_code, 0);
  const Outcome info = run({"info", "told/model.safetensors", "--tensors"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_NE(info.out.find("\nweights       int8 in "), std::string::npos) << info.out;
  EXPECT_NE(info.out.find("\nint8 kernel   "), std::string::npos) << info.out;
  const auto lines = lines_of(info.out);
  const auto line_with = [&](const char* text) {
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
    return found == lines.end() ? std::string() : *found;
  };
  EXPECT_TRUE(line_with(" embedding.weight ").ends_with(" x 32] int8")) << info.out;
  EXPECT_TRUE(line_with("encoder.0.ffn_norm.weight").ends_with("[32]")) << info.out;
  const Outcome floats = run({"info", "run"});
  EXPECT_NE(floats.out.find("\nweights       float32\n"), std::string::npos) << floats.out;
  EXPECT_EQ(floats.out.find("int8"), std::string::npos) << floats.out;
}

TEST_F(QuantizeCli, WhatCannotBeIsOneLine) {
  ASSERT_EQ(run({"quantize", "-m", "run", "-o", "once", "--quiet"}).exit_code, 0);
  expect_refused(run({"quantize", "-m", "run", "-o", "once"}), "exists already");
  expect_refused(run({"quantize", "-m", "nowhere", "-o", "x"}), "no such file or directory");
  expect_refused(run({"quantize", "-m", "run"}), "--output");
  expect_refused(run({"translate", "-m", "run", "--weights", "int4"}), "--weights");
  expect_refused(run({"translate", "-m", "run", "--weights", "int8", "--precision", "bf16"}),
                 "--weights int8: computes in fp32");
  expect_refused(run({"export", "-m", "once", "--to", "ctranslate2", "-o", "ct2"}), "is int8");
  expect_refused(run({"average", "--inputs", "once", "once", "-o", "mean.safetensors"}), "'I8'");
}

}  // namespace
}  // namespace translate_train::testing
