// Suite 7: many threads. Eight trainers handed round between sixteen calling threads, calls that
// collide on one trainer, one model that serves translations to all threads, and handles that are
// made and freed in races. Every number is bitwise equal to a lone run's; meant to run under the
// thread sanitizer as well (preset tsan). Without a flag 12 updates a trainer and 250 races a
// thread; --long: 80 updates, 3,000 races.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/reliability/workload.h"

namespace {

using namespace trafo::testing;

constexpr int kTrainers = 8;
constexpr int kThreads = 16;

std::atomic<int64_t> tried{0}, failures{0};

void expect(bool good, const char* what) {
  ++tried;
  if (good) return;
  ++failures;
  std::printf("concurrency: %s\n", what);
}

void on_all_threads(const auto& work) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
}

// Record of a run, update by update, and its end.
struct Record {
  std::vector<double> losses, norms;
  std::string weights, text;
  double bleu = 0, ce = 0;
  bool operator==(const Record&) const = default;
};

WorkloadOptions options_of(int trainer) {
  WorkloadOptions options;
  options.seed = static_cast<uint64_t>(trainer) + 1;
  options.threads = trainer % 3 + 1;
  options.smoothing = trainer % 2 ? 0.01 : 0;
  options.gradient_accumulation = trainer % 4 + 1;
  return options;
}

bool step(Workload& run, Record& record) {
  trafo_step_result result{};
  must(run.step(&result));
  record.losses.push_back(result.loss);
  record.norms.push_back(result.grad_norm);
  return result.skipped == 0;
}

void finish(Workload& run, Record& record) {
  trafo_metric_value metrics[TRAFO_METRIC_COUNT];
  int64_t count = 0;
  must(trafo_trainer_validate(run.trainer, nullptr, metrics, TRAFO_METRIC_COUNT, &count));
  for (int64_t i = 0; i < count; ++i) {
    if (metrics[i].metric == TRAFO_METRIC_CE) record.ce = metrics[i].value;
    if (metrics[i].metric == TRAFO_METRIC_BLEU) record.bleu = metrics[i].value;
  }
  trafo_translations* translations = nullptr;
  must(run.translate(2, &translations));
  record.text = Workload::text_of(translations);
  trafo_translations_free(translations);
  record.weights = run.weights();
}

// Any thread takes whatever trainer is next: it moves between threads with every update.
void shared_trainers(int updates) {
  std::vector<Record> lone(kTrainers), shared(kTrainers);
  for (int i = 0; i < kTrainers; ++i) {
    Workload run(options_of(i));
    run.make_all();
    for (int update = 0; update < updates; ++update) step(run, lone[static_cast<size_t>(i)]);
    finish(run, lone[static_cast<size_t>(i)]);
  }
  struct Turn {
    explicit Turn(int number) : run(options_of(number)) {}
    std::mutex mutex;
    Workload run;
    int updates = 0;
  };
  std::vector<std::unique_ptr<Turn>> turns;
  for (int i = 0; i < kTrainers; ++i) turns.push_back(std::make_unique<Turn>(i));
  std::atomic<int> next{0};
  on_all_threads([&](int) {
    while (true) {
      const int number = next.fetch_add(1);
      if (number >= kTrainers * (updates + 2)) return;
      const auto index = static_cast<size_t>(number % kTrainers);
      Turn& turn = *turns[index];
      const std::lock_guard lock(turn.mutex);
      // The first call makes the handles, the last one ends the run, both on any thread.
      if (turn.updates == 0)
        turn.run.make_all();
      else if (turn.updates <= updates)
        step(turn.run, shared[index]);
      else
        finish(turn.run, shared[index]);
      ++turn.updates;
    }
  });
  for (size_t i = 0; i < shared.size(); ++i) {
    expect(shared[i].weights == lone[i].weights, "weights differ from the lone run's");
    expect(shared[i].text == lone[i].text, "translations differ from the lone run's");
    expect(shared[i].ce == lone[i].ce && shared[i].bleu == lone[i].bleu,
           "a validation differs from the lone run's");
    for (size_t update = 0; update < lone[i].losses.size(); ++update)
      expect(shared[i].losses.at(update) == lone[i].losses[update] &&
                 shared[i].norms.at(update) == lone[i].norms[update],
             "an update differs from the lone run's");
  }
}

// All threads call one trainer at once: a call that finds it at work is refused and changes
// nothing.
void colliding_calls(int updates) {
  Workload run(options_of(1)), lone(options_of(1));
  run.make_all();
  lone.make_all();
  std::atomic<int64_t> done{0};
  on_all_threads([&](int) {
    trafo_step_result result{};
    for (int i = 0; i < updates; ++i) {
      trafo_error* error = run.step(&result);
      if (!error) ++done;
      expect(!error || trafo_error_code(error) == TRAFO_INVALID_ARGUMENT,
             "a call that collides gives another status than INVALID_ARGUMENT");
      trafo_error_free(error);
    }
  });
  expect(done > 0, "no call got through");
  trafo_step_result result{};
  for (int64_t i = 0; i < done; ++i) must(lone.step(&result));
  expect(run.weights() == lone.weights(), "colliding calls have changed the run");
}

