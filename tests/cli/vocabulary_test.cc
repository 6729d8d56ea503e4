// Vocabularies of each kind, through the commands.
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class Vocabularies : public Cli {
 protected:
  static Arguments bytes(const std::string& run, const std::string& more) {
    return with_tiny_model(
        words_of("train --train-sets t.de t.en --valid-sets v.de v.en --task tiny --lr-warmup 10 "
                 "--cpu-threads 1 --autotune-gemm off --save-freq 5u --valid-freq 5u "
                 "--vocab-kind byte --model " +
                 run + " " + more),
        {.width = 32, .vocabulary = 0, .batch_tokens = 1500});
  }
};

TEST_F(Vocabularies, BytesTrainTranslateScoreAndCompress) {
  const Outcome trained = run(bytes("bytes", "--after 5u"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(read_file(file("bytes/vocab.byte")), "{\"tokenizer\": \"byte\"}\n");
  EXPECT_FALSE(fs::exists(file("bytes/vocab.spm")));
  const std::string config = read_file(file("bytes/config.yml"));
  EXPECT_NE(config.substr(0, config.find('\n')).find(", vocab.byte "), std::string::npos);
  const Outcome resumed = run(bytes("bytes", "--after 10u"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resuming bytes at update 5"), std::string::npos) << resumed.err;

  const Outcome facts = run({"info", "bytes", "--json"});
  EXPECT_NE(facts.out.find("\"kind\":\"byte\",\"subwords\":259"), std::string::npos) << facts.out;
  const Outcome found =
      run({"translate", "--model", "bytes", "--max-length", "20"}, "Der Hund.\nJa \U0001F600.\n");
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(lines_of(found.out).size(), 2u);
  const Outcome scores = run({"score", "--model", "bytes", "-t", "v.de", "v.en"});
  EXPECT_EQ(scores.exit_code, 0) << scores.err;
  EXPECT_EQ(lines_of(scores.out).size(), 40u);
  ASSERT_EQ(run({"quantize", "-m", "bytes", "-o", "small", "-q"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(file("small/vocab.byte")));
  EXPECT_EQ(run({"translate", "--model", "small"}, "Ja.\n").exit_code, 0);

  expect_refused(run({"export", "-m", "bytes", "--to", "hf-marian", "-o", "marian"}),
                 "hf-marian cannot express a byte vocabulary");
  EXPECT_FALSE(fs::exists(file("marian")));
  expect_refused(run({"translate", "--model", "bytes", "--vocab", "run/vocab.spm"}, "Ja.\n"),
                 "the tokenizer has 300 tokens");
}

TEST_F(Vocabularies, AKindThatDoesNotFitIsRefused) {
  expect_refused(run(bytes("never", "--after 5u --dim-vocabs 300")),
                 "--dim-vocabs is 300, a byte vocabulary has 259 tokens");
  expect_refused(run(bytes("never", "--after 5u --vocabs run/vocab.spm")),
                 "run/vocab.spm is a vocabulary of the kind sentencepiece");
  Arguments unknown = bytes("never", "--after 5u");
  *std::find(unknown.begin(), unknown.end(), "byte") = "word";
  expect_refused(run(unknown), "--vocab-kind must be sentencepiece, byte or byte-bpe, got 'word'");
  EXPECT_FALSE(fs::exists(file("never/vocab.byte")));
  expect_refused(run({"vocab", "--kind", "word"}),
                 "--kind must be sentencepiece, byte or byte-bpe");
  expect_refused(run({"vocab"}), "--train-sets is required");
  expect_refused(run({"vocab", "--kind", "byte", "--bpe"}), "--bpe is not for a byte vocabulary");
}

TEST_F(Vocabularies, AByteVocabularyNeedsNoText) {
  const Outcome made = run({"vocab", "--kind", "byte"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("vocab.byte: 259 subwords"), std::string::npos) << made.err;
  EXPECT_NE(run({"info", "vocab.byte"}).out.find("259"), std::string::npos);
}

// Two vocabularies in one directory would leave open which one is the model's.
TEST_F(Vocabularies, ARunReplacesTheOneOfAnEarlierRun) {
  const std::string folder = copy_of_run("unfinished");
  for (const fs::path& path : {fs::path("ckpt"), fs::path("latest"), fs::path("valid")})
    fs::remove_all(folder / path);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("best-")) fs::remove(entry.path());
  const Outcome trained = run(bytes("unfinished", "--after 5u"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_TRUE(fs::exists(folder + "/vocab.byte"));
  EXPECT_FALSE(fs::exists(folder + "/vocab.spm"));
  fs::copy(file("run/vocab.spm"), folder + "/vocab.spm");
  expect_refused(run({"translate", "--model", "unfinished"}, "Ja.\n"),
                 "has two vocabularies, vocab.spm and vocab.byte");
}

}  // namespace
}  // namespace translate_train::testing
