#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <map>

#include "engine/io/atomic_file.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/average.h"
#include "tests/interop/interop_support.h"
#include "tests/reliability/io_faults.h"
#include "tests/reliability/jobs.h"
#include "tests/reliability/saves/save_faults.h"

namespace trafo::testing {
namespace {

// Something that is written to DIRECTORY/out, whole or not at all.
struct Writer {
  std::string name;
  std::function<void(const fs::path& target)> write;
  bool replaces = true;  // something of another content; else there is nothing before
  std::function<void(const fs::path& target)> prepare = {};  // writes that, if it is no file
  // Recovery by the next process, or by this one where even undoing failed.
  std::function<void(const fs::path& target)> recover = {};
};

std::map<std::string, std::string> content_of(const fs::path& directory, bool with_hidden) {
  std::map<std::string, std::string> content;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().lexically_relative(directory);
    if ((name.starts_with('.') || name.find("/.") != name.npos) && !with_hidden) continue;
    content[name] = entry.is_directory() ? "directory" : slurp(entry.path());
  }
  return content;
}

class FileFaults {
 public:
  FileFaults(Suite& suite, const Writer& writer) : suite_(suite), writer_(writer) {
    const TemporaryDirectory folder;
    prepare(folder.path());
    old_ = content_of(folder.path(), true);
    writer_.write(folder / "out");
    new_ = content_of(folder.path(), true);
  }

  int64_t try_all(IoFault fault, bool persistent) {
    for (int64_t at = 1;; ++at) {
      const IoFaultPlan plan{fault, at, persistent};
      if (!(fault == IoFault::kill ? try_killed(plan) : try_failing(plan))) return at - 1;
      suite_.tried();
    }
  }

 private:
  void prepare(const fs::path& folder) const {
    if (writer_.prepare)
      writer_.prepare(folder / "out");
    else if (writer_.replaces)
      spill(folder / "out", "what was there before");
  }
  void recover(const fs::path& folder) const {
    if (writer_.recover) writer_.recover(folder / "out");
  }
  std::string label(const IoFaultPlan& plan) const {
    return concat(writer_.name, ", ", io_fault_name(plan.fault), " at call ", plan.at,
                  plan.persistent ? " and after it" : "");
  }

  bool try_failing(const IoFaultPlan& plan) {
    const TemporaryDirectory folder;
    prepare(folder.path());
    std::optional<Error> error;
    std::string what = label(plan);
    {
      const IoFaults faults(folder.path(), plan);
      try {
        writer_.write(folder / "out");
      } catch (const Error& thrown) {
        error = thrown;
      }
      if (!faults.fired()) return false;
      what += ", " + faults.first_failure();
    }
    if (plan.fault == IoFault::interrupted || plan.fault == IoFault::short_transfer)
      suite_.require(!error, what + ": " + (error ? error->what() : ""));
    if (error)
      suite_.require(error->code() == ErrorCode::io && mentions(*error, folder.path().string()),
                     what + ": the error says " + error->what());
    if (plan.persistent) recover(folder.path());
    check(folder.path(), !error, what);
    return true;
  }

  bool try_killed(const IoFaultPlan& plan) {
    const TemporaryDirectory folder;
    prepare(folder.path());
    const pid_t child = fork();
    if (child == 0) {
      try {
        const IoFaults faults(folder.path(), plan);
        writer_.write(folder / "out");
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    suite_.require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                   label(plan) + ": not killed");
    recover(folder.path());
    check(folder.path(), false, label(plan));
    if (writer_.replaces)
      suite_.require(content_of(folder.path(), true) == new_, label(plan) + ": something is left");
    return true;
  }

  // The target is as it was or as it should be, and is written when nothing fails.
  void check(const fs::path& folder, bool succeeded, const std::string& what) {
    const auto content = content_of(folder, false);
    suite_.require(content == new_ || (!succeeded && content == old_),
                   what + ": the target is neither old nor new");
    if (!writer_.replaces && content == new_) return;  // it may not be written twice
    try {
      writer_.write(folder / "out");
    } catch (const Error& error) {
      suite_.failed(what + ": cannot be written later: " + error.what());
    }
    suite_.require(content_of(folder, false) == new_, what + ": other bytes when written later");
  }

  Suite& suite_;
  const Writer& writer_;
  std::map<std::string, std::string> old_, new_;
};

}  // namespace

void try_files(Suite& suite, bool is_long) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ModelConfig config = tiny_config(Architecture::decoder_lm);
  config.vocabulary = tokenizer().vocab_size();
  const auto model = make_model(*context, config, 5);
  const TemporaryDirectory models;
  save_model(models / "a", *context, *model);
  save_model(models / "b", *context, *make_model(*context, config, 6));
  const std::vector<fs::path> paths{models / "a", models / "b"};

  std::vector<Writer> writers{
      {"model", [&](const fs::path& to) { save_model(to, *context, *model); }},
      {"text", [&](const fs::path& to) { write_file_atomically(to, tokenizer().serialized()); }},
      {"average", [&](const fs::path& to) { average_models(paths, to); }},
      {"gpt2 export",
       [&](const fs::path& to) {
         export_model(*context, *model, tokenizer(), ExportFormat::hf_gpt2, to);
       },
       false},
  };
  const auto save_checkpoint = [](const fs::path& to, const std::string& text) {
    const CheckpointFile file{"state.json", [&](ByteSink& sink) { sink.write(text); }};
    CheckpointDirectory(to).save(5, std::span(&file, 1));
  };
  Writer checkpoint{"checkpoint", [&](const fs::path& to) { save_checkpoint(to, "new"); }};
  checkpoint.prepare = [&](const fs::path& to) { save_checkpoint(to, "old"); };
  checkpoint.recover = [](const fs::path& to) { CheckpointDirectory(to).remove_leftovers(); };
  writers.push_back(std::move(checkpoint));
  if (is_long)
    writers.push_back({"ctranslate2 export",
                       [&](const fs::path& to) {
                         export_model(*context, *model, tokenizer(), ExportFormat::ctranslate2, to);
                       },
                       false});
  const auto try_writer = [](Suite& own, const Writer& writer) {
    FileFaults faults(own, writer);
    for (const IoFault fault : kIoFaults) {
      const bool lasts = fault != IoFault::interrupted && fault != IoFault::kill;
      for (const bool persistent : {false, true}) {
        if (persistent && !lasts) continue;
        const int64_t calls = faults.try_all(fault, persistent);
        own.require(calls > 0, writer.name + ": there is no call to fail");
        std::printf("%s, %s%s: %lld calls\n", writer.name.c_str(), io_fault_name(fault),
                    persistent ? " from then on" : "", static_cast<long long>(calls));
      }
    }
  };
  Jobs jobs(suite);
  for (const Writer& writer : writers)
    jobs.start(writer.name, [&](Suite& own) { try_writer(own, writer); });
}

}  // namespace trafo::testing
