// A run directory of a stranger: no command writes outside of it, deletes outside of it, or hangs.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// `entries`: all that lies below a folder, to see whether something was added or removed.
std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class HostileRun : public Cli {
 protected:
  // A copy of the run, and a folder outside of it with something to lose.
  void SetUp() override {
    run_ = copy_of_run("stranger");
    outside_ = file("outside");
    fs::remove_all(outside_);
    fs::create_directories(outside_ + "/5");
    write_file(outside_ + "/victim", "precious");
    write_file(outside_ + "/5/model.safetensors", "precious");
    before_ = entries(outside_);
  }
  Outcome resume(const Arguments& more = {}) const {
    Arguments arguments = small("stranger", "30u");
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_->path(), arguments);
  }
  void expect_untouched() const {
    EXPECT_EQ(entries(outside_), before_);
    EXPECT_EQ(content(outside_ + "/victim"), "precious");
    EXPECT_EQ(content(outside_ + "/5/model.safetensors"), "precious");
  }
  std::string run_, outside_;
  std::vector<std::string> before_;
};

TEST_F(HostileRun, LinksBesideTheFilesItReplacesAreNotFollowed) {
  for (const char* name : {"metrics.jsonl.tmp", "config.yml.tmp", "report.html.tmp"})
    fs::create_symlink(outside_ + "/victim", run_ + "/" + name);
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(run({"report", "stranger", "-o", "stranger/report.html"}).exit_code, 0);
  expect_untouched();
}

TEST_F(HostileRun, ReplacedFilesMayBeLinksAndAreNotFollowed) {
  fs::remove(run_ + "/config.yml");
  fs::create_symlink(outside_ + "/victim", run_ + "/report.html");
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(run({"report", "stranger", "-o", "stranger/report.html"}).exit_code, 0);
  EXPECT_FALSE(fs::is_symlink(run_ + "/report.html"));
  expect_untouched();
}

TEST_F(HostileRun, ALinkedLogIsRefused) {
  fs::remove(run_ + "/train.log");
  fs::create_symlink(outside_ + "/victim", run_ + "/train.log");
  expect_refused(resume(), "train.log: cannot be written to", 1);
  expect_untouched();
}

TEST_F(HostileRun, ALogWithASecondNameIsRefused) {
  fs::remove(run_ + "/train.log");
  fs::create_hard_link(outside_ + "/victim", run_ + "/train.log");
  expect_refused(resume(), "train.log: cannot be written to", 1);
  expect_untouched();
}

TEST_F(HostileRun, LinkedMetricsAreReplacedNotWrittenTo) {
  for (const bool symbolic : {true, false}) {
    SetUp();
    const std::string metrics = run_ + "/metrics.jsonl";
    fs::remove(metrics);
    if (symbolic)
      fs::create_symlink(outside_ + "/victim", metrics);
    else
      fs::create_hard_link(outside_ + "/victim", metrics);
    EXPECT_EQ(resume().exit_code, 0);
    EXPECT_FALSE(fs::is_symlink(metrics));
    EXPECT_EQ(fs::hard_link_count(metrics), 1u);
    EXPECT_NE(content(metrics).find(R"("type":"end")"), std::string::npos) << content(metrics);
    expect_untouched();
  }
}

TEST_F(HostileRun, ALockWithASecondNameIsRefused) {
  fs::remove(run_ + "/.lock");
  fs::create_hard_link(outside_ + "/victim", run_ + "/.lock");
  expect_refused(resume(), "has a second name", 1);
  expect_untouched();
}

TEST_F(HostileRun, LinkedFoldersAreRefused) {
  for (const char* name : {"ckpt", "valid", "tensorboard"}) {
    SetUp();
    fs::remove_all(run_ + "/" + name);
    fs::create_directory_symlink(outside_, run_ + "/" + name);
    expect_refused(resume({"--tensorboard"}), "is a symbolic link", 1);
    expect_untouched();
  }
}

TEST_F(HostileRun, ASavedConfigurationNamesNoPlaceToWriteTo) {
  std::string settings;
  for (const std::string& line : lines_of(content(run_ + "/config.yml")))
    if (!line.starts_with("tensorboard:") && !line.starts_with("tempdir:")) settings += line + "\n";
  write_file(run_ + "/config.yml",
             settings + "tensorboard: " + outside_ + "/events\ntempdir: " + outside_ + "\n");
  const Outcome resumed = resume();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(fs::exists(run_ + "/tensorboard"));
  expect_untouched();
}

