// Suite 5: what becomes of odd training text, from memory, from disk and on the command line.
//   corpus_table PROGRAM DOCUMENT    PROGRAM: translate-train; DOCUMENT must show the table
//   corpus_table --table             prints the table
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "engine/core/status.h"
#include "engine/data/text_corpus.h"
#include "engine/data/tokenized_corpus.h"
#include "tests/reliability/corpus_table/cases.h"
#include "tests/support/scratch_directory.h"

namespace trafo::corpus_table {
namespace {

namespace fs = std::filesystem;

int tried = 0, failed = 0;

void check(bool right, const std::string& what) {
  ++tried;
  if (right) return;
  ++failed;
  std::printf("failed: %s\n", what.c_str());
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct Files {
  std::string source, target;
};

Files lay_out(const Case& c, const ScratchDirectory& folder) {
  const std::string end = c.gzip ? ".gz" : "";
  Files files{folder.file("source" + end), folder.file("target" + end)};
  if (c.same_file) files.target = files.source;
  if (c.make) {
    c.make(files.source, files.target);
    return files;
  }
  write(files.source, c.source);
  if (c.form == Form::pair && !c.same_file) write(files.target, c.target);
  return files;
}

TextCorpus load(const Case& c, const Files& files, int64_t memory, const ScratchDirectory& folder) {
  LoadOptions options;
  options.memory_bytes = memory;
  options.unpack_directory = folder.file("unpacked");
  if (c.form == Form::tsv) return load_tsv(files.source, options);
  if (c.form == Form::mono) return load_monolingual(files.source, options);
  return load_parallel(files.source, files.target, options);
}

void check_reader(const Case& c, const char* where, int64_t memory) {
  const ScratchDirectory folder;
  const Files files = lay_out(c, folder);
  const std::string title = c.title + ", " + where;
  try {
    const CorpusReport report = load(c, files, memory, folder).report();
    check(c.refused.empty(), title + ": was taken");
    check(report.pairs == c.pairs && report.dropped_empty == c.dropped,
          title + concat(": ", report.pairs, " pairs, ", report.dropped_empty, " left out"));
  } catch (const Error& error) {
    const bool right = !c.refused.empty() && error.message().find(c.refused) != std::string::npos;
    check(right, title + ": " + error.message());
    const bool names_it = error.message().find(files.source) != std::string::npos ||
                          error.message().find(files.target) != std::string::npos;
    check(names_it, title + ": the message does not name the file: " + error.message());
  }
}

struct Outcome {
  int code = -1;
  std::string said;
};

Outcome run_program(const std::vector<std::string>& arguments, const ScratchDirectory& folder) {
  const std::string log = folder.file("log");
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    std::vector<char*> pointers;
    for (const std::string& argument : arguments)
      pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::ifstream in(log, std::ios::binary);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          {std::istreambuf_iterator<char>(in), {}}};
}

// The result for a user: an exit status and one line with the reason, and nothing was trained.
void check_program(const Case& c, const std::string& program) {
  if (c.refused.empty()) return;
  const ScratchDirectory folder;
  const Files files = lay_out(c, folder);
  std::vector<std::string> arguments = {program, "train", "--model", folder.file("run")};
  if (c.form == Form::tsv) {
    arguments.insert(arguments.end(), {"--tsv", files.source});
  } else {
    arguments.insert(arguments.end(), {"--train-sets", files.source});
    if (c.form == Form::pair) arguments.push_back(files.target);
  }
  if (c.form == Form::mono) arguments.insert(arguments.end(), {"--task", "lm"});
  const Outcome outcome = run_program(arguments, folder);
  const bool right = outcome.code == c.status && outcome.said.find(c.refused) != std::string::npos;
  check(right, c.title + concat(", on the command line: exit status ", outcome.code, ", said ",
                                outcome.said));
}

// ---- cases that are no single reading ----

struct Special {
  const char* title;
  const char* outcome;
  void (*run)(const char* title, const ScratchDirectory& folder);
};

template <class Function>
void expect_refusal(const char* title, const char* part, Function&& function) {
  try {
    function();
    check(false, std::string(title) + ": was taken");
  } catch (const Error& error) {
    check(error.message().find(part) != std::string::npos,
          std::string(title) + ": " + error.message());
  }
}

TextCorpus on_disk(const ScratchDirectory& folder, const std::string& path) {
  LoadOptions options;
  options.memory_bytes = -1;
  options.unpack_directory = folder.file("unpacked");
  return load_monolingual(path, options);
}

void pipe_case(const char* title, const ScratchDirectory& folder) {
  const std::string path = folder.file("pipe");
  for (const bool disk : {false, true}) {
    if (mkfifo(path.c_str(), 0600) != 0) std::abort();
    std::thread writer([&] { write(path, "a\nb\n"); });
    const int64_t pairs = disk ? on_disk(folder, path).size()
                               : read_columns(path, CorpusForm::monolingual).report.pairs;
    writer.join();
    check(pairs == 2, concat(title, ": ", pairs, " pairs"));
    unlink(path.c_str());
  }
}

void input_case(const char* title, const ScratchDirectory&) {
  expect_refusal(title, "standard input cannot be both sides", [] { load_parallel("-", "-"); });
  expect_refusal(title, "standard input cannot be both sides", [] {
    read_sides(std::vector<std::string>{"-", "-"});
  });
}

void ids_case(const char* title, const ScratchDirectory&) {
  const auto make = [](int32_t id, int32_t end) {
    const std::vector<int32_t> ids = {1, id};
    const std::vector<int64_t> offsets = {0, end};
    TokenizedCorpus(ids, offsets, ids, offsets, 10, 2, {});
  };
  make(9, 2);
  expect_refusal(title, "token 1 is 10, the vocabulary has 10 tokens", [&] { make(10, 2); });
  expect_refusal(title, "token 1 is -1, the vocabulary has 10 tokens", [&] { make(-1, 2); });
  expect_refusal(title, "token 1 is 2147483647", [&] { make(INT32_MAX, 2); });
  expect_refusal(title, "offsets must start at 0", [&] { make(9, 3); });
}

std::string two_epochs(const ScratchDirectory& folder, void (*change)(const std::string&)) {
  const std::string path = folder.file("text");
  write(path, "one\ntwo\n");
  const TextCorpus corpus = on_disk(folder, path);
  PairBuffers buffers;
  corpus.view(0, buffers);
  change(path);
  corpus.view(0, buffers);
  return std::string(corpus.view(1, buffers).target);
}

void edited_case(const char* title, const ScratchDirectory& folder) {
  expect_refusal(title, "has changed while it was trained on", [&] {
    two_epochs(folder,
               [](const std::string& path) { std::ofstream(path, std::ios::app) << "x\n"; });
  });
}

void shorter_case(const char* title, const ScratchDirectory& folder) {
  expect_refusal(title, "has changed while it was trained on", [&] {
    two_epochs(folder, [](const std::string& path) { fs::resize_file(path, 2); });
  });
}

void replaced_case(const char* title, const ScratchDirectory& folder) {
  const std::string read = two_epochs(folder, [](const std::string& path) {
    write(path + "-new", "other\ntexts\n");
    fs::rename(path + "-new", path);
  });
  check(read == "two", std::string(title) + ": read " + read);
}

void removed_case(const char* title, const ScratchDirectory& folder) {
  const std::string read = two_epochs(folder, [](const std::string& path) { fs::remove(path); });
  check(read == "two", std::string(title) + ": read " + read);
}

constexpr Special kSpecial[] = {
    {"a pipe (FIFO)", "taken: read once, to its end", pipe_case},
    {"standard input on both sides", "refused: `standard input cannot be both sides`", input_case},
    {"from C: ids below 0 or outside the vocabulary, offsets beyond the ids",
     "refused: `token 1 is 10, the vocabulary has 10 tokens`", ids_case},
    {"on disk: edited between epochs", "the run stops: `has changed while it was trained on`",
     edited_case},
    {"on disk: cut short between epochs", "the run stops: `has changed while it was trained on`",
     shorter_case},
    {"on disk: replaced by another file between epochs", "continues with the text it began with",
     replaced_case},
    {"on disk: removed between epochs", "continues with the text it began with", removed_case},
};

std::string table() {
  std::string text = "| What comes | What becomes of it |\n|---|---|\n";
  for (const Case& c : cases()) text += "| " + c.title + " | " + c.outcome + " |\n";
  for (const Special& s : kSpecial) text += concat("| ", s.title, " | ", s.outcome, " |\n");
  return text;
}

}  // namespace

// `program`: translate-train, or empty: the library alone.
int run(const std::string& document, const std::string& program) {
  for (const Case& c : cases()) {
    check_reader(c, "from memory", int64_t{1} << 30);
    check_reader(c, "from disk", -1);
    if (!program.empty()) check_program(c, program);
  }
  for (const Special& special : kSpecial) {
    const ScratchDirectory folder;
    special.run(special.title, folder);
  }
  std::ifstream in(document, std::ios::binary);
  const std::string shown{std::istreambuf_iterator<char>(in), {}};
  check(shown.find(table()) != std::string::npos,
        document + " does not show the table of `corpus_table --table`");
  const size_t count = cases().size() + std::size(kSpecial);
  check(count >= 40, concat("there are only ", count, " cases"));
  std::printf("%zu cases\nsuite: corpus_table  tried: %d  failed: %d\n", count, tried, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace trafo::corpus_table

int main(int argc, char** argv) {
  using namespace trafo::corpus_table;
  if (argc == 2 && std::string(argv[1]) == "--table") {
    std::printf("%s", table().c_str());
    return 0;
  }
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: corpus_table DOCUMENT [PROGRAM] | --table\n");
    return 2;
  }
  return run(argv[1], argc == 3 ? argv[2] : "");
}
