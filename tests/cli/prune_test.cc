// prune as its users meet it: a smaller model that translates, is fine-tuned, quantized and
// exported.
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class PruneCli : public Cli {
 protected:
  static Outcome prune(const std::string& flags) {
    return run(words_of("prune -m run -t v.de v.en --device cpu " + flags));
  }
};

TEST_F(PruneCli, TheSmallerModelIsAModelLikeAnyOther) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome made = prune("-o thin --ffn 0.25 0.5");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("thin/model.safetensors: "), std::string::npos) << made.err;
  EXPECT_NE(made.err.find(" million parameters (encoder "), std::string::npos) << made.err;
  EXPECT_LT(fs::file_size(file("thin/model.safetensors")),
            fs::file_size(file("run/ckpt/20/model.safetensors")));
  const Outcome info = run({"info", "thin/model.safetensors"});
  EXPECT_NE(info.out.find("\nin the encoder feed-forward "), std::string::npos) << info.out;
  const Outcome translated = run(words_of("translate -m thin --quiet --device cpu --max-length 8"),
                                 "das Haus\n\nein Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(lines_of(translated.out).size(), 3u);
  // Fine-tuned without a word about its shape, and resumed.
  const std::string tune =
      "train -t t.de t.en --valid-sets v.de v.en --model tuned --pretrained-model thin --device "
      "cpu "
      "--cpu-threads 1 --mini-batch-words 300 --valid-freq 5u --save-freq 5u --quiet --after ";
  const Outcome tuned = run(words_of(tune + "5u"));
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  const Outcome resumed = run(words_of(tune + "7u"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(run({"quantize", "-m", "tuned", "-o", "small", "-q"}).exit_code, 0);
  const Outcome exported = run({"export", "-m", "thin", "--to", "ctranslate2", "-o", "ct2"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
}

TEST_F(PruneCli, AFormatWithoutAWidthOfHeadsRefusesPrunedOnes) {
  ASSERT_EQ(prune("-o heads --heads 0.5 -q").exit_code, 0);
  for (const char* format : {"ctranslate2", "onnx"})
    expect_refused(run({"export", "-m", "heads", "--to", format, "-o", "no"}),
                   "pruned attention heads");
  ASSERT_EQ(run(words_of("score -m heads --quiet --device cpu -t v.de v.en")).exit_code, 0);
  const Outcome shallow = run(words_of("prune -m heads -t v.de v.en -o shallow --layers 1 -q"));
  EXPECT_EQ(shallow.exit_code, 0) << shallow.err;
}

TEST_F(PruneCli, WhatCannotBeIsOneLine) {
  expect_refused(prune("-o x"), "prune wants --ffn, --heads or --layers");
  expect_refused(prune("-o x --ffn 0"), "ffn_share is the share that stays");
  expect_refused(prune("-o x --layers 9"), "_layers must be 0 (all) to 1");
  expect_refused(run(words_of("prune -m run -t v.de -o x --ffn 0.5")), "SRC TRG");
  expect_refused(run(words_of("prune -m run -o x --ffn 0.5")), "--train-sets");
  EXPECT_FALSE(fs::exists(file("x")));
  ASSERT_EQ(run({"quantize", "-m", "run", "-o", "int8", "-q"}).exit_code, 0);
  expect_refused(run(words_of("prune -m int8 -t v.de v.en -o x --ffn 0.5")),
                 "a model with int8 weights cannot be pruned");
}

}  // namespace
}  // namespace translate_train::testing
