// quantize and --weights int8 as their users meet them.
#include <algorithm>
#include <string>

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

TEST_F(QuantizeCli, ItMeasuresAndListsWhatIsLost) {
  const Outcome made = run(words_of("quantize -m run -o measured --valid-sets v.de v.en"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto lines = lines_of(made.out);
  ASSERT_GT(lines.size(), 10u);
  double last = 0;
  for (size_t i = 1; i + 2 < lines.size(); ++i) {
    const double ratio = std::stod(lines[i]);
    EXPECT_GE(ratio, last) << lines[i];
    last = ratio;
  }
  EXPECT_TRUE(lines[lines.size() - 2].starts_with("float32: cross-entropy ")) << made.out;
  EXPECT_TRUE(lines.back().starts_with("quantized: cross-entropy ")) << made.out;
}

// 4 bits of a model this small cost more than this; the worst matrices stay float32.
TEST_F(QuantizeCli, TheWorstMatricesAreKeptUntilTheLossHolds) {
  const std::string words = "quantize -m run --bits 4 --valid-sets v.de v.en --max-loss ";
  const Outcome any = run(words_of(words + "9 -o any"));
  ASSERT_EQ(any.exit_code, 0) << any.err;
  const Outcome held = run(words_of(words + "0.0005 -o held"));
  if (held.exit_code == 0) {
    EXPECT_LE(lines_of(held.out).size(), lines_of(any.out).size());
    const std::string measured = lines_of(held.out).back();
    EXPECT_LE(std::stod(measured.substr(measured.find('(') + 1)), 0.0005) << measured;
    const Outcome info = run({"info", "held/model.safetensors"});
    EXPECT_NE(info.out.find("int4 in "), std::string::npos) << info.out;
    EXPECT_NE(info.out.find(", int4 as int8"), std::string::npos) << info.out;
  } else {
    expect_refused(held, "with a single matrix quantized");
    EXPECT_FALSE(fs::exists(file("held/model.safetensors")));
  }
}

TEST_F(QuantizeCli, KeptMatricesAreFloatAndTheOthersInt4) {
  const Outcome made = run(words_of(
      "quantize -m run -o mixed --bits 4 --method gptq --calibration v.de v.en --keep-float "
      "encoder.* embedding.weight --quiet"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome info = run({"info", "mixed/model.safetensors", "--tensors"});
  for (const std::string& line : lines_of(info.out)) {
    const bool matrix = line.find(" x ") != std::string::npos && line.starts_with("  ");
    if (!matrix) continue;
    const bool kept = line.starts_with("  encoder.") || line.starts_with("  embedding.");
    EXPECT_EQ(line.ends_with(" int4"), !kept) << line;
  }
  const Outcome translated =
      run(words_of("translate --quiet --device cpu --max-length 8 -m mixed"), "das Haus\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(lines_of(translated.out).size(), 1u);
}

TEST_F(QuantizeCli, AQuantizationAwareRunGoesOnAndIsQuantized) {
  Arguments train = small("aware", "10u");
  train.insert(train.end(), {"--quantize-bits", "8"});
  ASSERT_EQ(run(train).exit_code, 0);
  const Outcome more = run(small("aware", "20u"));
  EXPECT_EQ(more.exit_code, 0) << more.err;
  Arguments other = small("aware", "30u");
  other.insert(other.end(), {"--quantize-bits", "4"});
  expect_refused(run(other), "--quantize-bits was 8 and is 4 now");
  EXPECT_EQ(run(words_of("quantize -m aware -o aware8 --quiet")).exit_code, 0);
  Arguments wrong = small("wrong", "5u");
  wrong.insert(wrong.end(), {"--quantize-bits", "5"});
  expect_refused(run(wrong), "8, 4 or 0");
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
  expect_refused(run(words_of("quantize -m once -o x")), "quantized weights already");
  expect_refused(run(words_of("quantize -m run -o x --bits 5")), "--bits: 8 or 4");
  expect_refused(run(words_of("quantize -m run -o x --method gptq")), "is for --bits 4");
  expect_refused(run(words_of("quantize -m run -o x --method gptq --bits 4")), "--calibration");
  expect_refused(run(words_of("quantize -m run -o x --max-loss 0.1")), "--valid-sets");
  expect_refused(run(words_of("quantize -m run -o x --max-loss -1")), "--max-loss");
  expect_refused(run(words_of("quantize -m run -o x --keep-float nothing*")), "nothing*");
  expect_refused(run(words_of("quantize -m run -o x --valid-sets v.de t.en")), "v.de");
  EXPECT_FALSE(fs::exists(file("x/model.safetensors")));
  expect_refused(run({"average", "--inputs", "once", "once", "-o", "mean.safetensors"}),
                 "int8 weights: average float models");
}

}  // namespace
}  // namespace translate_train::testing
