// Suite 6: memory runs out. Of every call of a life with the library, from creating to freeing,
// the i-th allocation fails, for i = 1, 2, ... until the call goes through untouched: that one
// alone, and that one and all after it. Each time the call says that memory ran out, nothing is
// lost or leaked, and what survives trains on bitwise as if nothing had happened.
//
// Without a flag about a hundred allocations a call fail. --long: of those that the same calls led
// to, eight; --all: every one. --only NAME: one phase. --share K/N: the K-th of N equal parts of
// the places, for several runs. As many processes at a time as there are processors (TRAFO_JOBS:
// another number). TRAFO_TEST_DEVICE=cuda: device memory runs out on a real card
// (TRAFO_CUDA_LIBRARY then names its plugin) instead of on the stand-in.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/reliability/allocation_sweep.h"
#include "tests/reliability/jobs.h"
#include "tests/reliability/own_network.h"

namespace {

using namespace trafo::testing;
namespace fs = std::filesystem;

struct Directory {
  Directory() {
    // Memory, where there is such a directory: what is tried here is not the disk.
    const fs::path shared = "/dev/shm";
    std::string pattern =
        ((fs::is_directory(shared) ? shared : fs::temp_directory_path()) / "trafo-memory-XXXXXX")
            .string();
    if (!mkdtemp(pattern.data())) std::exit(3);
    path = pattern;
  }
  ~Directory() {
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().filename().string().starts_with('.'))
        failed("leaves " + entry.path().string());
    fs::remove_all(path);
  }
  std::string file(const char* name) const { return (path / name).string(); }
  fs::path path;
};

// --- phases ---

WorkloadOptions settings() {
  WorkloadOptions options;
  options.threads = 2;
  options.smoothing = 0.01;
  if (on_device) options.device = TRAFO_DEVICE_CUDA;
  return options;
}

// For calls that do the same for each pair or subword, again and again: every allocation still
// fails in turn, and there are fewer.
WorkloadOptions few_pairs() {
  WorkloadOptions options = settings();
  options.pairs = 4;
  return options;
}

void creating() {
  Workload w(few_pairs());
  const auto nothing = [] {};
  make_and_undo(
      "context", [&] { return w.make_context(); }, nothing, [&] { w.free_all(); });
  make_and_undo(
      "corpus", [&] { return w.make_corpus(); }, nothing, [&] { w.free_all(); });
  must(w.make_context());
  must(w.make_corpus());
  make_and_undo(
      "tokenizer", [&] { return w.make_tokenizer(); }, nothing,
      [&] {
        trafo_tokenizer_free(w.tokenizer);
        w.tokenizer = nullptr;
      });
  must(w.make_tokenizer());
  make_and_undo(
      "model", [&] { return w.make_model(); }, nothing,
      [&] {
        trafo_model_free(w.model);
        w.model = nullptr;
      });
  must(w.make_model());
  make_and_undo(
      "trainer", [&] { return w.make_trainer(); }, nothing, [&] { w.free_trainer(); });
  Reference reference(few_pairs());
  must(w.make_trainer());
  reference.compare(w, 20);
  reference.compare_weights(w);
}

