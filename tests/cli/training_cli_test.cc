// Training options as users give them: what a run makes of them, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/cli/training_fixture.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;

// The same with another value of a flag that is there.
Arguments changed(Arguments arguments, const std::string& flag, const std::string& value) {
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  EXPECT_NE(found, arguments.end()) << flag;
  *std::next(found) = value;
  return arguments;
}

class TrainingCli : public TrainingRuns {};

TEST_F(TrainingCli, EmaIsKeptBesideTheWeights) {
  trained(train("ema", "10u") + Arguments{"--exponential-smoothing"});
  const std::string config = read_file(file("ema/config.yml"));
  EXPECT_NE(config.find("exponential-smoothing: "), std::string::npos) << config;
  EXPECT_NE(read_file(file("ema/ckpt/10/model.safetensors")),
            read_file(file("ema/ckpt/10/unsmoothed.safetensors")));
  // It goes on with what it has begun with, without being told again.
  trained(train("ema", "15u"));
  EXPECT_TRUE(fs::exists(file("ema/ckpt/15/unsmoothed.safetensors")));
  trained(train("ema-uncut", "15u") + Arguments{"--exponential-smoothing", "1e-4"});
  for (const char* name : {"model", "unsmoothed", "optimizer"})
    EXPECT_EQ(read_file(file(std::string("ema/ckpt/15/") + name + ".safetensors")),
              read_file(file(std::string("ema-uncut/ckpt/15/") + name + ".safetensors")))
        << name;
  const Outcome translated = run({"translate", "--model", "ema"}, "der Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;

  trained(train("ema-fairseq", "5u") + Arguments{"--ema-decay", "0.9"});
  EXPECT_NE(read_file(file("ema-fairseq/config.yml")).find("exponential-smoothing: 0.1\n"),
            std::string::npos);
  trained(train("plain", "5u"));
  EXPECT_FALSE(fs::exists(file("plain/ckpt/5/unsmoothed.safetensors")));
  refused(train("wrong", "5u") + Arguments{"--ema-decay", "2"}, "--ema-decay");
  for (const char* wrong : {"1", "-0.1", "much"})
    refused(train("wrong", "5u") + Arguments{"--exponential-smoothing=" + std::string(wrong)},
            "exponential-smoothing");
  refused(train("ema", "20u") + Arguments{"--exponential-smoothing", "off"},
          "--exponential-smoothing was 0.0001 and is 0.0 now");
}

TEST_F(TrainingCli, LayersShareTheirParameters) {
  const auto deep = [&](const std::string& directory, const std::string& after) {
    return changed(changed(train(directory, after), "--enc-depth", "2"), "--dec-depth", "3");
  };
  const Arguments tied{"--transformer-tied-layers",         "1",  "1", "3",
                       "--transformer-tied-encoder-layers", "2,2"};
  trained(deep("tied", "5u") + tied);
  trained(deep("tied", "10u"));  // with what config.yml says
  const std::string config = read_file(file("tied/config.yml"));
  EXPECT_NE(config.find("transformer-tied-layers: [1, 1, 3]\n"), std::string::npos) << config;
  EXPECT_NE(config.find("transformer-tied-encoder-layers: [2, 2]\n"), std::string::npos) << config;
  trained(deep("untied", "10u"));
  EXPECT_NE(read_file(file("untied/config.yml")).find("transformer-tied-layers: [none]\n"),
            std::string::npos);
  EXPECT_LT(fs::file_size(file("tied/ckpt/10/model.safetensors")),
            fs::file_size(file("untied/ckpt/10/model.safetensors")));
  const Outcome info = run({"info", "tied/ckpt/10/model.safetensors"});
  EXPECT_NE(info.out.find("shared        encoder 2 2, decoder 1 1 3\n"), std::string::npos)
      << info.out;
  const Outcome translated = run({"translate", "--model", "tied"}, "der Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(run({"quantize", "-m", "tied", "-o", "tied-int8", "-q"}).exit_code, 0);
  const Outcome exported = run({"export", "-m", "tied", "--to", "ctranslate2", "-o", "tied-ct2"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  // Fine-tuned with the layers that the model has.
  trained(deep("tied-tuned", "2u") + Arguments{"--pretrained-model", "tied"});
  refused(deep("wrong", "2u") + Arguments{"--pretrained-model", "tied"} +
              Arguments{"--transformer-tied-layers", "none"},
          "the pretrained model has 1 1 3");
  refused(deep("wrong", "5u") + Arguments{"--transformer-tied-layers", "1", "1"},
          "--transformer-tied-layers has 2 numbers, it needs one for each of the 3 layers");
  for (const char* wrong : {"1,,1", "1,x,1", "0,1,1", "1,1,99"})
    refused(deep("wrong", "5u") + Arguments{"--transformer-tied-layers", wrong},
            "transformer-tied-layers");
}

TEST_F(TrainingCli, LayersAreDroppedAndTheRunResumes) {
  const Arguments drop{"--layer-drop", "0.4"};
  trained(train("dropped", "5u") + drop);
  trained(train("dropped", "15u"));  // with what config.yml says
  trained(train("dropped-uncut", "15u") + drop);
  EXPECT_EQ(read_file(file("dropped/ckpt/15/model.safetensors")),
            read_file(file("dropped-uncut/ckpt/15/model.safetensors")));
  trained(train("not-dropped", "15u"));
  EXPECT_NE(read_file(file("dropped/ckpt/15/model.safetensors")),
            read_file(file("not-dropped/ckpt/15/model.safetensors")));
  for (const char* wrong : {"1", "-0.1", "often"})
    refused(train("wrong", "5u") + Arguments{"--layer-drop=" + std::string(wrong)}, "layer-drop");
  refused(train("dropped", "20u") + Arguments{"--layer-drop", "0.2"},
          "--layer-drop was 0.4 and is 0.2 now");
}

TEST_F(TrainingCli, CheckpointsAreAveraged) {
  const Outcome outcome = trained(train("mean", "20u") + Arguments{"--average-last", "3"});
  EXPECT_NE(outcome.err.find("[average] of updates 10, 15, 20 | bleu "), std::string::npos)
      << outcome.err;
  const std::string mean = read_file(file("mean/ckpt/averaged/model.safetensors"));
  const std::string metrics = read_file(file("mean/metrics.jsonl"));
  EXPECT_NE(metrics.find(R"("type":"average")"), std::string::npos) << metrics;
  EXPECT_NE(read_file(file("mean/config.yml")).find("average-last: 3\n"), std::string::npos);

  // The subcommand makes the same of the same.
  fs::remove_all(file("mean/ckpt/averaged"));
  const Outcome last = trained({"average", "--model", "mean", "--last", "3"});
  EXPECT_NE(last.err.find("the mean of 3 models (10, 15, 20)"), std::string::npos) << last.err;
  EXPECT_EQ(read_file(file("mean/ckpt/averaged/model.safetensors")), mean);
  trained({"average", "mean/ckpt/10", "mean/ckpt/15/model.safetensors", "mean/ckpt/20", "-o",
           "mine.safetensors"});
  EXPECT_EQ(read_file(file("mine.safetensors")), mean);
  const Outcome best = trained({"average", "--model", "mean", "--best", "2", "--metric",
                                "ce-mean-words", "--output", "best.safetensors"});
  EXPECT_NE(best.err.find("the mean of 2 models (15, 20)"), std::string::npos) << best.err;

  const Outcome translated =
      run({"translate", "--model", "mean", "--checkpoint", "averaged"}, "der Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
  EXPECT_EQ(run({"info", "mine.safetensors"}).exit_code, 0);

  trained(train("unlike", "2u") + Arguments{"--transformer-norm", "post"});
  refused({"average", "mean/ckpt/10", "unlike", "-o", "x"}, "cannot be averaged with mean/ckpt/10");
  EXPECT_FALSE(fs::exists(file("x")));
  refused({"average", "mean/ckpt/10"}, "--output: where");
  refused({"average", "--last", "2", "--best", "2", "--model", "mean"}, "give one of them");
  refused({"average", "--model", "nowhere"}, "no such run directory");
}

TEST_F(TrainingCli, TheMetricsThatStopARunAreChosen) {
  // Nothing becomes better at this rate.
  const Arguments still = {"--learn-rate", "1e-30", "--early-stopping", "2"};
  const Outcome all = trained(changed(train("still", "50u"), "--valid-freq", "1u") + still +
                              Arguments{"--early-stopping-on=all"});
  EXPECT_NE(all.err.find("no more improvement after update 3"), std::string::npos) << all.err;
  EXPECT_NE(read_file(file("still/config.yml")).find("early-stopping-on: all\n"),
            std::string::npos);
  refused(train("wrong", "5u") + Arguments{"--early-stopping-on", "most"},
          "early-stopping-on: wants first, any or all, got 'most'");
}

TEST_F(TrainingCli, TrainingBeginsWithAnotherModelsWeights) {
  trained(changed(train("first", "10u"), "--transformer-heads", "4"));
  const auto tuned = [](const std::string& name, const std::string& after, const Arguments& more) {
    return Arguments{"train",
                     "--train-sets",
                     "v.de",
                     "v.en",
                     "--valid-sets",
                     "t.de",
                     "t.en",
                     "--model",
                     name,
                     "--after",
                     after,
                     "--valid-freq",
                     "100u",
                     "--save-freq",
                     "2u",
                     "--keep-last",
                     "9",
                     "--mini-batch-words",
                     "200",
                     "--cpu-threads",
                     "1"} +
           more;
  };
  const Arguments pretrained = {"--pretrained-model", "first"};
  // A rate at which no weight moves: what is saved is what it began with.
  trained(tuned("tuned", "1u", pretrained + Arguments{"--learn-rate", "1e-30"}));
  EXPECT_EQ(read_file(file("tuned/vocab.spm")), read_file(file("first/vocab.spm")));
  const std::string config = read_file(file("tuned/config.yml"));
  for (const char* line : {"dim-emb: 16\n", "transformer-heads: 4\n", "pretrained-model: /"})
    EXPECT_NE(config.find(line), std::string::npos) << config;
  trained({"average", "first", "-o", "first.safetensors"});
  trained({"average", "tuned", "-o", "tuned.safetensors"});
  const Outcome first = run({"score", "--model", "first.safetensors", "--vocab", "first/vocab.spm",
                             "--train-sets", "v.de", "v.en"});
  const Outcome second = run({"score", "--model", "tuned.safetensors", "--vocab", "first/vocab.spm",
                              "--train-sets", "v.de", "v.en"});
  EXPECT_EQ(first.out, second.out);
  EXPECT_FALSE(first.out.empty()) << first.err;

  // It goes on as any run does, though that model is gone.
  fs::copy(file("first"), file("source"), fs::copy_options::recursive);
  const Arguments from_copy = {"--pretrained-model", "source"};
  trained(tuned("uncut", "6u", from_copy));
  trained(tuned("cut", "4u", from_copy));
  fs::remove_all(file("source"));
  trained(tuned("cut", "6u", {}));
  EXPECT_EQ(read_file(file("cut/ckpt/6/model.safetensors")),
            read_file(file("uncut/ckpt/6/model.safetensors")));
  // Also if the newest checkpoint is damaged, from which its shape would be read.
  write_file(file("cut/ckpt/6/model.safetensors"), "damaged");
  const Outcome again = trained(tuned("cut", "6u", {}));
  EXPECT_NE(again.err.find("passed over"), std::string::npos) << again.err;
  EXPECT_EQ(read_file(file("cut/ckpt/6/model.safetensors")),
            read_file(file("uncut/ckpt/6/model.safetensors")));

  refused(tuned("wrong", "1u", pretrained + Arguments{"--dim-emb", "32"}),
          "--dim-emb: the pretrained model has 16");
  refused(tuned("wrong", "1u", pretrained + Arguments{"--transformer-norm", "post"}),
          "--transformer-norm: the pretrained model has pre");
  refused(tuned("wrong", "1u", {"--pretrained-model", "nowhere"}), "nowhere");
  // Another vocabulary: of another size, or only of other subwords.
  trained({"vocab", "--train-sets", "t.de", "--dim-vocabs", "90", "-o", "small.spm"});
  refused(tuned("wrong", "1u", pretrained + Arguments{"--vocabs", "small.spm"}),
          "was trained with another vocabulary");
  EXPECT_FALSE(fs::exists(file("wrong")));
}

TEST_F(TrainingCli, TrainingBeginsWithImportedModels) {
  struct Form {
    const char* to;
    Arguments flags;
  };
  const Form forms[] = {{"hf-marian", {"--transformer-norm", "post"}},
                        {"hf-pegasus", {"--transformer-norm", "pre"}},
                        {"hf-gpt2", {"--arch", "decoder-lm", "--max-length", "30"}}};
  for (const Form& form : forms) {
    const std::string name = form.to;
    Arguments first = train(name, "5u");
    if (name == "hf-gpt2") {
      const auto depth = std::find(first.begin(), first.end(), "--enc-depth");
      first.erase(depth, depth + 2);
    }
    trained(first + form.flags);
    trained({"export", "--to", form.to, "--model", name, "-o", name + "-dir"});
    trained({"import", "--from", name + "-dir", "-o", name + "-in"});
    // Whatever has no SentencePiece model needs one.
    Arguments vocabulary;
    if (!fs::exists(file(name + "-in/vocab.spm"))) vocabulary = {"--vocabs", name + "/vocab.spm"};
    const Arguments tuned = {"train",
                             "--train-sets",
                             "t.de",
                             "t.en",
                             "--valid-sets",
                             "v.de",
                             "v.en",
                             "--model",
                             name + "-tuned",
                             "--valid-metrics",
                             "ce-mean-words",
                             "--valid-freq",
                             "5u",
                             "--learn-rate",
                             "1e-3",
                             "--lr-warmup",
                             "1",
                             "--mini-batch-words",
                             "200",
                             "--cpu-threads",
                             "1",
                             "--pretrained-model",
                             name + "-in"};
    const Outcome outcome = trained(tuned + Arguments{"--after", "10u"} + vocabulary);
    EXPECT_NE(outcome.err.find("training begins with the weights of " + name + "-in"),
              std::string::npos)
        << outcome.err;
    trained(tuned + Arguments{"--after", "12u"});  // and goes on
    if (name == "hf-gpt2") {                       // its positions are those of both sides together
      const std::string config = read_file(file(name + "-dir/config.json"));
      const int positions = std::stoi(config.substr(config.find("\"n_positions\":") + 14));
      const Arguments long_texts = changed(tuned, "--model", "long") + vocabulary;
      const auto up_to = [&](int length) {
        return long_texts + Arguments{"--after", "1u", "--max-length", std::to_string(length)};
      };
      refused(up_to(positions + 1), "--max-length: the pretrained model has " +
                                        std::to_string(positions) + " positions, for up to " +
                                        std::to_string(positions) + " tokens of both sides");
      trained(up_to(positions));
    }
    const auto loss = [&](const std::string& run) {
      std::vector<double> values;
      for (const std::string& line : lines_of(read_file(file(run + "/metrics.jsonl"))))
        if (const size_t at = line.find("\"ce-mean-words\":"); at != std::string::npos)
          values.push_back(std::stod(line.substr(at + 16)));
      return values;
    };
    ASSERT_FALSE(loss(name + "-tuned").empty());
    // The first value was measured before the first update.
    const std::vector<double> tuned_loss = loss(name + "-tuned");
    ASSERT_GE(tuned_loss.size(), 2u);
    EXPECT_LT(tuned_loss[1], tuned_loss[0]) << form.to;
    EXPECT_NEAR(tuned_loss[0], loss(name).back(), 0.02) << form.to;
  }
}

TEST_F(TrainingCli, ADumpedConfigurationIsTheSameRun) {
  const Arguments flags = train("dumped", "6u") + Arguments{"--exponential-smoothing",
                                                            "--transformer-depth-scaling",
                                                            "--workspace",
                                                            "900",
                                                            "--valid-metrics",
                                                            "chrf",
                                                            "bleu"};
  const Outcome dump = trained(flags + Arguments{"--dump-config"});
  EXPECT_FALSE(fs::exists(file("dumped")));
  for (const char* line : {"task: tiny\n", "exponential-smoothing: ", "memory-limit: 900MiB\n",
                           "transformer-depth-scaling: on\n", "valid-metrics: [chrf, bleu]\n",
                           "early-stopping: 10\n", "/dumped\n"})
    EXPECT_NE(dump.out.find(line), std::string::npos) << line << dump.out;
  write_file(file("dump.yml"), dump.out);
  EXPECT_EQ(trained({"train", "--config", "dump.yml", "--dump-config"}).out, dump.out);
  trained({"train", "--config", "dump.yml"});
  const std::string model = read_file(file("dumped/ckpt/6/model.safetensors"));
  fs::remove_all(file("dumped"));
  trained(flags);
  EXPECT_EQ(read_file(file("dumped/ckpt/6/model.safetensors")), model);

  write_file(file("wrong.yml"), "train-sets: [t.de, t.en]\nexponential-smooting: 0.1\n");
  refused({"train", "--config", "wrong.yml", "--dump-config"},
          "wrong.yml:2 unknown key 'exponential-smooting', did you mean exponential-smoothing?");
  refused(train("wrong", "1u") + Arguments{"--workspace=-500"}, "must not be below 0");
  refused(train("wrong", "1u") + Arguments{"--workspace", "some"}, "wants a size as 9500 (MiB)");
  refused(train("wrong", "1u") + Arguments{"--workspace", "900", "--memory-limit", "1GiB"},
          "workspace: is --memory-limit: give one of them");
  for (const char* command : {"train", "plan"}) {
    Arguments arguments = train("wrong", "1u");
    if (command == std::string("plan")) arguments = {"plan"};
    refused(arguments + Arguments{"--precision", "fp16"}, "computes in bf16");
  }
}

// A processor without the instructions is named in the error.
TEST_F(TrainingCli, ACpuTrainsInBfloat16) {
  const Arguments bf16 = {"--device", "cpu", "--precision", "bf16"};
  const Outcome one = run(train("bf16-one", "5u") + bf16);
  if (one.err.find("AVX512-BF16") != std::string::npos) {
    EXPECT_EQ(one.exit_code, 1) << one.err;
    return;
  }
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_NE(one.err.find("cpu, 1 thread, bf16"), std::string::npos) << one.err;
  trained(changed(train("bf16-three", "5u"), "--cpu-threads", "3") + bf16);
  trained(train("float32", "5u"));
  const std::string weights = "/ckpt/5/model.safetensors";
  const std::string model = read_file(file("bf16-one" + weights));
  EXPECT_EQ(read_file(file("bf16-three" + weights)), model);
  EXPECT_NE(read_file(file("float32" + weights)), model);
}

TEST_F(TrainingCli, TheTaskFollowsTheNumberOfPairs) {
  struct Size {
    int pairs;
    const char* task;
  };
  for (const Size& size : {Size{99999, "tiny"}, Size{100000, "iwslt"}, Size{1000000, "base"}}) {
    std::string lines;
    for (int i = 0; i < size.pairs; ++i) {
      const std::string number = std::to_string(i);
      lines.append(number).append("\t").append(number).append("\n");
    }
    write_file(file("many.tsv"), lines);
    const Outcome dump =
        trained({"train", "--tsv", "many.tsv", "--valid-sets", "v.de", "v.en", "--dump-config"});
    EXPECT_NE(dump.out.find(std::string("task: ") + size.task + "\n"), std::string::npos)
        << dump.out;
  }
  const Outcome lm = trained({"train", "--tsv", "many.tsv", "--valid-sets", "v.de", "v.en",
                              "--arch", "decoder-lm", "--dump-config"});
  EXPECT_NE(lm.out.find("task: lm\narch: decoder-lm\n"), std::string::npos) << lm.out;
}

TEST_F(TrainingCli, ADivergedRunEndsWith3AndKeepsItsBest) {
  // Decay above 2 an update turns every weight around and makes it larger: from the fifth update
  // on.
  Arguments absurd = changed(train("diverged", "200u"), "--lr-warmup", "1000") +
                     Arguments{"--learn-rate", "0.5", "--weight-decay", "1000"};
  for (int again = 0; again < 2; ++again) {  // it does not go on better than it ended
    const Outcome outcome = run(absurd);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("training has diverged"), std::string::npos) << outcome.err;
  }
  EXPECT_NE(read_file(file("diverged/metrics.jsonl")).find(R"("stop":"diverged")"),
            std::string::npos);
  const std::string best = read_file(file("diverged/best-ce-mean-words"));
  EXPECT_LE(std::stoi(best), 15);
  EXPECT_TRUE(fs::exists(file("diverged/ckpt/" + best.substr(0, best.size() - 1))));
  const Outcome translated =
      run({"translate", "--model", "diverged", "--checkpoint", "best-ce-mean-words"}, "der Hund\n");
  EXPECT_EQ(translated.exit_code, 0) << translated.err;
}

TEST_F(TrainingCli, ADivergedRunWhoseLossIsFiniteEndsWith3AndNamesNoBest) {
  for (const char* updates : {"6u", "200u"}) {  // before and after ten such updates in a row
    const std::string name = std::string("far-off-") + updates;
    const Outcome outcome =
        run(changed(train(name, updates), "--lr-warmup", "1") + Arguments{"--learn-rate", "1000"});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("training has diverged"), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(file(name + "/best-ce-mean-words")));
    EXPECT_NE(outcome.err.find("| no best yet"), std::string::npos) << outcome.err;
    for (const char* best : {"new best", "best ce", "no better"})
      EXPECT_EQ(outcome.err.find(best), std::string::npos) << outcome.err;
  }
}

TEST_F(TrainingCli, NumbersOutOfRangeNameTheirFlag) {
  refused(train("wrong", "1u") + Arguments{"--label-smoothing", "1"},
          "--label-smoothing: must be at least 0 and below 1, got 1");
  refused(train("wrong", "1u") + Arguments{"--keep-last", "0"},
          "--keep-last: must be at least 1, got 0");
  refused(train("wrong", "1u") + Arguments{"--early-stopping=-1"},
          "--early-stopping: must be 0 (never) or above, got -1");
  refused(train("wrong", "1u") + Arguments{"--prune-end=-1"},
          "--prune-end: must be 0 (--prune-start, all at once) or above, got -1");
}

// Before a corpus is read and a vocabulary trained.
TEST_F(TrainingCli, SettingsThatDoNotFitTogetherAreRefusedFirstAndByTheirFlags) {
  const std::pair<Arguments, const char*> cases[] = {
      {{"--dim-emb", "33"}, "--dim-emb must be even, got 33"},
      {{"--dim-emb", "34", "--transformer-heads", "4"},
       "--dim-emb 34 is not a multiple of the 4 heads"},
      {{"--transformer-kv-heads", "9"}, "--transformer-kv-heads must be 0 to 4, got 9"},
      {{"--quantize-bits", "5"}, "--quantize-bits must be 8, 4 or 0"},
      {{"--momentum", "0.9"}, "--momentum: is for --optimizer sgd, muon"},
      {{"--scale-parameter", "on"}, "--scale-parameter: is for --optimizer adafactor"},
      {{"--optimizer", "sgd", "--optimizer-states", "8bit"},
       "--optimizer-states: is for --optimizer adamw"},
      {{"--lanes", "65536", "--optimizer-delay", "32"},
       "--lanes times the batches that are accumulated"}};
  for (const auto& [wrong, message] : cases) {
    const Outcome outcome = run(words_of("train -t t.de t.en -m never") + wrong);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(outcome.err.rfind(std::string("translate-train: error: ") + message, 0), 0u)
        << outcome.err;
    EXPECT_FALSE(fs::exists(file("never")));
  }
  trained(train("shape", "1u"));
  refused(changed(train("shape", "2u"), "--dec-depth", "2"),
          "--dec-depth is 1 in the checkpoint, 2 here");
  refused(train("shape", "2u") + Arguments{"--label-smoothing", "0.3"},
          "--label-smoothing was 0.1 and is 0.3 now");
}

// Completions that a shell offers after these words.
std::string completed(const std::string& folder, const std::string& words, int word) {
  write_file(folder + "/completion.bash",
             std::string("source <(") + TRANSLATE_TRAIN + " completion bash)\nCOMP_WORDS=(" +
                 words + ")\nCOMP_CWORD=" + std::to_string(word) +
                 "\n_translate_train\necho \"${COMPREPLY[*]}\" > " + folder + "/completed\n");
  EXPECT_EQ(std::system(("bash " + folder + "/completion.bash").c_str()), 0);
  const std::string offered = read_file(folder + "/completed");
  return offered.substr(0, offered.find('\n'));
}

TEST_F(TrainingCli, ShellsCompleteWhatTheParserKnows) {
  const auto offered = [](const std::string& words, int word) {
    return completed(folder_->path(), words, word);
  };
  EXPECT_EQ(offered("translate-train tr", 1), "train translate");
  EXPECT_EQ(offered("translate-train train --exponential", 2), "--exponential-smoothing");
  EXPECT_EQ(offered("translate-train train --task tiny --early", 4),
            "--early-stopping --early-stopping-on");
  EXPECT_EQ(offered("translate-train score --hy", 2), "");
  EXPECT_EQ(offered("translate-train eval --hy", 2), "--hyp");
  EXPECT_EQ(offered("translate-train train --config ru", 3), "");  // left to file names
  // Values, of every name of a flag.
  EXPECT_EQ(offered("translate-train train --transformer-norm ''", 3), "post pre");
  EXPECT_EQ(offered("translate-train train --task ll", 3), "llama");
  EXPECT_EQ(offered("translate-train train --lr-scheduler c", 3), "constant cosine");
  EXPECT_EQ(offered("translate-train train --keep-best o", 3), "on off");
  EXPECT_EQ(offered("translate-train translate --device cu", 3), "cuda");
  EXPECT_EQ(offered("translate-train eval --hyp o", 3), "");
  EXPECT_EQ(offered("translate-train export --to hf-l", 3), "hf-llama");
  EXPECT_EQ(offered("translate-train export --weights q", 3), "q8_0 q4_0");
  EXPECT_EQ(offered("translate-train quantize --method ''", 3), "nearest gptq");
  EXPECT_EQ(offered("translate-train score --weights ''", 3), "stored int8");
  EXPECT_EQ(offered("translate-train completion ''", 2), "bash zsh fish");
  EXPECT_EQ(offered("translate-train man tr", 2), "train translate");
  const Outcome alias =
      trained(train("aliases", "5u") + Arguments{"--update-freq", "2", "--dump-config"});
  EXPECT_NE(alias.out.find("optimizer-delay: 2\n"), std::string::npos) << alias.out;
  // Every flag that help shows, in every shell.
  const std::string help = run({"train", "--help"}).out;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run({"completion", shell});
    ASSERT_EQ(script.exit_code, 0) << script.err;
    size_t flags = 0;
    for (const std::string& line : lines_of(help)) {
      const size_t begin = line.find("--");
      if (begin == std::string::npos || line.find_first_not_of(' ') > begin) continue;
      const std::string name = line.substr(begin + 2, line.find_first_of(" ,", begin) - begin - 2);
      EXPECT_NE(script.out.find(name), std::string::npos) << name << " in " << shell;
      ++flags;
    }
    EXPECT_GT(flags, 30u) << help;
  }
  refused({"completion", "tcsh"}, "tcsh");
}

}  // namespace
}  // namespace translate_train::testing
