// A run that continues with other data or rates, and the model that a command takes from its run
// directory.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/training_fixture.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Phases : public TrainingRuns {
 protected:
  static void SetUpTestSuite() {
    TrainingRuns::SetUpTestSuite();
    // Other pairs: the first half of both.
    for (const char* language : {"de", "en"}) {
      const std::string all = read_file(file(std::string("t.") + language));
      const std::vector<std::string> lines = lines_of(all);
      std::string half;
      for (size_t i = 0; i < lines.size() / 2; ++i) half += lines[i] + "\n";
      write_file(file(std::string("news.") + language), half);
    }
  }
  static std::vector<Json> records(const std::string& run, const std::string& type) {
    std::vector<Json> found;
    for (const std::string& line : lines_of(read_file(file(run + "/metrics.jsonl"))))
      if (Json record = Json::parse(line); record["type"] == type) found.push_back(record);
    return found;
  }
  // The command of the documentation, less the name of the program, with fewer updates.
  static Arguments documented_command() {
    const std::string page = read_file(TRAFO_SOURCE "/docs/guide/phases.md");
    const size_t begin = page.find("```sh\n") + 6;
    std::string command = page.substr(begin, page.find("```", begin) - begin);
    std::erase(command, '\\');
    std::replace(command.begin(), command.end(), '\n', ' ');
    Arguments words = words_of(command);
    std::erase(words, "");
    EXPECT_EQ(words.front(), "translate-train");
    words.erase(words.begin());
    for (const auto& [flag, value] : {std::pair("--after", "+6u"), {"--lr-warmup", "2"}}) {
      const auto found = std::ranges::find(words, flag);
      EXPECT_NE(found, words.end()) << flag;
      if (found != words.end()) *std::next(found) = value;
    }
    return words;
  }
};

