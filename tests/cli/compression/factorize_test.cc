// factorize as its users meet it: a smaller model that translates, is fine-tuned, quantized and
// exported.
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class FactorizeCli : public Cli {
 protected:
  static Outcome factorize(const std::string& flags) {
    return run(words_of("factorize -m run -t v.de v.en --device cpu " + flags));
  }
};

TEST_F(FactorizeCli, TheSmallerModelIsAModelLikeAnyOther) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome made = factorize("-o low --ratio 0.5 --valid-sets v.de v.en");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("matrices are two factors"), std::string::npos) << made.err;
  EXPECT_NE(made.out.find("signal-to-noise ratio of each factorized matrix"), std::string::npos);
  EXPECT_NE(made.out.find("encoder.0.attention.qkv.weight\n"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("\nfactorized: cross-entropy "), std::string::npos) << made.out;
  EXPECT_LT(fs::file_size(file("low/model.safetensors")),
            fs::file_size(file("run/ckpt/20/model.safetensors")));
  const Outcome info = run({"info", "low", "--tensors"});
  EXPECT_NE(info.out.find("\nlow rank      "), std::string::npos) << info.out;
  EXPECT_NE(info.out.find("encoder.0.attention.qkv.weight.u"), std::string::npos) << info.out;
  EXPECT_EQ(run({"info", "run"}).out.find("low rank"), std::string::npos);
  const Outcome json = run({"info", "low", "--json"});
  EXPECT_NE(json.out.find("\"factorized_matrices\":"), std::string::npos) << json.out;
  const std::string translate = "translate --quiet --device cpu --max-length 8 -m ";
  const std::string lines = "das Haus\n\nein Hund\n";
  const Outcome translated = run(words_of(translate + "low"), lines);
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(lines_of(translated.out).size(), 3u);
  EXPECT_EQ(run(words_of(translate + "low --weights int8"), lines).exit_code, 0);
  // Fine-tuned without a word about its form, and resumed.
  const std::string tune =
      "train -t t.de t.en --valid-sets v.de v.en --model tuned --pretrained-model low --device cpu "
      "--cpu-threads 1 --mini-batch-words 300 --valid-freq 5u --save-freq 5u --quiet --after ";
  const Outcome tuned = run(words_of(tune + "5u"));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Outcome resumed = run(words_of(tune + "7u"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(run({"info", "tuned"}).out.find("\nlow rank      "), std::string::npos);
  EXPECT_EQ(run({"average", "-m", "tuned", "--last", "2", "-o", "mean"}).exit_code, 0);
  ASSERT_EQ(run({"quantize", "-m", "tuned", "-o", "small", "-q"}).exit_code, 0);
  const Outcome int8 = run({"info", "small"});
  EXPECT_NE(int8.out.find("\nlow rank      "), std::string::npos) << int8.out;
  EXPECT_NE(int8.out.find("int8 in "), std::string::npos) << int8.out;
  EXPECT_EQ(run(words_of(translate + "small"), lines).exit_code, 0);
  // The products of the factors, after the check that the logits are the same.
  for (const char* format : {"ctranslate2", "onnx"}) {
    const Outcome exported = run({"export", "-m", "low", "--to", format, "-o", format});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
}

TEST_F(FactorizeCli, WhatCannotBeIsOneLine) {
  expect_refused(factorize("-o x"), "factorize wants --rank or --ratio, one of");
  expect_refused(factorize("-o x --rank 4 --ratio 0.5"), "one of --rank and --ratio");
  expect_refused(factorize("-o x --rank 0"), "--rank: at least 1, not 0");
  for (const char* ratio : {"0", "1", "-0.5", "50", "nan"})
    expect_refused(factorize(std::string("-o x --ratio ") + ratio), "above 0 and below 1");
  expect_refused(factorize("-o x --rank 100000"), "no matrix is smaller as two factors");
  expect_refused(factorize("-o x --rank 4 --layers no.such"), "no matrix has a name that matches");
  expect_refused(run(words_of("factorize -m run -o x --rank 4")), "--train-sets");
  expect_refused(run(words_of("factorize -m run -t v.de -o x --rank 4")), "SRC TRG");
  ASSERT_EQ(factorize("-o four --rank 4 -q").exit_code, 0);
  expect_refused(factorize("-o four --rank 4"), "exists already");
  expect_refused(run(words_of("factorize -m four -t v.de v.en -o x --rank 2")),
                 "is factorized already");
  expect_refused(run(words_of("prune -m four -t v.de v.en -o x --ffn 0.5")),
                 "prune the whole model, then factorize it");
  expect_refused(run(words_of("train -t t.de t.en --model no --device cpu --after 2u --quiet "
                              "--pretrained-model four --lora-rank 2")),
                 "an adapter is for whole matrices");
  ASSERT_EQ(run({"quantize", "-m", "run", "-o", "int8", "-q"}).exit_code, 0);
  expect_refused(run(words_of("factorize -m int8 -t v.de v.en -o x --rank 4")),
                 "a model with quantized weights cannot be factorized");
  EXPECT_FALSE(fs::exists(file("x")));
}

}  // namespace
}  // namespace translate_train::testing