void files() {
  Directory directory;
  Workload w(settings());
  w.make_all();
  trafo_step_result step{};
  for (int i = 0; i < 3; ++i) must(w.step(&step));
  const std::string model = directory.file("model.safetensors"), spm = directory.file("vocab.spm"),
                    table = directory.file("table");
  const std::string weights = w.weights();
  const auto nothing = [] {};
  make_and_undo(
      "model_save", [&] { return trafo_model_save(w.model, model.data(), model.size()); }, nothing,
      nothing);
  trafo_model* loaded = nullptr;
  make_and_undo(
      "model_load",
      [&] { return trafo_model_load(w.context, model.data(), model.size(), &loaded); }, nothing,
      [&] {
        trafo_model_free(loaded);
        loaded = nullptr;
      });
  must(w.step(&step));
  make_and_undo(
      "model_load_weights",
      [&] { return trafo_model_load_weights(w.model, w.tokenizer, model.data(), model.size()); },
      [&] {
        if (w.weights() != weights) failed("the weights are not the file's");
      },
      nothing);
  make_and_undo(
      "tokenizer_save", [&] { return trafo_tokenizer_save(w.tokenizer, spm.data(), spm.size()); },
      nothing, nothing);
  trafo_tokenizer* tokenizer = nullptr;
  make_and_undo(
      "tokenizer_load", [&] { return trafo_tokenizer_load(spm.data(), spm.size(), &tokenizer); },
      nothing,
      [&] {
        trafo_tokenizer_free(tokenizer);
        tokenizer = nullptr;
      });
  const std::string mean = directory.file("mean.safetensors");
  const trafo_string_view both[] = {{model.data(), model.size()}, {model.data(), model.size()}};
  make_and_undo(
      "average_models", [&] { return trafo_average_models(both, 2, mean.data(), mean.size()); },
      nothing, nothing);
  trafo_shortlist* shortlist = nullptr;
  make_and_undo(
      "shortlist",
      [&]() -> trafo_error* {
        if (trafo_error* error =
                trafo_shortlist_learn(w.tokenizer, source_lines().data(), target_lines().data(),
                                      source_lines().size(), 0, nullptr, &shortlist))
          return error;
        return trafo_shortlist_save(shortlist, table.data(), table.size());
      },
      nothing,
      [&] {
        trafo_shortlist_free(shortlist);
        shortlist = nullptr;
      });
  const std::string tsv = directory.file("pairs.tsv");
  FILE* file = std::fopen(tsv.c_str(), "w");
  for (size_t i = 0; i < source_lines().size(); ++i)
    std::fprintf(file, "%s\t%s\n", source_lines()[i].data, target_lines()[i].data);
  std::fclose(file);
  trafo_corpus* corpus = nullptr;
  trafo_corpus_options on_disk;
  must(trafo_corpus_options_init(&on_disk, sizeof on_disk));
  const trafo_string_view path{tsv.data(), tsv.size()};
  for (const int64_t memory : {on_disk.memory_bytes, int64_t{0}}) {
    on_disk.memory_bytes = memory;
    make_and_undo(
        memory ? "corpus_open" : "corpus_open on disk",
        [&] { return trafo_corpus_open(&path, 1, &on_disk, nullptr, &corpus); }, nothing,
        [&] {
          trafo_corpus_free(corpus);
          corpus = nullptr;
        });
  }
  const std::string exported = directory.file("exported");
  make_and_undo(
      "model_export",
      [&] {
        return trafo_model_export(w.model, w.tokenizer, TRAFO_EXPORT_CTRANSLATE2,
                                  TRAFO_EXPORT_WEIGHTS_INT8, exported.data(), exported.size(),
                                  nullptr, nullptr);
      },
      nothing, [&] { fs::remove_all(exported); });
}

void first_steps() {
  Workload w(settings());
  w.make_all();
  Reference reference(settings());
  sweep(
      "first step",
      [&] {
        w.free_trainer();
        trafo_model_free(w.model);
        w.model = nullptr;
        must(w.make_model());
        must(w.make_trainer());
        reference.restart();
      },
      [&] {
        trafo_step_result step{};
        return w.step(&step);
      },
      [&](bool) {
        reference.compare(w, 2);
        reference.compare_weights(w);
      });
}

// Several updates a call, so that ends of epochs and their shuffles are among them.
void steps() {
  for (const int32_t delay : {1, 3}) {
    WorkloadOptions options = settings();
    options.gradient_accumulation = delay;
    Workload w(options);
    w.make_all();
    Reference reference(options);
    int32_t stop = 0;
    sweep(
        delay == 1 ? "steps" : "steps of 3 batches", [] {},
        [&] {
          const int64_t updates = 9 / delay;
          return trafo_trainer_run(w.trainer, updates, nullptr, nullptr, nullptr, &stop);
        },
        [&](bool) { reference.compare(w); });
    reference.compare(w, 20);
    reference.compare_weights(w);
  }
}

void saving() {
  Directory directory;
  WorkloadOptions options = settings();
  options.run_directory = directory.file("run");
  Workload w(options);
  w.make_all();
  Reference reference(options);
  sweep(
      "save", [&] { reference.compare(w); }, [&] { return trafo_trainer_save(w.trainer); },
      [&](bool refused) {
        if (!refused) return;
        reference.compare(w);
        must(trafo_trainer_save(w.trainer));  // which also removes what could not be removed
      });
  reference.compare(w, 3);
  must(trafo_trainer_save(w.trainer));
  const auto resume = [&]() -> trafo_error* {
    w.free_trainer();
    return w.make_trainer();
  };
  sweep(
      "resume", [&] { w.free_trainer(); }, resume,
      [&](bool refused) {
        if (refused) must(resume());
      });
  reference.compare(w, 20);
  reference.compare_weights(w);
}

