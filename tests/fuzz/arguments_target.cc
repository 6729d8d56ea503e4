// The command line of translate-train: lines of the input are its arguments, what follows 0xff is a
// configuration file beside it. Nothing here can be trained on, and no path leads out of a folder
// that is emptied each time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

#ifdef TRAFO_FUZZ_IN_PROCESS
int translate_train_main(int argc, char** argv);  // main() of apps/translate-train/main.cc
#else
#include <sys/wait.h>
// The built program, where nothing is gained by having it in the process.
static int translate_train_main(int, char** argv) {
  const pid_t child = fork();
  if (child == 0) {
    execv(TRANSLATE_TRAIN, argv);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
#endif

namespace trafo::fuzz {
namespace {

namespace fs = std::filesystem;

// Standard output and input are the null device, and the folder the current one, while it lives.
class Aside {
 public:
  Aside() : before_(fs::current_path()), output_(dup(1)), input_(dup(0)) {
    std::fflush(stdout);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 0);
    close(null);
    home_ = folder().path() / "cli";
    fs::remove_all(home_);
    fs::create_directories(home_);
    fs::current_path(home_);
  }
  ~Aside() {
    std::fflush(stdout);
    dup2(output_, 1);
    dup2(input_, 0);
    close(output_);
    close(input_);
    fs::current_path(before_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  fs::path before_, home_;
  int output_, input_;
};

std::vector<std::string> arguments_of(std::string_view text) {
  std::vector<std::string> arguments = {"translate-train"};
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line) && arguments.size() < 24;) {
    std::replace(line.begin(), line.end(), '\0', '0');
    std::replace(line.begin(), line.end(), '/', '_');
    if (line.find_first_not_of('.') == std::string::npos) line += 'x';
    arguments.push_back(line);
  }
  return arguments;
}

}  // namespace

void run_arguments(Bytes input) {
  Parts parts(input);
  std::vector<std::string> arguments = arguments_of(parts.part());
  const Aside aside;
  // The last line is no text, so that nobody can train on this file.
  folder().write("cli/config.yml", std::string(parts.rest()) + "\n# \xff\n");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  const int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  const int code = translate_train_main(count, pointers.data());
  expect(code >= 0 && code <= 4, "an exit status that is not documented");
}

std::vector<Seed> arguments_seeds() {
  const std::string yaml =
      "train-sets: [a.de, a.en]\nvalid-sets: [b.de, b.en]\nlearn-rate: 0.0003\nafter: 10e\n";
  return {
      {"train",
       "train\n--train-sets\na.de\na.en\n--valid-sets\nb.de\nb.en\n--model\nrun\n--"
       "task\ntiny\n"},
      {"train-yaml", "train\n--config\nconfig.yml\n--dim-emb\n64\n\xff" + yaml},
      {"train-values",
       "train\n--tsv\na.tsv\n--after\n10Ku,2e\n--lr-decay\ncosine\n--mini-batch-words\n4Ki\n--data-"
       "weights\n1\n"
       "--exponential-smoothing\n--sentencepiece-alphas\n0.1\n0.2\n--valid-freq\n1000u\n"},
      {"vocab", "vocab\n--train-sets\na.de\na.en\n--output\nv.spm\n--dim-vocabs\n8000\n"},
      {"translate", "translate\n--model\nrun\n--beam-size\n4\n--normalize\n0.6\n--input\na.de\n"},
      {"score", "score\n--model\nrun\n--train-sets\na.de\na.en\n"},
      {"eval", "eval\n--ref\nb.en\n--hyp\nh.en\n"},
      {"average", "average\n--model\nrun\n--last\n3\n"},
      {"info", "info\nconfig.yml\n"},
      {"report", "report\nrun\n--output\nr.html\n"},
      {"plan", "plan\n--task\nbase\n--mini-batch-words\n1000\n"},
      {"shortlist", "shortlist\n--train-sets\na.de\na.en\n--vocab\nv.spm\n"},
      {"export", "export\n--model\nrun\n--to\nhf-marian\n--output\nx\n"},
      {"completion", "completion\nbash\n"},
      {"help", "train\n--help\n"},
      {"version", "--version\n"},
      {"typo", "trian\n--lern-rate\n1\n"}};
}

}  // namespace trafo::fuzz
