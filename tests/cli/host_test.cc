// The program under unusual conditions of its host: signals, limits, full disks, and the
// environment of launchers.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

// Signals that a program ignores if it is started while this object lives.
class Ignored {
 public:
  explicit Ignored(int number) : number_(number), before_(std::signal(number, SIG_IGN)) {}
  ~Ignored() { std::signal(number_, before_); }
  Ignored(const Ignored&) = delete;
  Ignored& operator=(const Ignored&) = delete;

 private:
  int number_;
  sighandler_t before_;
};

class Limited {
 public:
  Limited(int resource, rlim_t most) : resource_(static_cast<__rlimit_resource>(resource)) {
    getrlimit(resource_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = most;
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &before_); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
};

// A lost terminal, and what job schedulers send before a time limit.
TEST_F(Cli, SignalsOfTerminalsAndSchedulersSave) {
  for (const auto& [number, code] :
       {std::pair{SIGHUP, 129}, std::pair{SIGUSR1, 138}, std::pair{SIGUSR2, 140}}) {
    const std::string name = "warned" + std::to_string(number);
    Running running(folder_->path(), small(name, "1000000u"));
    ASSERT_TRUE(waits_for_training(file(name)));
    running.signal(number);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    ASSERT_TRUE(fs::exists(file(name + "/latest"))) << outcome.err;
    const int64_t saved = std::stoll(read_file(file(name + "/latest")));
    EXPECT_EQ(run({"train", "--model", name, "--after", std::to_string(saved + 1) + "u"}).exit_code,
              0);
  }
}

TEST_F(Cli, SignalsThatNohupIgnoresStayIgnored) {
  for (const int number : {SIGHUP, SIGUSR1}) {
    const std::string name = "kept" + std::to_string(number);
    const Ignored inherited(number);
    Running running(folder_->path(), small(name, "1000000u"));
    ASSERT_TRUE(waits_for_training(file(name)));
    const auto logged = fs::file_size(file(name + "/metrics.jsonl"));
    running.signal(number);
    for (int i = 0; i < 3000 && fs::file_size(file(name + "/metrics.jsonl")) < logged + 2000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait().exit_code, 143);
  }
}

TEST_F(Cli, AnAddressSpaceOfTheWholePlanIsEnough) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space without a limit";
#endif
  // With a vocabulary: training one takes 16 threads and their heaps.
  copy_of_run("narrow");
  const Arguments arguments = {"train", "--model", "narrow", "--after", "23u"};
  Outcome outcome;
  {
    const Limited addresses(RLIMIT_AS, rlim_t{1500000} << 10);
    Running running(folder_->path(), arguments);
    outcome = running.wait();
  }
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(file("narrow/latest")), "23\n");
}

// The tree of `folder`, a line for each name.
std::string tree_of(const std::string& folder) {
  std::string tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    tree += entry.path().string().substr(folder.size()) + "\n";
  return tree;
}

std::string output_of(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string output;
  char piece[4096];
  for (size_t count; (count = fread(piece, 1, sizeof piece, pipe)) > 0;)
    output.append(piece, count);
  pclose(pipe);
  return output;
}

// Commands that write into the folder `place`. Without room they fail and leave nothing there.
class FullDisk : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    const auto done = [](const Outcome& outcome) {
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    };
    done(run(small("tuned", "22u") + words_of("--pretrained-model run --lora-rank 2")));
    done(run(words_of("export -m run --to hf-pegasus -o foreign")));
  }

  static void expect_works(const std::string& command) {
    fs::remove_all(file("place"));
    fs::create_directory(file("place"));
    const Outcome outcome = run(words_of(command));
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
    EXPECT_NE(tree_of(file("place")), "") << command;
  }

  // Under a limit of file sizes every file can be made and none can be written.
  static void expect_nothing_left_by(const std::string& command) {
    fs::remove_all(file("place"));
    fs::create_directory(file("place"));
    const std::string said = output_of("cd '" + folder_->path() + "' && ulimit -f 0 && " +
                                       TRANSLATE_TRAIN " " + command + " && echo succeeded");
    EXPECT_NE(said.find("translate-train: error: "), std::string::npos) << command << "\n" << said;
    EXPECT_EQ(said.find("succeeded"), std::string::npos) << command << "\n" << said;
    EXPECT_EQ(tree_of(file("place")), "") << command << "\n" << said;
  }

  // On a file system without a free block. Returns whether this process may mount one.
  static bool expect_nothing_left_on_disk_by(const std::string& command) {
    const std::string place = "'" + file("place") + "'";
    fs::create_directories(file("place"));
    const std::string inside = "mount -t tmpfs -o size=64k trafo-test " + place +
                               " || exit 0; echo mounted; head -c 100000 " + "/dev/zero > " +
                               place + "/filler 2>/dev/null; cd '" + folder_->path() + "'; " +
                               TRANSLATE_TRAIN " " + command + " && echo succeeded; find " + place +
                               " -mindepth 1";
    write_file(file("inside.sh"), inside + "\n");
    const std::string said = output_of("unshare -m sh '" + file("inside.sh") +
                                       "' || unshare -rm sh '" + file("inside.sh") + "'");
    if (said.find("mounted\n") == std::string::npos) return false;
    EXPECT_NE(said.find("translate-train: error: "), std::string::npos) << command << "\n" << said;
    EXPECT_EQ(said.find("succeeded"), std::string::npos) << command << "\n" << said;
    const size_t filler = said.find(file("place") + "/filler\n");
    EXPECT_NE(filler, std::string::npos) << said;
    EXPECT_EQ(said.substr(said.rfind("\n" + file("place")) + 1), file("place") + "/filler\n")
        << command << "\n"
        << said;
    return true;
  }
};

