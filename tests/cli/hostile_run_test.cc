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
  for (const char* name : {"latest", "best-bleu"})
    write_file(run_ + "/" + name, "../../outside/model\n");
  expect_refused(run({"translate", "--model", "stranger"}, "ein Hund\n"), "has no checkpoint");
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
