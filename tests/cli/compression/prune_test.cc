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
  expect_refused(prune("-o x --sparsity 0.8 --ffn 0.5"), "--sparsity and --ffn are two kinds");
  expect_refused(prune("-o x --pattern 2:4 --layers 1"), "--pattern and --layers are two kinds");
  expect_refused(prune("-o x --heads 0.5 --score wanda"), "--score is of --sparsity");
  for (const char* sparsity : {"1", "-0.1", "80", "nan"})
    expect_refused(prune(std::string("-o x --sparsity ") + sparsity),
                   "--sparsity must be at least 0 and below 1");
  expect_refused(prune("-o x --sparsity 0.8 --pattern 2:4"),
                 "--sparsity must be 0.5 with the pattern 2:4, got 0.8");
  expect_refused(prune("-o x --pattern 1:4"), "1:4");
  expect_refused(run(words_of("prune -m run -o x --sparsity 0.5 --score wanda")),
                 "--train-sets: --score wanda is measured on a sample");
  expect_refused(prune("-o x --ffn 0"), "--ffn is the share that stays");
  expect_refused(prune("-o x --layers 9"), "--layers must be 0 (all) to 1");
  expect_refused(run(words_of("prune -m run -t v.de -o x --ffn 0.5")), "SRC TRG");
  expect_refused(run(words_of("prune -m run -o x --ffn 0.5")), "--train-sets");
  EXPECT_FALSE(fs::exists(file("x")));
  ASSERT_EQ(run({"quantize", "-m", "run", "-o", "int8", "-q"}).exit_code, 0);
  expect_refused(run(words_of("prune -m int8 -t v.de v.en -o x --ffn 0.5")),
                 "a model with quantized weights cannot be pruned");
  expect_refused(run(words_of("prune -m int8 -o x --sparsity 0.5")),
                 "a model with quantized weights cannot be pruned");
  const std::string train =
      "train -t t.de t.en --model no --device cpu --after 2u --quiet --pretrained-model run ";
  expect_refused(run(words_of(train + "--prune-sparsity 1.5")), "prune-sparsity");
  expect_refused(run(words_of(train + "--prune-sparsity 0.5 --prune-start 9 --prune-end 5")),
                 "--prune-end must be 0 (where pruning starts) or at least that, got 5");
  EXPECT_FALSE(fs::exists(file("no/ckpt")));
}

// One shot, fine-tuned with its zeros, quantized and exported.
TEST_F(PruneCli, SingleWeightsBecomeZeroAndStaySo) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome made = run(words_of("prune -m run -o sparse --sparsity 0.75 --device cpu"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("weights of matrices are zero ("), std::string::npos) << made.err;
  EXPECT_EQ(fs::file_size(file("sparse/model.safetensors")),
            fs::file_size(file("run/ckpt/20/model.safetensors")));
  const Outcome wanda = prune("-o wanda --pattern 2:4 --score wanda -q");
  ASSERT_EQ(wanda.exit_code, 0) << wanda.err;
  const auto info_of = [&](const char* path) { return run({"info", path, "--tensors"}).out; };
  EXPECT_EQ(info_of("run").find("zeros"), std::string::npos);
  EXPECT_NE(info_of("sparse").find("75.0 % zeros"), std::string::npos) << info_of("sparse");
  EXPECT_NE(info_of("wanda").find("50.0 % zeros"), std::string::npos) << info_of("wanda");
  EXPECT_NE(info_of("wanda").find("\nzeros         "), std::string::npos);
  const Outcome json = run({"info", "sparse", "--tensors", "--json"});
  EXPECT_NE(json.out.find("\"zeros\":0.75"), std::string::npos) << json.out;
  EXPECT_NE(json.out.find("\"matrix_zeros\":"), std::string::npos);
  const std::string tune =
      "train -t t.de t.en --model kept --pretrained-model sparse --device cpu --cpu-threads 1 "
      "--mini-batch-words 300 --save-freq 5u --quiet --keep-zeros on --after ";
  ASSERT_EQ(run(words_of(tune + "5u")).exit_code, 0);
  const Outcome resumed = run(words_of(tune + "7u"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(info_of("kept").find("75.0 % zeros"), std::string::npos) << info_of("kept");
  EXPECT_EQ(run({"quantize", "-m", "kept", "-o", "kept8", "-q"}).exit_code, 0);
  EXPECT_EQ(run({"export", "-m", "kept", "--to", "ctranslate2", "-o", "kept-ct2"}).exit_code, 0);
}

TEST_F(PruneCli, TrainingPrunesGradually) {
  const std::string train =
      "train -t t.de t.en --model gradual --pretrained-model run --device cpu --cpu-threads 1 "
      "--mini-batch-words 300 --save-freq 2u --keep-last 9 --quiet --prune-sparsity 0.8 "
      "--prune-start 2 --prune-end 6 --prune-every 2 --after ";
  ASSERT_EQ(run(words_of(train + "3u")).exit_code, 0);
  EXPECT_EQ(run({"info", "gradual"}).out.find("zeros"), std::string::npos);
  const Outcome resumed = run(words_of(train + "7u"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(run({"info", "gradual/ckpt/4", "--tensors"}).out.find("70.0 % zeros"),
            std::string::npos);
  EXPECT_NE(run({"info", "gradual", "--tensors"}).out.find("80.0 % zeros"), std::string::npos);
  expect_refused(
      run(words_of("train -t t.de t.en --model gradual --prune-sparsity 0.7 --after 9u")), "prune");
}

}  // namespace
}  // namespace translate_train::testing