TEST_F(FullDisk, NoCommandLeavesAFolderOrAPartOfAFile) {
  bool mounted = true;
  for (const std::string command : {
           "merge -m run --adapter tuned -o place/new/merged",
           "merge -m run --adapter tuned -o place",
           "quantize -m run -o place/new/int8",
           "prune -m run --heads 0.5 -t v.de v.en -o place/new/pruned",
           "factorize -m run -t v.de v.en --ratio 0.5 -o place/new/low",
           "import --from foreign -o place/new/imported",
           "export -m run --to onnx -o place/new/onnx",
           "export -m run --to ctranslate2 -o place/new/ctranslate2",
           "export -m run --to hf-pegasus -o place/new/pegasus",
           "export -m tuned --to peft -o place/new/peft",
           "average -m run --last 2 -o place/mean.safetensors",
           "vocab -t t.de t.en --dim-vocabs 250 -o place/v.spm",
           "shortlist -t t.de t.en -v run/vocab.spm -o place/list",
           "report run -o place/report.html",
           "man --all place/new/man",
       }) {
    expect_works(command);
    expect_nothing_left_by(command);
    mounted = mounted && expect_nothing_left_on_disk_by(command);
  }
  if (!mounted) GTEST_SKIP() << "this process may not mount file systems: file limits alone";
}

TEST_F(FullDisk, TheFolderOfAnAverageGoesToo) {
  copy_of_run("averaged");
  const std::string before = tree_of(file("averaged"));
  const std::string said = output_of("cd '" + folder_->path() + "' && ulimit -f 0 && " +
                                     TRANSLATE_TRAIN " average -m averaged --last 2");
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_EQ(tree_of(file("averaged")), before);
}

// A part of a launcher's variables would let each process train alone.
TEST_F(Cli, IncompleteVariablesOfLaunchersAreRefused) {
  using Variables = std::map<std::string, std::string>;
  const Variables torchrun = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29400"}};
  const auto refused = [&](const Variables& variables, const std::string& message,
                           const std::string& flags = "") {
    const Environment environment(variables);
    expect_refused(run(small("of-nobody", "1u") + words_of(flags)), message);
    EXPECT_FALSE(fs::exists(file("of-nobody")));
  };
  for (const auto& [missing, ignored] : torchrun) {
    Variables some = torchrun;
    some.erase(missing);
    refused(some, "but no " + missing);
    // The address of a service named master is no sign of torchrun.
    if (!missing.starts_with("MASTER"))
      refused({{missing, torchrun.at(missing)}}, "the environment has " + missing + " but no ");
  }
  refused({{"LOCAL_RANK", "1"}}, "the environment has LOCAL_RANK but no RANK");
  const auto with = [](Variables variables, const char* name, const char* value) {
    variables[name] = value;
    return variables;
  };
  for (const char* number : {"4294967298", "18446744073709551618", "-1", "2x", " 2", "0x2", "2.0"})
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
      refused(with(torchrun, name, number), name + std::string("=") + number);
  refused(with(torchrun, "WORLD_SIZE", "0"), "WORLD_SIZE is 0");
  refused(with(with(torchrun, "WORLD_SIZE", "1"), "RANK", "1"), "RANK is 1 and WORLD_SIZE is 1");
  refused(with(torchrun, "MASTER_PORT", "65536"), "MASTER_PORT=65536");
  refused(with(with(torchrun, "MASTER_PORT", "65535"), "TORCHELASTIC_USE_AGENT_STORE", "True"),
          "MASTER_PORT=65535");
  refused(with(with(torchrun, "LOCAL_RANK", "2"), "LOCAL_WORLD_SIZE", "2"),
          "LOCAL_WORLD_SIZE is 2");
  refused({{"OMPI_COMM_WORLD_RANK", "0"}}, "but no OMPI_COMM_WORLD_SIZE");
  refused({{"PMI_SIZE", "2"}}, "but no PMI_RANK");
  refused({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, "but no SLURM_STEP_NUM_TASKS");
  refused({{"SLURM_STEP_NUM_TASKS", "1"}}, "but no SLURM_PROCID");
  refused({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}}, "but no SLURM_STEP_NUM_TASKS");
  refused({{"SLURM_STEP_NUM_TASKS", "4294967297"}, {"SLURM_PROCID", "0"}},
          "SLURM_STEP_NUM_TASKS=4294967297");
  const Variables slurm = {{"SLURM_PROCID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_JOB_ID", "7"},
                           {"SLURM_STEP_NODELIST", "localhost"}};
  for (const auto& [missing, ignored] : slurm) {
    Variables some = slurm;
    some.erase(missing);
    refused(some, missing == "SLURM_STEP_NUM_TASKS" ? "SLURM_NTASKS" : missing, "--launcher slurm");
  }
  refused(with(slurm, "SLURM_JOB_ID", "4294967296"), "SLURM_JOB_ID=4294967296", "--launcher slurm");
  // A batch script of Slurm, and one process alone.
  for (const Variables& alone :
       {Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}},
        with(torchrun, "WORLD_SIZE", "1"), Variables{{"RANK", ""}, {"WORLD_SIZE", ""}}}) {
    const Environment environment(alone);
    const Outcome outcome = run(small("alone", "1u"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    fs::remove_all(file("alone"));
  }
  const Environment environment(Variables{{"WORLD_SIZE", "2"}});
  EXPECT_EQ(run(small("said", "1u") + words_of("--launcher none")).exit_code, 0);
}

}  // namespace
}  // namespace translate_train::testing
