// Runs translate-train and keeps what it said.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace translate_train::testing {

struct Outcome {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out, err;
  long peak_kib = 0;  // most resident memory that it had
};

// In the folder `directory`, with `input` on standard input.
Outcome run_program(const std::string& directory, const std::vector<std::string>& arguments,
                    const std::string& input = "");

// Still running; wait() collects it.
class Running {
 public:
  Running(const std::string& directory, const std::vector<std::string>& arguments,
          const std::string& input = "", const std::string& output = "");
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void signal(int number) const;
  // Whether standard error holds `text` within `seconds`, which a loaded machine may need.
  bool says(const std::string& text, int seconds = 120) const;
  Outcome wait();

 private:
  pid_t pid_ = -1;
  std::string files_;
};

// A folder that goes when it does.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A model that trains in no time: one layer, two heads, ffn of twice the width.
struct TinyModel {
  int width = 16;
  int vocabulary = 200;  // subwords; 0: the arguments name a vocabulary
  int batch_tokens = 200;
  bool decoder_only = false;
};
// `arguments` of train, and the model's flags.
std::vector<std::string> with_tiny_model(std::vector<std::string> arguments,
                                         const TinyModel& model = {});
std::vector<std::string> words_of(const std::string& line);  // at blanks
std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b);

std::string read_file(const std::string& path);  // fails the test if there is none
void write_file(const std::string& path, const std::string& content);
bool waits_for_training(const std::string& run);  // until metrics.jsonl of this folder has a loss
std::vector<std::string> lines_of(const std::string& text);

}  // namespace translate_train::testing
