// Settings of the host process must not change the results and files of the library, and the
// library must leave them as they are: global locale, rounding mode, traps, flushing of subnormal
// numbers, umask, closed standard streams, ignored signals, the limit of file sizes.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <locale>
#include <map>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tests/reliability/workload.h"
#include "tests/support/scratch_directory.h"

namespace {

using namespace trafo::testing;
namespace fs = std::filesystem;

int failures = 0;
int report = STDOUT_FILENO;  // of a child that closes it, a copy

void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  dprintf(report, "failed: %s\n", what.c_str());
}
#define EXPECT(condition) expect(condition, #condition)

// Checks by and in the event callback of a run.
using HostCheck = std::function<void()>;

int32_t on_event(void* user_data, const trafo_event*) {
  (*static_cast<const HostCheck*>(user_data))();
  return 0;
}

void run_updates(Workload& run, int64_t updates, HostCheck check) {
  int32_t stop = TRAFO_STOP_NONE;
  must(trafo_trainer_run(run.trainer, updates, nullptr, on_event, &check, &stop));
}

void write_new(const fs::path& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  expect(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
         "the test writes " + path.string());
  fchmod(fd, 0600);  // whatever the umask is
  close(fd);
}

template <class Number>
std::string bytes_of(const Number& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Trains past update 1,000 and past files of 1,000 bytes, saves, resumes, translates, and writes
// every kind of file. Results that are no files become one.
void live_a_life(const fs::path& folder, const HostCheck& check) {
  WorkloadOptions options;
  options.threads = 2;
  options.run_directory = (folder / "run").string();
  Workload run(options);
  run.make_all();
  must(trafo_context_profile_start(run.context, 0));
  run_updates(run, 1, check);
  const std::string profile = (folder / "profile.json").string();
  char* table = nullptr;
  must(trafo_context_profile_write(run.context, profile.data(), profile.size(), &table));
  EXPECT(std::string(table).find(',') == std::string::npos);
  trafo_string_free(table);
  fs::remove(profile);  // has times
  run_updates(run, 1202, check);
  must(trafo_trainer_save(run.trainer));
  run.free_all();
  run.make_all();
  run_updates(run, 3, check);
  must(trafo_trainer_save(run.trainer));

  trafo_translations* translations = nullptr;
  must(run.translate(3, &translations));
  std::string results = Workload::text_of(translations);
  trafo_translations_free(translations);
  double bleu = 0;
  char* signature = nullptr;
  must(trafo_bleu(source_lines().data(), target_lines().data(), 12, 1, &bleu, &signature));
  results += bytes_of(bleu) + signature;
  trafo_string_free(signature);

  trafo_tokenizer_options settings;
  must(trafo_tokenizer_options_init(&settings, sizeof settings));
  settings.vocabulary = 60;
  settings.soft_limit = 1;
  settings.character_coverage = 0.985;
  trafo_tokenizer* tokenizer = nullptr;
  must(trafo_corpus_train_tokenizer(run.corpus, &settings, nullptr, &tokenizer));
  const std::string vocabulary = (folder / "vocab.spm").string();
  must(trafo_tokenizer_save(tokenizer, vocabulary.data(), vocabulary.size()));
  trafo_tokenizer_free(tokenizer);
  settings.soft_limit = 0;
  settings.vocabulary = 20000;
  trafo_error* refused = trafo_corpus_train_tokenizer(run.corpus, &settings, nullptr, &tokenizer);
  results += trafo_error_message(refused);
  trafo_error_free(refused);

  trafo_shortlist* list = nullptr;
  const std::string shortlist = (folder / "shortlist").string();
  must(trafo_shortlist_learn(run.tokenizer, source_lines().data(), target_lines().data(), 12, 100,
                             nullptr, &list));
  must(trafo_shortlist_save(list, shortlist.data(), shortlist.size()));
  trafo_shortlist_free(list);
  must(trafo_shortlist_load(run.tokenizer, shortlist.data(), shortlist.size(), &list));
  trafo_shortlist_free(list);

  run.free_trainer();
  for (const auto& [format, name] :
       {std::pair{TRAFO_EXPORT_ONNX, "onnx"}, std::pair{TRAFO_EXPORT_CTRANSLATE2, "ctranslate2"}}) {
    const std::string directory = (folder / name).string();
    double difference = 0;
    must(trafo_model_export(run.model, run.tokenizer, format, TRAFO_EXPORT_WEIGHTS_BY_FORMAT,
                            directory.data(), directory.size(), nullptr, &difference));
    results += bytes_of(difference);
  }
  trafo_model* coded = nullptr;
  must(trafo_model_quantize(run.model, nullptr, nullptr, &coded));
  const std::string quantized = (folder / "int8.safetensors").string();
  must(trafo_model_save(coded, quantized.data(), quantized.size()));
  trafo_model_free(coded);
  check();
  write_new(folder / "results", results);
}

// A grouping locale with another decimal point, whether the system has one or not.
struct Grouping final : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

void set_odd_locale() {
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // if the system has it
  std::locale::global(std::locale(std::locale(), new Grouping));
}

struct OddFloats {
  int rounding = 0, traps = 0;
  unsigned control = 0;
  bool operator==(const OddFloats&) const = default;

  static OddFloats now() {
    OddFloats found{std::fegetround(), fegetexcept(), 0};
#if defined(__x86_64__)
    found.control = _mm_getcsr() & ~0x3Fu;  // without the flags
#endif
    return found;
  }
  static OddFloats set() {
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush subnormal numbers to zero, and take them as zero
#endif
    std::feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    return now();
  }
};

void odd_host(const fs::path& folder) {
  report = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
  set_odd_locale();
  for (const int number : {SIGPIPE, SIGCHLD, SIGXFSZ, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
    signal(number, SIG_IGN);
  for (const int stream : {0, 1, 2}) close(stream);
  umask(0777);
  const OddFloats floats = OddFloats::set();
  sigset_t mask{}, mask_after{};
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  live_a_life(folder, [&] {
    EXPECT(OddFloats::now() == floats);
    EXPECT(std::fetestexcept(FE_ALL_EXCEPT) == 0);
    for (const int stream : {0, 1, 2}) EXPECT(fcntl(stream, F_GETFD) == -1);
  });
  EXPECT(OddFloats::now() == floats);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  EXPECT(std::memcmp(&mask, &mask_after, sizeof mask) == 0);
  EXPECT(umask(0777) == 0777);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const mode_t wanted = entry.is_directory() ? S_IRWXU : S_IRUSR | S_IWUSR;
    struct stat status;
    expect(stat(entry.path().c_str(), &status) == 0 && (status.st_mode & 0777) == wanted,
           "the owner, and nobody else, may use " + entry.path().string());
  }
}

// As programs for sound and games do: subnormal numbers are flushed, and nothing else is unusual.
void flushing_host(const fs::path& folder) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  const OddFloats floats = OddFloats::now();
  live_a_life(folder, [&] { EXPECT(OddFloats::now() == floats); });
  EXPECT(OddFloats::now() == floats);
}

// A relative run directory is in the folder where the trainer was made, wherever the host goes
// then.
void moving_host(const fs::path& folder) {
  fs::current_path(folder);
  WorkloadOptions options;
  options.run_directory = "run";
  Workload run(options);
  run.make_all();
  fs::create_directory("elsewhere");
  fs::current_path("elsewhere");
  run_updates(run, 2, [] {});
  must(trafo_trainer_save(run.trainer));
  EXPECT(fs::exists(folder / "run" / "ckpt" / "2" / "manifest.json"));
  EXPECT(fs::is_empty(folder / "elsewhere"));
}

// `work` in a child; the status it ends with, or a hundred plus the signal that ended it.
int in_child(const std::function<void()>& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    work();
    std::fflush(stdout);
    _exit(failures > 99 ? 99 : failures);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// Removes what follows `key`, up to one of the characters of `ends`: it depends on the clock.
void forget(std::string& text, const std::string& key, const char* ends) {
  const size_t at = text.find(key);
  expect(at != std::string::npos, key + " is in the file");
  if (at == std::string::npos) return;
  const size_t begin = at + key.size();
  text.erase(begin, text.find_first_of(ends, begin) - begin);
}

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string& bytes = files[entry.path().lexically_relative(folder).string()];
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    if (entry.path().filename() == "state.json") forget(bytes, R"("train_seconds":)", ",}");
    if (entry.path().filename() == "manifest.json") {
      forget(bytes, R"("state.json":)", "}");
      forget(bytes, R"("crc32":)", ",");  // of the manifest
    }
  }
  return files;
}