// A run as bytes, and back: what could not be read whole has changed nothing.
void streams() {
  using Bytes = std::vector<uint8_t>;
  struct Reader {
    const Bytes* bytes;
    size_t at;
  };
  const auto write = [](void* to, const uint8_t* data, size_t count) -> int32_t {
    // The program's own memory is not what runs out here.
    auto& bytes = *static_cast<Bytes*>(to);
    if (bytes.size() + count > bytes.capacity()) return 1;
    bytes.insert(bytes.end(), data, data + count);
    return 0;
  };
  const auto read = [](void* from, uint8_t* data, size_t capacity, size_t* count) -> int32_t {
    auto& reader = *static_cast<Reader*>(from);
    *count = std::min(capacity, reader.bytes->size() - reader.at);
    std::copy_n(reader.bytes->begin() + static_cast<std::ptrdiff_t>(reader.at), *count, data);
    reader.at += *count;
    return 0;
  };
  Workload w(settings());
  w.make_all();
  Reference reference(settings());
  reference.compare(w, 3);
  Bytes bytes, again;
  bytes.reserve(1 << 20);
  again.reserve(1 << 20);
  must(trafo_trainer_write(w.trainer, write, &bytes));
  sweep(
      "trainer_write", [&] { again.clear(); },
      [&] { return trafo_trainer_write(w.trainer, write, &again); },
      [&](bool refused) {
        if (!refused && again.empty()) failed("nothing was written");
        if (refused) reference.compare(w);
      });
  Reader reader{&bytes, 0};
  sweep(
      "trainer_read",
      [&] {
        reference.compare(w);
        reader.at = 0;
      },
      [&] { return trafo_trainer_read(w.trainer, read, &reader); },
      [&](bool refused) {
        if (!refused) reference.go_back(read, bytes);
        reference.compare(w, 2);
        reference.compare_weights(w);
      });
}

void translating() {
  Workload w(few_pairs());
  w.make_all();
  trafo_step_result step{};
  for (int i = 0; i < 5; ++i) must(w.step(&step));
  Reference reference(few_pairs());
  reference.compare(w);
  trafo_translations* out = nullptr;
  const auto drop = [&] {
    trafo_translations_free(out);
    out = nullptr;
  };
  for (const int32_t beam : {1, 3}) {
    must(w.translate(beam, &out));
    const std::string expected = Workload::text_of(out);
    drop();
    make_and_undo(
        beam == 1 ? "translate greedily" : "translate with a beam",
        [&] { return w.translate(beam, &out); },
        [&] {
          if (Workload::text_of(out) != expected) failed("another translation");
        },
        drop);
  }
  double log_probability[2]{};
  make_and_undo(
      "score",
      [&] {
        return trafo_score(w.model, w.tokenizer, source_lines().data(), target_lines().data(), 2,
                           nullptr, log_probability, nullptr);
      },
      [] {}, [] {});
  std::array<trafo_metric_value, TRAFO_METRIC_COUNT> metrics{};
  int64_t count = 0;
  must(trafo_trainer_validate(w.trainer, nullptr, metrics.data(), TRAFO_METRIC_COUNT, &count));
  make_and_undo(
      "validate",
      [&] {
        std::array<trafo_metric_value, TRAFO_METRIC_COUNT> again{};
        int64_t again_count = 0;
        trafo_error* error = trafo_trainer_validate(w.trainer, nullptr, again.data(),
                                                    TRAFO_METRIC_COUNT, &again_count);
        const auto same = [](const trafo_metric_value& a, const trafo_metric_value& b) {
          return a.metric == b.metric && a.value == b.value;
        };
        if (!error && (again_count != count || !std::ranges::equal(again, metrics, same)))
          failed("another validation");
        return error;
      },
      [] {}, [] {});
  reference.compare(w, 5);
  reference.compare_weights(w);
  w.free_trainer();
  must(w.make_model());
  trafo_translations* prepared = nullptr;
  make_and_undo(
      "prepare and translate",
      [&]() -> trafo_error* {
        if (trafo_error* error = trafo_model_prepare_inference(w.model)) return error;
        return w.translate(2, &prepared);
      },
      [] {},
      [&] {
        trafo_translations_free(prepared);
        prepared = nullptr;
      });
}

void own_networks() {
  OwnNetwork survivor(settings().device), reference(settings().device);
  const auto compare = [&] {
    if (survivor.weight() != reference.weight() || survivor.norm() != reference.norm())
      failed("the network differs from the lone one");
  };
  sweep(
      "ops and backward", [] {}, [&] { return survivor.gradient(); },
      [&](bool refused) {
        if (refused) {
          survivor.forget();
          must(survivor.gradient());
        }
        must(reference.gradient());
        must(survivor.update());
        must(reference.update());
        compare();
      });
  sweep(
      "adamw_step", [&] { must(survivor.gradient()); }, [&] { return survivor.update(); },
      [&](bool refused) {
        if (refused) must(survivor.update());
        must(reference.gradient());
        must(reference.update());
        compare();
      });
}

// Freeing needs no memory.
void freeing() {
  std::snprintf(tally->call, sizeof tally->call, "free");
  Workload w(settings());
  for (int round = 0; round < 6; ++round) {
    const int64_t before = live_blocks();
    w.make_all();
    trafo_step_result step{};
    trafo_translations* out = nullptr;
    must(w.step(&step));
    must(w.translate(2, &out));
    tally->at = round;
    ++tally->tried;
    injector.arm(1, true);
    trafo_translations_free(out);
    w.free_all();
    injector.disarm();
    if (round > 2 && live_blocks() > before)
      failed("leaks " + std::to_string(live_blocks() - before) + " blocks");
  }
}

