// DPO, ORPO and KTO as their users meet them: three files, columns, JSON lines or CSV, a reference
// or an adapter, their resumption, the report.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class PreferencesCli : public Cli {
 protected:
  // The corpus, with the words of each target in reverse as the rejected answer.
  static void write_pairs() {
    for (const std::string name : {"t", "v"}) {
      std::istringstream source(read_file(file(name + ".de")));
      std::istringstream target(read_file(file(name + ".en")));
      std::string rejected, columns, records, labelled = "prompt,completion,label\n", prompt,
                                              chosen, word;
      while (std::getline(source, prompt) && std::getline(target, chosen)) {
        std::istringstream words(chosen);
        std::string reversed;
        while (words >> word) reversed = word + (reversed.empty() ? "" : " ") + reversed;
        rejected += reversed + "\n";
        columns += prompt + "\t" + chosen + "\t" + reversed + "\n";
        const nlohmann::json record = {
            {"prompt", prompt}, {"chosen", chosen}, {"rejected", reversed}};
        records += record.dump() + "\n";
        labelled += '"' + prompt + "\",\"" + chosen + "\",true\n\"" + prompt + "\",\"" + reversed +
                    "\",false\n";
      }
      write_file(file(name + ".bad"), rejected);
      write_file(file(name + ".triples"), columns);
      write_file(file(name + ".jsonl"), records);
      write_file(file(name + ".csv"), labelled);
    }
  }
  static Arguments dpo(const std::string& run, const std::string& after, const std::string& flags,
                       const std::string& objective = "dpo") {
    return words_of("train --objective " + objective +
                    " --task tiny --cpu-threads 1 --mini-batch-words 300 "
                    "--max-length 60 --save-freq 10u --valid-freq 10u --disp-freq 5u --lr-warmup 2 "
                    "--learn-rate 0.01 --model " +
                    run + " --after " + after + " " + flags);
  }
  static inline const std::string kFiles =
      "--train-sets t.de t.en t.bad --valid-sets v.de v.en v.bad ";
  static std::vector<nlohmann::json> records(const std::string& run, const std::string& type) {
    std::vector<nlohmann::json> found;
    std::istringstream lines(read_file(file(run + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (auto record = nlohmann::json::parse(line); record["type"] == type)
        found.push_back(std::move(record));
    return found;
  }
};

TEST_F(PreferencesCli, AModelLearnsFromFilesAndFromColumnsAndResumes) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_pairs();
  const Outcome made = run(dpo("tuned", "80u", kFiles + "--pretrained-model run"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("reference: run/ckpt/"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find("beta 0.1"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find(", reference "), std::string::npos) << made.err;  // of the plan
  EXPECT_NE(made.err.find(" reward-accuracy "), std::string::npos) << made.err;
  EXPECT_NE(made.err.find("[valid] Ep 1 | Up 10 | ce "), std::string::npos) << made.err;

  const auto train = records("tuned", "train");
  ASSERT_FALSE(train.empty());
  for (const char* name : {"chosen-reward", "rejected-reward", "reward-margin", "reward-accuracy"})
    EXPECT_TRUE(train.back()["objective"][name].is_number()) << name;
  EXPECT_NEAR(train.front()["loss"], 0.693147, 1e-4);  // equal rewards: there is no dropout
  EXPECT_NE(read_file(file("tuned/config.yml")).find("transformer-dropout: 0\n"),
            std::string::npos);
  const auto valid = records("tuned", "valid");
  ASSERT_GE(valid.size(), 2u);
  EXPECT_EQ(valid.front()["start"], true);
  EXPECT_EQ(valid.front()["reward-accuracy"], 0);  // equal rewards
  EXPECT_EQ(valid.back()["deciding_metric"], "reward-accuracy");
  EXPECT_GT(valid.back()["reward-accuracy"], 0.6);
  EXPECT_GT(valid.back()["reward-margin"], 0.0);

  const Outcome page = run(words_of("report tuned -o tuned.html"));
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_NE(read_file(file("tuned.html")).find("objective-reward-margin"), std::string::npos);

  // The same pairs as columns, and from the middle on as JSON lines.
  const std::string columns = "--tsv t.triples --valid-sets v.triples ";
  ASSERT_EQ(run(dpo("cut", "30u", columns + "--pretrained-model run")).exit_code, 0);
  const Outcome more = run(dpo("cut", "80u", "--train-sets t.jsonl --valid-sets v.jsonl "));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("t.jsonl: JSON lines of preference pairs"), std::string::npos)
      << more.err;
  EXPECT_EQ(read_file(file("cut/ckpt/80/model.safetensors")),
            read_file(file("tuned/ckpt/80/model.safetensors")));
  expect_refused(run(dpo("cut", "85u", columns + "--dpo-beta 0.2")), "--dpo-beta was 0.1");
  expect_refused(run(dpo("cut", "85u", columns + "--reference-model tuned")),
                 "with another reference");
}

TEST_F(PreferencesCli, AnAdapterIsComparedWithItsBase) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_pairs();
  const Outcome made =
      run(dpo("adapted", "80u", kFiles + "--pretrained-model run --lora-rank 4 --tensorboard"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.err.find("reference"), std::string::npos) << made.err;
  EXPECT_TRUE(fs::exists(file("adapted/tensorboard")));
  const auto valid = records("adapted", "valid");
  EXPECT_EQ(valid.front()["reward-accuracy"], 0);
  EXPECT_GT(valid.back()["reward-accuracy"], 0.5);
}

TEST_F(PreferencesCli, OrpoNeedsNoReference) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_pairs();
  const Outcome made =
      run(dpo("odds", "60u", kFiles + "--pretrained-model run --orpo-beta 0.5", "orpo"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.err.find("reference"), std::string::npos) << made.err;
  const auto train = records("odds", "train"), valid = records("odds", "valid");
  for (const char* name :
       {"chosen-reward", "rejected-reward", "reward-margin", "reward-accuracy", "log-odds"})
    EXPECT_TRUE(train.back()["objective"][name].is_number()) << name;
  EXPECT_GT(valid.back()["reward-accuracy"], 0.6);
  EXPECT_GT(valid.back()["reward-margin"], valid.front()["reward-margin"]);
  expect_refused(run(dpo("odds", "65u", "--orpo-beta 0.2", "orpo")), "--orpo-beta was 0.5");
  expect_refused(run(dpo("no", "5u", kFiles + "--reference-model run", "orpo")),
                 "--reference-model: is for --objective dpo, kto");
  expect_refused(run(dpo("no", "5u", kFiles + "--dpo-beta 1", "orpo")), "is for --objective dpo");
}

TEST_F(PreferencesCli, KtoLearnsFromLabelledAnswersInCsv) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_pairs();
  const std::string sets = "--train-sets t.csv --valid-sets v.csv ";
  const Outcome made = run(
      dpo("judged", "80u", sets + "--pretrained-model run --kto-undesirable-weight 1.2", "kto"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("t.csv: CSV of labelled answers"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find("beta 0.1, desirable-weight 1, undesirable-weight 1.2"),
            std::string::npos)
      << made.err;
  const auto train = records("judged", "train"), valid = records("judged", "valid");
  for (const char* name : {"desirable-share", "chosen-reward", "rejected-reward", "reward-margin",
                           "reward-accuracy", "kl"})
    EXPECT_TRUE(train.back()["objective"][name].is_number()) << name;
  const double share = train.front()["objective"]["desirable-share"];
  EXPECT_NEAR(train.front()["loss"], 0.5 * share + 0.6 * (1 - share), 1e-4);  // equal rewards
  EXPECT_GT(valid.back()["reward-accuracy"], 0.6);
  EXPECT_GT(valid.back()["reward-margin"], 0.0);
  // Pairs are two answers each.
  const Outcome pairs = run(dpo("paired", "20u", kFiles + "--pretrained-model run", "kto"));
  ASSERT_EQ(pairs.exit_code, 0) << pairs.err;
  EXPECT_NEAR(records("paired", "train").front()["loss"], 0.5, 1e-4);
  expect_refused(run(dpo("no", "5u", sets + "--pretrained-model run")),
                 "labelled answers, which are for kto");
  expect_refused(run(dpo("no", "5u", sets, "kto")),
                 "--objective: kto compares the model with a reference");
}

TEST_F(PreferencesCli, MistakesAreNamed) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_pairs();
  expect_refused(run(dpo("no", "5u", kFiles)),
                 "--objective: dpo compares the model with a reference");
  expect_refused(run(dpo("no", "5u", "--train-sets t.de t.en --pretrained-model run")),
                 "wants three files of each corpus");
  expect_refused(run(dpo("no", "5u", "--train-sets t.de --pretrained-model run")),
                 "wants three files of each corpus");
  expect_refused(run(dpo("no", "5u", "--tsv t.de --pretrained-model run")),
                 "t.de:1: 0 tabs, a line must have exactly two");
  expect_refused(run(dpo("no", "5u", kFiles + "--reference-model nowhere")),
                 "--reference-model: nowhere: no such file or directory");
  expect_refused(run(dpo("no", "5u", kFiles + "--pretrained-model run --teacher run")),
                 "--teacher: is for --objective cross-entropy");
  expect_refused(run(dpo("no", "5u", kFiles + "--pretrained-model run --dpo-beta 0")), "dpo-beta");
  expect_refused(run(small("no", "5u") + words_of("--dpo-beta 0.5")), "is for --objective dpo");
  expect_refused(run(small("no", "5u") + words_of("--valid-metrics reward-margin")),
                 "does not compute");
  expect_refused(run(small("no", "5u") + words_of("--objective ipo")), "objective");
  EXPECT_FALSE(fs::exists(file("no/ckpt")));
}

}  // namespace
}  // namespace translate_train::testing
