// Memory runs out while a tokenizer is trained: the call gives a tokenizer or says that memory ran
// out, and no thread of SentencePiece ends the process. Each try is a process with a limit of its
// address space. In half of them another thread of the program takes all that is left, at a moment
// that differs.
//
//   tokenizer_memory [--long] [FILE]     FILE: lines to train on instead of made-up ones
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "capi/include/trafo.h"
#include "tests/reliability/suite.h"

namespace {

using namespace trafo::testing;

constexpr size_t kTextBytes = 1'400'000;
constexpr int kDone = 0, kOutOfMemory = 10, kOther = 11;

// Words of a few syllables, short ones more often.
std::vector<std::string> made_up_lines(size_t text_bytes) {
  constexpr const char* kSyllables[] = {"ka", "ro", "mi", "ten", "sul", "ba", "ve", "lor",
                                        "in", "os", "da", "ge",  "pu",  "am", "ri", "est"};
  uint64_t state = 1;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  std::vector<std::string> lines;
  for (size_t bytes = 0; bytes < text_bytes; bytes += lines.back().size()) {
    std::string& line = lines.emplace_back();
    for (uint64_t word = 0; word < 12; ++word) {
      const uint64_t syllables = 1 + draw(1 + draw(4));
      for (uint64_t i = 0; i < syllables; ++i) line += kSyllables[draw(1 + draw(16))];
      line += ' ';
    }
  }
  return lines;
}

size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

int train(const std::vector<trafo_string_view>& lines, bool bpe) {
  trafo_tokenizer_options options;
  if (trafo_tokenizer_options_init(&options, sizeof options)) return kOther;
  options.vocabulary = 1000;
  options.bpe = bpe;
  trafo_tokenizer* tokenizer = nullptr;
  trafo_error* error =
      trafo_tokenizer_train(lines.data(), lines.size(), &options, nullptr, &tokenizer);
  const int32_t code = trafo_error_code(error);
  if (code != TRAFO_OK && code != TRAFO_OUT_OF_MEMORY)
    std::fprintf(stderr, "tokenizer_memory: %s\n", trafo_error_message(error));
  return code == TRAFO_OK ? kDone : code == TRAFO_OUT_OF_MEMORY ? kOutOfMemory : kOther;
}

// Takes all that malloc gives and keeps it.
void take_the_rest(std::chrono::milliseconds after) {
  std::this_thread::sleep_for(after);
  for (size_t bytes = size_t{64} << 20; bytes >= 4096; bytes /= 2)
    while (void* volatile memory = std::malloc(bytes)) static_cast<void>(memory);
}

// `free_bytes`: what the process may take above what it has. `hungry_after`: milliseconds until
// another thread takes the rest, below 0: none.
int status_of(const std::vector<trafo_string_view>& lines, size_t free_bytes, int hungry_after,
              bool bpe) {
  const pid_t child = fork();
  if (child == 0) {
    const rlim_t limit = address_space() + free_bytes;
    const rlimit limits{limit, limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) _exit(kOther);
    std::thread hungry;
    if (hungry_after >= 0)
      hungry = std::thread(take_the_rest, std::chrono::milliseconds(hungry_after));
    const int result = train(lines, bpe);
    _exit(result);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace

int main(int argc, char** argv) {
  Suite suite("tokenizer_memory");
  const bool all = is_long(argc, argv);
  std::vector<std::string> text;
  for (int i = 1; i < argc; ++i)
    if (argv[i][0] != '-') {
      std::ifstream file(argv[i]);
      for (std::string line; std::getline(file, line);) text.push_back(line);
    }
  const bool made_up = text.empty();
  if (made_up) text = made_up_lines(kTextBytes);
  std::vector<trafo_string_view> lines;
  for (const std::string& line : text) lines.push_back({line.data(), line.size()});
  int done = 0, refused = 0;
  const auto attempt = [&](size_t megabytes, int hungry_after, bool bpe) {
    suite.tried();
    const int status = status_of(lines, megabytes << 20, hungry_after, bpe);
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    done += result == kDone;
    refused += result == kOutOfMemory;
    if (result != kDone && result != kOutOfMemory)
      suite.failed(
          "with " + std::to_string(megabytes) + " MiB free" +
          (hungry_after < 0 ? "" : ", all taken after " + std::to_string(hungry_after) + " ms") +
          (WIFSIGNALED(status) ? ": signal " + std::to_string(WTERMSIG(status))
                               : ": exit status " + std::to_string(result)));
  };
  for (size_t megabytes = 100; megabytes <= 900; megabytes += all ? 10 : 100)
    attempt(megabytes, -1, false);
  for (size_t megabytes = 1200; megabytes <= 2400; megabytes += all ? 25 : 200)
    for (const bool bpe : {false, true}) {
      attempt(megabytes, -1, bpe);
      for (int after = 0; after < 1000; after += all ? 50 : 250) attempt(megabytes, after, bpe);
    }
  // In the long form, texts of 4 and 10 MB as well.
  for (const size_t bytes : {size_t{4'000'000}, size_t{10'000'000}}) {
    if (!all || !made_up) continue;
    text = made_up_lines(bytes);
    lines.clear();
    for (const std::string& line : text) lines.push_back({line.data(), line.size()});
    for (size_t megabytes = 300; megabytes <= 6000; megabytes += 300)
      for (const int after : {-1, 500, 2000}) attempt(megabytes, after, false);
  }
  std::printf("%d trained, %d ran out of memory\n", done, refused);
  suite.require(done > 0 && refused > 0, "the limits do not lie on both sides");
  return suite.finish();
}