// One model without a trainer, prepared for inference: its calls are serialised. The threads share
// the tokenizer without a lock.
void serving(int rounds) {
  Workload run(options_of(0));
  run.make_all();
  trafo_step_result result{};
  for (int i = 0; i < 5; ++i) must(run.step(&result));
  run.free_trainer();
  must(trafo_model_prepare_inference(run.model));
  trafo_translations* expected = nullptr;
  must(run.translate(3, &expected));
  const std::string text = Workload::text_of(expected);
  int32_t* expected_ids = nullptr;
  size_t expected_count = 0;
  const trafo_string_view line = source_lines()[3];
  must(trafo_tokenizer_encode(run.tokenizer, line.data, line.length, &expected_ids,
                              &expected_count));
  std::mutex turn;
  on_all_threads([&](int) {
    for (int i = 0; i < rounds; ++i) {
      trafo_translations* translations = nullptr;
      {
        const std::lock_guard lock(turn);
        must(run.translate(3, &translations));
      }
      expect(Workload::text_of(translations) == text, "another thread is served other text");
      expect(Workload::text_of(expected) == text, "shared translations have changed");
      trafo_translations_free(translations);
      int32_t* ids = nullptr;
      size_t count = 0;
      must(trafo_tokenizer_encode(run.tokenizer, line.data, line.length, &ids, &count));
      expect(count == expected_count && std::memcmp(ids, expected_ids, count * sizeof *ids) == 0,
             "a shared tokenizer gives other ids");
      trafo_ids_free(ids);
    }
  });
  trafo_ids_free(expected_ids);
  trafo_translations_free(expected);
}

// Threads make and free in each other's way; every handle is freed twice at once, and only once.
void races(int rounds) {
  std::vector<std::atomic<trafo_cancel*>> slots(kThreads);
  std::atomic<int64_t> made{0};
  on_all_threads([&](int thread) {
    const auto own = static_cast<size_t>(thread);
    for (int i = 0; i < rounds; ++i) {
      trafo_cancel* cancel = nullptr;
      must(trafo_cancel_new(&cancel));
      ++made;
      // A neighbour may take it out and free it while this thread does.
      slots[own].store(cancel);
      trafo_cancel* other = slots[(own + 1) % kThreads].exchange(nullptr);
      trafo_cancel_free(other);
      trafo_cancel_free(slots[own].exchange(nullptr));
      if (i % 8 != 0) continue;
      trafo_context_options options;
      must(trafo_context_options_init(&options, sizeof options));
      options.threads = thread % 3 + 1;
      trafo_context* context = nullptr;
      must(trafo_context_new(&options, &context));
      const float values[] = {1, 2, 3, 4};
      const int64_t shape[] = {2, 2};
      trafo_tensor *tensor = nullptr, *product = nullptr;
      must(trafo_tensor_new(context, TRAFO_FLOAT32, shape, 2, values, sizeof values, &tensor));
      trafo_context_free(context);  // the tensor keeps what it needs
      trafo_error* error = trafo_op_matmul(context, tensor, tensor, 0, 0, &product);
      expect(error != nullptr || product != nullptr, "a freed context gives nothing at all");
      trafo_error_free(error);
      float read[4] = {};
      must(trafo_tensor_read(tensor, read, sizeof read));
      expect(std::memcmp(read, values, sizeof read) == 0, "a tensor has changed");
      trafo_tensor_free(product);
      trafo_tensor_free(tensor);
    }
  });
  expect(made == static_cast<int64_t>(kThreads) * rounds, "a handle could not be made");
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc == 2 && std::strcmp(argv[1], "--long") == 0;
  if (argc > 1 && !all) return 2;
  // The long form is some minutes of sixteen cores under the thread sanitizer.
  const auto part = [](const char* name, void (*run)(int), int rounds) {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t before = tried.load();
    run(rounds);
    std::printf("%-16s %d rounds, %lld tries, %.1f s\n", name, rounds,
                static_cast<long long>(tried.load() - before),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::fflush(stdout);
  };
  part("shared trainers", shared_trainers, all ? 80 : 12);
  part("colliding calls", colliding_calls, all ? 60 : 8);
  part("serving", serving, all ? 30 : 3);
  part("races", races, all ? 3000 : 250);
  std::printf("suite: concurrency  tried: %lld  failed: %lld\n",
              static_cast<long long>(tried.load()), static_cast<long long>(failures.load()));
  return failures != 0;
}