struct Phase {
  const char* name;
  void (*run)();
};
constexpr int64_t kParts = 24;  // of a phase in the long form
constexpr Phase kPhases[] = {{"creating", creating},       {"files", files},
                             {"first_steps", first_steps}, {"steps", steps},
                             {"saving", saving},           {"streams", streams},
                             {"translating", translating}, {"own_networks", own_networks},
                             {"freeing", freeing}};

void use_device_faults() {
  on_device = true;
  void* plugin = dlopen(std::getenv("TRAFO_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (!plugin) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(3);
  }
  injector.arm = reinterpret_cast<decltype(injector.arm)>(dlsym(plugin, "trafo_fault_arm"));
  injector.disarm =
      reinterpret_cast<decltype(injector.disarm)>(dlsym(plugin, "trafo_fault_disarm"));
  injector.seen = reinterpret_cast<decltype(injector.seen)>(dlsym(plugin, "trafo_fault_seen"));
  if (!injector.arm || !injector.disarm || !injector.seen) std::exit(3);
}

void run_phase(const Phase& phase, bool device) {
  const pid_t child = fork();
  if (child == 0) {
    if (device) use_device_faults();
    // Handles of many addresses: the registry's tables have grown before anything is counted.
    std::vector<trafo_cancel*> handles(8192);
    for (trafo_cancel*& handle : handles) must(trafo_cancel_new(&handle));
    for (trafo_cancel* handle : handles) trafo_cancel_free(handle);
    phase.run();
    std::exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) std::exit(3);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  failed(WIFSIGNALED(status)
             ? std::string("the process freed of ") + strsignal(WTERMSIG(status))
             : "the process ended with status " + std::to_string(WEXITSTATUS(status)));
}

// One phase, or a share of its places, in a separate process.
void start_phase(Jobs& jobs, const Phase& phase, bool device, int64_t part, int64_t parts) {
  const std::string name = std::string(device ? "device_" : "") + phase.name;
  jobs.start(name, [&](Suite& suite) {
    tally = static_cast<Tally*>(
        mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (tally == MAP_FAILED) std::exit(3);
    share = part;
    shares = parts;
    const auto begin = std::chrono::steady_clock::now();
    run_phase(phase, device);
    suite.tried(tally->tried);
    suite.add_failures(tally->failed);
    std::printf("%-22s %lld/%lld %8lld tries, %.1f s\n", name.c_str(),
                static_cast<long long>(part + 1), static_cast<long long>(parts),
                static_cast<long long>(tally->tried),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  int64_t own_share = 0, own_shares = 0;  // 0: all
  bool card = false, host = true;
  if (const char* wanted = std::getenv("TRAFO_TEST_DEVICE"))
    card = std::strcmp(wanted, "cuda") == 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--long") == 0)
      places = Places::of_each_path;
    else if (std::strcmp(argv[i], "--all") == 0)
      places = Places::all;
    else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc)
      only = argv[++i];
    else if (std::strcmp(argv[i], "--share") == 0 && i + 1 < argc &&
             std::sscanf(argv[++i], "%" SCNd64 "/%" SCNd64, &own_share, &own_shares) == 2 &&
             own_share >= 1 && own_share <= own_shares)
      continue;
    else
      return 2;
  }
  if (card) {
    // The fault plugin wraps the card's own.
    const char* own = std::getenv("TRAFO_CUDA_LIBRARY");
    if (!own) {
      std::fprintf(stderr, "TRAFO_CUDA_LIBRARY must name the plugin of the card\n");
      return 2;
    }
    setenv("TRAFO_FAULTS_BEFORE", own, 1);
    host = false;
  }
  setenv("TRAFO_CUDA_LIBRARY", TRAFO_FAULT_PLUGIN, 1);
  Suite suite("allocation_failure");
  {
    Jobs jobs(suite);
    // Each place is a separate try: the long form cuts a phase into pieces for several processors.
    const int64_t parts = own_shares > 0 ? own_shares : places != Places::some ? kParts : 1;
    for (const bool device : {false, true}) {
      if (!device && !host) continue;
      for (const Phase& phase : kPhases) {
        if (!only.empty() && only != std::string(device ? "device_" : "") + phase.name) continue;
        const int64_t shares_of_it = phase.run == freeing ? 1 : parts;
        for (int64_t part = 0; part < shares_of_it; ++part)
          if (own_shares == 0 || part + 1 == own_share)
            start_phase(jobs, phase, device, part, shares_of_it);
      }
    }
  }
  return suite.finish();
}
