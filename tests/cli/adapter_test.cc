// LoRA adapters as their users meet them: train --lora-rank, --adapter, merge, export.
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class AdapterCli : public Cli {
 protected:
  static Outcome tune(const std::string& run, const std::string& flags) {
    return Cli::run(small(run, "10u") + words_of("--pretrained-model run --lora-rank 2 " + flags));
  }
  static std::string translated(const std::string& flags) {
    const Outcome outcome = run(words_of("translate --quiet --device cpu --max-length 8 " + flags),
                                "ein Hund schläft\ndas Haus\n");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
  static std::string scored(const std::string& flags) {
    const Outcome outcome = run(words_of("score --quiet --device cpu -t v.de v.en " + flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
};

TEST_F(AdapterCli, IsTrainedBesideItsBaseAndUsedWithIt) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome made = tune("tuned", "--learn-rate 0.05");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("adapter: rank 2, alpha 4, all targets; "), std::string::npos)
      << made.err;
  EXPECT_NE(made.err.find("tuned/adapter: the adapter of tuned/ckpt/"), std::string::npos)
      << made.err;
  EXPECT_LT(fs::file_size(file("tuned/adapter/adapter_model.safetensors")),
            fs::file_size(file("run/ckpt/20/model.safetensors")) / 2);

  // The run's checkpoint is base and adapter.
  EXPECT_EQ(scored("-m run --adapter tuned"), scored("-m tuned"));
  EXPECT_EQ(scored("-m run --adapter tuned/adapter"), scored("-m tuned"));
  EXPECT_NE(scored("-m run --adapter tuned"), scored("-m run"));
  EXPECT_EQ(translated("-m run --adapter tuned"), translated("-m tuned"));
  translated("-m run --adapter tuned --weights int8");

  ASSERT_EQ(run({"merge", "-m", "run", "--adapter", "tuned", "-o", "merged", "-q"}).exit_code, 0);
  EXPECT_EQ(translated("-m merged"), translated("-m tuned"));
  ASSERT_EQ(run({"export", "-m", "tuned", "--to", "peft", "-o", "peft", "-q"}).exit_code, 0);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_EQ(read_file(file(std::string("peft/") + name)),
              read_file(file(std::string("tuned/adapter/") + name)));
  const Outcome exported =
      run({"export", "-m", "run", "--adapter", "tuned", "--to", "ctranslate2", "-o", "ct2"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  // It resumes with the adapter that it began with, and with no other.
  const Outcome more = run(small("tuned", "12u"));
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("resuming tuned at update 10"), std::string::npos) << more.err;
  expect_refused(run(small("tuned", "14u") + words_of("--lora-rank 3")),
                 "an adapter of rank 2, alpha 4");
  // A merged model is one to begin with; a model with an adapter is not.
  EXPECT_EQ(run(small("again", "1u") + words_of("--pretrained-model merged --quiet")).exit_code, 0);
  expect_refused(run(small("no", "1u") + words_of("--pretrained-model tuned")),
                 "translate-train merge");
}

TEST_F(AdapterCli, IsTrainedBesideABaseInFewBits) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  for (const std::string precision : {"nf4", "int8", "int4"}) {
    SCOPED_TRACE(precision);
    const std::string run_of = "q-" + precision;
    const Outcome made = tune(run_of, "--learn-rate 0.05 --base-precision " + precision);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_LT(fs::file_size(file(run_of + "/ckpt/10/model.safetensors")),
              fs::file_size(file("run/ckpt/20/model.safetensors")));
    translated("-m " + run_of);
    translated("-m run --adapter " + run_of);
    const Outcome info = run({"info", run_of + "/ckpt/10/model.safetensors"});
    EXPECT_NE(info.out.find(precision), std::string::npos) << info.out << info.err;
    // It resumes with the codes of its checkpoint, and with no other format.
    const Outcome more = run(small(run_of, "12u"));
    EXPECT_EQ(more.exit_code, 0) << more.err;
    expect_refused(run(small(run_of, "14u") + words_of("--base-precision none")),
                   "--base-precision");
    // Into the float base; an export has the dequantized one.
    ASSERT_EQ(run({"merge", "-m", "run", "--adapter", run_of, "-o", "merged-" + precision, "-q"})
                  .exit_code,
              0);
    expect_refused(run({"merge", "-m", run_of, "-o", "no"}), "weights in " + precision);
    const Outcome exported =
        run({"export", "-m", run_of, "--to", "ctranslate2", "-o", "ct2-" + precision});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
  expect_refused(run(small("no", "1u") + words_of("--pretrained-model run --base-precision nf4")),
                 "give --lora-rank");
  expect_refused(tune("no", "--base-precision nf5"), "nf5");
}

TEST_F(AdapterCli, IsPlanned) {
  const auto weights = [&](const std::string& flags) {
    const Outcome plan = run(words_of("plan --task llama --json --mini-batch-words 2048 " + flags));
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    const std::string key = "\"weights_bytes\":";
    const size_t at = plan.out.find(key);
    return at == std::string::npos ? 0LL : std::stoll(plan.out.substr(at + key.size()));
  };
  const long long whole = weights(""), adapter = weights("--lora-rank 8"),
                  coded = weights("--lora-rank 8 --base-precision nf4");
  EXPECT_LT(adapter, whole);
  EXPECT_LT(coded, adapter);
  EXPECT_GT(coded, 0);
  expect_refused(run(words_of("plan --task llama --base-precision nf4")), "give --lora-rank");
  expect_refused(run(words_of("plan --task llama --lora-rank 8 --freeze *norm*")),
                 "is not planned with --lora-rank");
  expect_refused(run(words_of("plan --task llama --lora-rank 8 --quantize-bits 8")),
                 "--quantize-bits: trains every weight of a matrix, --lora-rank");
}

TEST_F(AdapterCli, RefusesByName) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  expect_refused(run(small("no", "1u") + words_of("--lora-rank 2")), "--pretrained-model");
  expect_refused(run(small("no", "1u") + words_of("--lora-alpha 2")), "give --lora-rank");
  expect_refused(tune("no", "--lora-alpha 0"), "--lora-alpha");
  expect_refused(tune("no", "--freeze encoder.*"), "--lora-rank freezes");
  expect_refused(tune("no", "--quantize-bits 8"),
                 "--quantize-bits: trains every weight of a matrix, --lora-rank");
  expect_refused(tune("no", "--keep-zeros on"), "--keep-zeros: every linear layer is frozen");
  expect_refused(tune("no", "--lora-targets query head"),
                 "--lora-targets has 'head', which is not in this model; it has query key");
  expect_refused(run({"translate", "-m", "run", "--adapter", "nowhere"}), "no such directory");
  expect_refused(run({"translate", "-m", "run", "--adapter", "run"}), "adapter_config.json");
  expect_refused(run({"merge", "-m", "run", "-o", "no"}), "has no adapter");
  expect_refused(run({"export", "-m", "run", "--to", "peft", "-o", "no"}), "no adapter");
}

TEST_F(AdapterCli, TokensAreAddedAndTrained) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome added =
      run({"add-tokens", "-m", "run", "--tokens", "Zebra", "<2de>", "-o", "more", "-q"});
  ASSERT_EQ(added.exit_code, 0) << added.err;
  // New tokens change the scores of no text that lacks them by more than their share.
  EXPECT_EQ(run(words_of("score --quiet --device cpu -t v.de v.en -m more")).exit_code, 0);
  for (const char* flags : {"", " --lora-rank 2"})
    EXPECT_EQ(run(small(std::string("more") + (*flags == 0 ? "1" : "2"), "2u") +
                  words_of(std::string("--quiet --pretrained-model more") + flags))
                  .exit_code,
              0)
        << flags;
  const auto refused_tokens = [](const char* token, const char* like, const char* message) {
    expect_refused(
        run({"add-tokens", "-m", "run", "--tokens", token, "--like", like, "-o", "none", "-q"}),
        message);
  };
  refused_tokens("</s>", "", "--tokens");
  refused_tokens("Giraffe", "none", "--like");
}

}  // namespace
}  // namespace translate_train::testing