void compare(const fs::path& usual, const fs::path& odd) {
  const auto expected = files_of(usual), found = files_of(odd);
  EXPECT(expected.size() > 20 && expected.contains("run/ckpt/1203/manifest.json") &&
         expected.contains("results") && expected.at("results").size() > 100);
  for (const auto& [name, bytes] : expected)
    expect(found.contains(name) && found.at(name) == bytes,
           name + (found.contains(name) ? " has other bytes" : " is missing"));
  for (const auto& [name, bytes] : found)
    expect(expected.contains(name), name + " is no file of an ordinary host");
}

// A file limit is an error like a full disk, whatever the host does with SIGXFSZ.
void limited_files(const fs::path& folder, bool is_ignored) {
  signal(SIGXFSZ, is_ignored ? SIG_IGN : SIG_DFL);
  WorkloadOptions options;
  options.run_directory = folder.string();
  Workload run(options);
  run.make_all();
  trafo_step_result step{};
  must(run.step(&step));
  must(trafo_trainer_save(run.trainer));
  must(run.step(&step));
  rlimit limit{}, none{};
  getrlimit(RLIMIT_FSIZE, &none);
  limit = none;
  limit.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &limit);
  trafo_error* error = trafo_trainer_save(run.trainer);
  const std::string message = trafo_error_message(error);
  EXPECT(trafo_error_code(error) == TRAFO_IO &&
         message.find("File too large") != std::string::npos);
  trafo_error_free(error);
  sigset_t pending;
  EXPECT(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0);
  setrlimit(RLIMIT_FSIZE, &none);
  EXPECT(fs::exists(folder / "ckpt" / "1" / "manifest.json") && !fs::exists(folder / "ckpt" / "2"));
  must(trafo_trainer_save(run.trainer));
}

}  // namespace

int main() {
  const trafo::ScratchDirectory folder;
  for (const char* name : {"usual", "odd", "flushing", "moving"})
    fs::create_directory(folder / name);
  EXPECT(in_child([&] { live_a_life(folder / "usual", [] {}); }) == 0);
  EXPECT(in_child([&] { odd_host(folder / "odd"); }) == 0);
  compare(folder / "usual", folder / "odd");
  EXPECT(in_child([&] { flushing_host(folder / "flushing"); }) == 0);
  compare(folder / "usual", folder / "flushing");
  EXPECT(in_child([&] { moving_host(folder / "moving"); }) == 0);
  for (const bool is_ignored : {false, true})
    EXPECT(in_child([&] {
             limited_files(folder / (is_ignored ? "limited" : "limited too"), is_ignored);
           }) == 0);
  std::printf("host_state: %d failed\n", failures);
  return failures != 0;
}