TEST_F(Phases, TheCommandOfTheDocumentsBeginsAPhaseAndResumesIt) {
  trained(train("run", "10u"));
  const Arguments command = documented_command();
  const Outcome outcome = trained(command);
  EXPECT_NE(outcome.err.find("before the first update"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_file(file("run/latest")), "16\n");
  const std::vector<Json> validations = records("run", "valid");
  std::vector<int64_t> starts;
  for (const Json& record : validations)
    if (record.contains("start")) starts.push_back(record["update"]);
  EXPECT_EQ(starts, std::vector<int64_t>{10});
  EXPECT_EQ(validations.back()["update"], 16);
  // Once more, and without flags: the phase has come to its end.
  const std::string weights = read_file(file("run/ckpt/16/model.safetensors"));
  trained(command);
  trained({"train", "--model", "run"});
  EXPECT_EQ(read_file(file("run/latest")), "16\n");
  EXPECT_EQ(read_file(file("run/ckpt/16/model.safetensors")), weights);
  // Limits name what they count from.
  refused({"train", "--model", "run", "--after", "30u"}, "--after: 30u would count from the start");
  refused({"train", "--model", "run", "--phase", "4"}, "--phase is 4, but");
  trained({"train", "--model", "run", "--phase", "3", "--after", "+4u"});
  EXPECT_EQ(read_file(file("run/latest")), "20\n");
}

TEST_F(Phases, WhatAPhaseNeedsIsSaid) {
  refused(train("none", "+10u"), "--after: +10u counts from the start of a phase: give --phase 2");
  refused(train("none", "+10u") + Arguments{"--phase", "2"}, "there is no checkpoint of phase 1");
}

TEST_F(Phases, ALinearScheduleThatIsExtendedNamesTheFlag) {
  const Arguments linear{"--lr-decay", "linear"};
  trained(train("linear", "8u") + linear);
  refused(train("linear", "12u") + linear,
          "--after was 8 and is 12 now; phase 2 may have other values");
}

TEST_F(Phases, AnotherValidationTextIsRefusedOrStartsAnew) {
  trained(train("valid", "5u"));
  Arguments other = train("valid", "10u");
  *std::ranges::find(other, "v.de") = "news.de";
  *std::ranges::find(other, "v.en") = "news.en";
  refused(other, "the checksum of the validation text was \"");
  refused(other, "--restart-validation would start best scores and patience anew");
  // Other text in the same file.
  const std::string text = read_file(file("v.en"));
  write_file(file("v.en"), "another " + text);
  refused(train("valid", "10u"), "the checksum of the validation text was \"");
  write_file(file("v.en"), text);
  trained(other + Arguments{"--restart-validation"});
  EXPECT_EQ(read_file(file("valid/config.yml")).find("restart-validation"), std::string::npos);
  EXPECT_EQ(records("valid", "valid").back()["improved"], true);
}

TEST_F(Phases, AFineTunedModelIsMeasuredFirstAndMustBecomeBetter) {
  trained(train("base", "10u"));
  Arguments unchanged = train("tuned", "5u");
  const auto vocabulary = std::ranges::find(unchanged, "--dim-vocabs");
  if (vocabulary != unchanged.end()) unchanged.erase(vocabulary, vocabulary + 2);
  const Outcome outcome =
      trained(unchanged + words_of("--pretrained-model base --learn-rate 1e-20 --valid-metrics "
                                   "ce-mean-words"));
  EXPECT_NE(outcome.err.find("training has not made the model better: ce-mean-words was"),
            std::string::npos)
      << outcome.err;
  const std::vector<Json> validations = records("tuned", "valid");
  EXPECT_EQ(validations.front()["update"], 0);
  EXPECT_EQ(validations.front()["start"], true);
  trained({"report", "tuned", "--output", "tuned.html"});
}

TEST_F(Phases, EveryCommandTakesTheSameBestModel) {
  trained(train("judged", "20u") + words_of("--valid-metrics ce-mean-words bleu --keep-last 9"));
  const std::string best = lines_of(read_file(file("judged/best-ce-mean-words"))).front();
  // BLEU did not decide, and points elsewhere.
  const std::string other = best == "5" ? "10" : "5";
  write_file(file("judged/best-bleu"), other + "\n");
  const Json info = Json::parse(trained({"info", "judged", "--json"}).out);
  EXPECT_EQ(info["run"]["checkpoint"]["path"], "judged/ckpt/" + best);
  // The mean of one model is that model.
  trained({"average", "judged", "-o", "run.safetensors"});
  trained({"average", "judged/ckpt/" + best, "-o", "best.safetensors"});
  trained({"average", "judged/ckpt/" + other, "-o", "other.safetensors"});
  EXPECT_EQ(read_file(file("run.safetensors")), read_file(file("best.safetensors")));
  EXPECT_NE(read_file(file("run.safetensors")), read_file(file("other.safetensors")));
  const auto scored = [&](const Arguments& which) {
    return trained(Arguments{"score", "-t", "v.de", "v.en"} + which).out;
  };
  EXPECT_EQ(scored({"--model", "judged"}),
            scored({"--model", "best.safetensors", "--vocab", "judged/vocab.spm"}));
  EXPECT_NE(scored({"--model", "judged"}), scored({"--model", "judged", "--checkpoint", other}));
}

TEST_F(Phases, EmptyPairsAreToldOnce) {
  write_file(file("gaps.de"), read_file(file("t.de")) + "\n\nein Hund\n");
  write_file(file("gaps.en"), read_file(file("t.en")) + "a dog\na dog\n\n");
  Arguments arguments = train("gaps", "2u");
  *std::ranges::find(arguments, "t.de") = "gaps.de";
  *std::ranges::find(arguments, "t.en") = "gaps.en";
  const auto valid = std::ranges::find(arguments, "--valid-sets");
  arguments.erase(valid, valid + 3);  // some are held out
  const Outcome outcome = trained(arguments);
  const size_t first = outcome.err.find("empty side");
  EXPECT_NE(first, std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("3 with an empty side"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("empty", first + 10), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace translate_train::testing