TEST_F(HostileRun, APointerIsANumber) {
  fs::create_directories(file("outside/model"));
  fs::copy(run_ + "/ckpt/20", file("outside/model"), fs::copy_options::recursive);
  for (const char* name : {"latest", "best-bleu", "best-chrf"})
    write_file(run_ + "/" + name, "../../outside/model\n");
  write_file(file("outside/model/model.safetensors"), "read by nobody");
  // The state of the newest checkpoint says which one is the best.
  const Outcome outcome = run({"translate", "--model", "stranger"}, "ein Hund\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(HostileRun, AFifoDoesNotHang) {
  for (const char* name : {"config.yml", "vocab.spm", "latest", "metrics.jsonl"}) {
    SetUp();
    fs::remove(run_ + "/" + name);
    ASSERT_EQ(mkfifo((run_ + "/" + name).c_str(), 0600), 0);
    expect_refused(resume(), "is no regular file");
    if (std::string(name) != "config.yml")
      expect_refused(run({"translate", "--model", "stranger"}, "ein Hund\n"), "is no regular file");
  }
}

TEST_F(HostileRun, AFifoHangsNoCommand) {
  struct Case {
    const char* name;
    Arguments command;
  };
  for (const Case& each : std::initializer_list<Case>{
           {"metrics.jsonl", {"average", "--best", "1"}},
           {"metrics.jsonl", {"report", "stranger"}},
           {"config.yml", {"info", "stranger"}},
           {"best-other", {"info", "stranger"}},
           {"ckpt/20/state.json", {"info", "stranger/ckpt/20"}},
           {"ckpt/20/manifest.json",
            {"score", "--checkpoint", "20", "--train-sets", "v.de", "v.en"}},
           {"ckpt/20/model.safetensors", {"average", "--last", "1"}}}) {
    SetUp();
    fs::remove(run_ + "/" + each.name);
    ASSERT_EQ(mkfifo((run_ + "/" + each.name).c_str(), 0600), 0);
    Arguments command = each.command;
    if (command[0] == "average" || command[0] == "score")
      command = command + Arguments{"--model", "stranger"};
    const Outcome outcome = run(command);
    EXPECT_NE(outcome.exit_code, 0) << each.name;
    EXPECT_NE(outcome.err.find(each.name), std::string::npos) << outcome.err;
  }
}

TEST_F(HostileRun, TheMeanIsNotWrittenThroughALink) {
  fs::create_directory_symlink(outside_, run_ + "/ckpt/averaged");
  expect_refused(run({"average", "--last", "1", "--model", "stranger"}), "is a symbolic link", 1);
  expect_untouched();
}

// A byte of the weights whose own checksum fits, as of one who writes a file again.
TEST_F(HostileRun, EveryCommandChecksTheManifest) {
  const std::string update = "/ckpt/20", weights = run_ + update + "/model.safetensors";
  fs::copy_file(run_ + "/ckpt/10/model.safetensors", weights, fs::copy_options::overwrite_existing);
  const std::vector<Arguments> commands{
      {"translate", "--model", "stranger", "--checkpoint", "20"},
      {"score", "--model", "stranger", "--checkpoint", "20", "--train-sets", "v.de", "v.en"},
      {"export", "--to", "ctranslate2", "--model", "stranger", "--checkpoint", "20", "-o", "out"},
      {"average", "--last", "2", "--model", "stranger"},
      {"average", "stranger/ckpt/20", "-o", "mean.safetensors"},
      {"info", "stranger/ckpt/20"},
      {"translate", "--model", "stranger/ckpt/20/model.safetensors"}};
  for (const Arguments& command : commands) {
    const Outcome outcome = run(command, "ein Hund\n");
    EXPECT_NE(outcome.exit_code, 0) << command[0];
    EXPECT_NE(outcome.err.find("its checksum does not fit the manifest"), std::string::npos)
        << command[0] << ": " << outcome.err;
  }
}

TEST_F(HostileRun, AnotherVocabularyOfTheSameSizeIsRefused) {
  ASSERT_EQ(
      run({"vocab", "-t", "t.de", "t.en", "v.de", "v.en", "-o", "other.spm", "--dim-vocabs", "300"})
          .exit_code,
      0);
  fs::copy_file(file("other.spm"), run_ + "/vocab.spm", fs::copy_options::overwrite_existing);
  const std::vector<Arguments> commands{
      {"translate", "--model", "stranger"},
      {"score", "--model", "stranger", "--train-sets", "v.de", "v.en"},
      {"export", "--to", "ctranslate2", "--model", "stranger", "-o", "out"},
      {"info", "stranger"}};
  for (const Arguments& command : commands) {
    const Outcome outcome = run(command, "ein Hund\n");
    EXPECT_NE(outcome.exit_code, 0) << command[0];
    for (const char* text : {"model.safetensors was trained with another vocabulary", "vocab.spm"})
      EXPECT_NE(outcome.err.find(text), std::string::npos) << command[0] << ": " << outcome.err;
    EXPECT_EQ(outcome.out.find("dog"), std::string::npos);
  }
  EXPECT_EQ(run({"info", "run"}).exit_code, 0);
}

TEST_F(HostileRun, AnUpdateThatIsNoNumberDoesNotStopARun) {
  std::ofstream(run_ + "/metrics.jsonl", std::ios::app) << R"({"type":"train","update":"twenty"})"
                                                        << "\n"
                                                        << R"({"type":"train","update":{}})"
                                                        << "\n";
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(content(run_ + "/metrics.jsonl").find("twenty"), std::string::npos);
}

}  // namespace
}  // namespace translate_train::testing
