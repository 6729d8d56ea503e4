#include "tests/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

extern char** environ;

namespace translate_train::testing {

namespace fs = std::filesystem;

Running::Running(const std::string& directory, const std::vector<std::string>& arguments,
                 const std::string& input, const std::string& output) {
  std::string pattern = (fs::temp_directory_path() / "trafo-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  files_ = pattern;
  write_file(files_ + "/in", input);
  const std::string out = output.empty() ? files_ + "/out" : output;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, (files_ + "/in").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (files_ + "/err").c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  std::vector<std::string> words = {TRANSLATE_TRAIN};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int failed = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error("cannot start " + words[0]);
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(files_, ignored);
}

void Running::signal(int number) const {
  kill(pid_, number);
}

bool Running::says(const std::string& text, int seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  do {
    if (read_file(files_ + "/err").find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

Outcome Running::wait() {
  int status = 0;
  rusage usage{};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  Outcome outcome;
  outcome.peak_kib = usage.ru_maxrss;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (fs::exists(files_ + "/out")) outcome.out = read_file(files_ + "/out");
  outcome.err = read_file(files_ + "/err");
  return outcome;
}

Outcome run_program(const std::string& directory, const std::vector<std::string>& arguments,
                    const std::string& input) {
  return Running(directory, arguments, input).wait();
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "trafo-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> with_tiny_model(std::vector<std::string> arguments,
                                         const TinyModel& model) {
  const auto add = [&](const char* flag, int value) {
    arguments.emplace_back(flag);
    arguments.push_back(std::to_string(value));
  };
  if (!model.decoder_only) add("--enc-depth", 1);
  add("--dec-depth", 1);
  add("--dim-emb", model.width);
  add("--transformer-dim-ffn", 2 * model.width);
  add("--transformer-heads", 2);
  if (model.vocabulary > 0) add("--dim-vocabs", model.vocabulary);
  add("--mini-batch-words", model.batch_tokens);
  return arguments;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

bool waits_for_training(const std::string& run) {
  for (int i = 0; i < 3000; ++i) {  // a loaded machine may need long
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (fs::exists(run + "/metrics.jsonl") &&
        read_file(run + "/metrics.jsonl").find("\"loss\"") != std::string::npos)
      return true;
  }
  return false;
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.close();
  ASSERT_TRUE(out) << path;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace translate_train::testing
