/* Runs the misuse table, each function in a separate process that continues after a case that
 * killed it, and prints it.
 *
 *   misuse_suite [-v] [FUNCTION]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "misuse.h"

#ifdef __SANITIZE_ADDRESS__
/* A tensor of 2^47 bytes is more than the sanitizer gives: like any other malloc it is to say so
 * and not to end the process. */
const char* __asan_default_options(void);
const char* __asan_default_options(void) {
  return "allocator_may_return_null=1";
}
#endif

enum { FUNCTIONS = 512, SECONDS_A_CASE = 60 };

/* Shared by the parent and the processes that run the cases. */
static struct shared {
  int next, failed, in_outer;
  char now[256];
  int tried[FUNCTIONS][CLASS_COUNT], wrong[FUNCTIONS][CLASS_COUNT];
} * shared;
static int verbose;

static void note(const misuse_function* f, const char* what, int cls) {
  snprintf(shared->now, sizeof shared->now, "%s, %s: %s", f->name, what, misuse_class_names[cls]);
  ++shared->tried[f - misuse_functions][cls];
  if (verbose) fprintf(stderr, "%s\n", shared->now);
  alarm(SECONDS_A_CASE);
}

static void wrong(const misuse_function* f, int cls, const char* why) {
  ++shared->failed;
  ++shared->wrong[f - misuse_functions][cls];
  printf("failed: %s: %s\n", shared->now, why);
  fflush(stdout);
}

/* Whether the answer is one that the documentation promises. */
static void judge(const misuse_function* f, int cls, int expect, trafo_error* error) {
  char why[512];
  if (error) {
    const int32_t code = trafo_error_code(error);
    snprintf(why, sizeof why, "%s: %s [%s]", trafo_error_code_name(code),
             trafo_error_message(error), trafo_error_origin(error));
    if (code <= 0 || code == TRAFO_INTERNAL || code > TRAFO_PEER_LOST ||
        !trafo_error_message(error)[0] || !trafo_error_origin(error)[0] || expect == ACCEPTED)
      wrong(f, cls, why);
    else if (verbose)
      fprintf(stderr, "    %s\n", why);
    trafo_error_free(error);
  } else if (expect == REFUSED) {
    wrong(f, cls, "was accepted");
  }
}

static void call_good(const misuse_function* f, void* arguments, const char* when) {
  f->good(arguments);
  trafo_error* error = f->run(arguments);
  if (error) {
    char why[512];
    snprintf(why, sizeof why, "%s: %s [%s]", when, trafo_error_message(error),
             trafo_error_origin(error));
    wrong(f, CLASS_valid, why);
    trafo_error_free(error);
  }
  f->clean(arguments);
}

/* Wrong arguments, from variant shared->next on. After each of them the same call with good ones
 * works. */
static void run_arguments(const misuse_function* f) {
  void* arguments = calloc(1, f->argument_bytes);
  if (shared->next == 0) note(f, "good arguments", CLASS_valid);
  call_good(f, arguments, "good arguments");
  while (shared->next < f->variant_count) {
    const misuse_variant* v = &f->variants[shared->next];
    f->good(arguments);
    const int number = shared->next++;
    note(f, v->parameter, v->cls);
    f->bend(arguments, number);
    judge(f, v->cls, v->expect, f->run(arguments));
    if (v->cls == CLASS_freed_handle && !successors_live())
      wrong(f, v->cls, "a handle that was made later is not as it was");
    f->clean(arguments);
    call_good(f, arguments, "good arguments afterwards");
  }
  free(arguments);
}

/* ---- Calls from inside a callback ---- */

static const misuse_function* inner;
static void* inner_arguments;
static int inner_expect, inner_done;

static void call_inner(void) {
  if (inner_done) return;
  inner_done = 1;
  judge(inner, CLASS_in_callback, inner_expect, inner->run(inner_arguments));
}

static int32_t event_calls(void* u, const trafo_event* event) {
  call_inner();
  return event_ignored(u, event);
}
static double rate_calls(void* u, int64_t update, double scheduled) {
  call_inner();
  return rate_same(u, update, scheduled);
}
static int32_t batch_calls(void* u, int64_t index, trafo_batch* out) {
  call_inner();
  return batch_words(u, index, out);
}
static int32_t pair_calls(void* u, int64_t index, trafo_string_view* source,
                          trafo_string_view* target) {
  call_inner();
  return pair_words(u, index, source, target);
}
static int32_t write_calls(void* u, const uint8_t* data, size_t bytes) {
  call_inner();
  return write_taken(u, data, bytes);
}
static int32_t read_calls(void* u, uint8_t* data, size_t capacity, size_t* out) {
  call_inner();
  return read_model(u, data, capacity, out);
}
static int32_t checkpoint_calls(void* u, uint8_t* data, size_t capacity, size_t* out) {
  call_inner();
  return read_checkpoint(u, data, capacity, out);
}
static int32_t region_calls(void* u, trafo_context* context, const trafo_tensor* const* in,
                            size_t n, trafo_tensor** out, size_t m) {
  call_inner();
  return region_copies(u, context, in, n, out, m);
}
static void free_calls(void* u) {
  (void)u;
  call_inner();
}
static void deleter_calls(struct DLManagedTensorVersioned* managed) {
  (void)managed;
  call_inner();
}

static trafo_error* in_event(void) {
  int32_t stop;
  return trafo_trainer_run(w.trainer, 1, NULL, event_calls, NULL, &stop);
}
static trafo_error* in_rate(void) {
  trafo_step_result step;
  trafo_error* error = trafo_trainer_set_rate(w.trainer, rate_calls, NULL, NULL);
  return error ? error : trafo_trainer_step(w.trainer, NULL, &step);
}
static trafo_error* in_batches(void) {
  trafo_step_result step;
  trafo_error* error = trafo_trainer_set_batches(w.trainer, batch_calls, NULL, NULL);
  return error ? error : trafo_trainer_step(w.trainer, NULL, &step);
}
static trafo_error* in_pairs(void) {
  trafo_corpus* corpus = NULL;
  trafo_string_view source, target;
  trafo_error* error = trafo_corpus_from_function(3, 1, pair_calls, NULL, NULL, &corpus);
  if (!error) error = trafo_corpus_get_pair(corpus, 1, &source, &target);
  trafo_corpus_free(corpus);
  return error;
}
static trafo_error* in_pairs_of_a_run(void) {
  trafo_corpus* corpus = NULL;
  trafo_trainer* trainer = NULL;
  trafo_model* model = fresh(KIND_trafo_model);
  trafo_step_result step;
  trafo_trainer_options options;
  must(trafo_trainer_options_init(&options, sizeof options));
  trainer_settings(&options);
  trafo_error* error = trafo_corpus_from_function(3, 1, pair_calls, NULL, NULL, &corpus);
  if (!error)
    error = trafo_trainer_new(model, w.tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer);
  if (!error) error = trafo_trainer_step(trainer, NULL, &step);
  trafo_trainer_free(trainer);
  trafo_corpus_free(corpus);
  trafo_model_free(model);
  return error;
}
static trafo_error* in_region(void) {
  trafo_tensor* out = NULL;
  const trafo_tensor* in[] = {w.leaf};
  trafo_error* error = trafo_checkpoint(w.context, region_calls, NULL, NULL, in, 1, &out, 1);
  trafo_tensor_free(out);
  return error;
}
static trafo_error* in_backward(void) {
  trafo_tensor *out = NULL, *loss = NULL;
  const trafo_tensor* in[] = {w.leaf};
  inner_done = 1; /* not when the region runs forward */
  trafo_error* error = trafo_checkpoint(w.context, region_calls, NULL, NULL, in, 1, &out, 1);
  if (!error) error = trafo_op_sum(w.context, out, &loss);
  inner_done = 0;
  if (!error) error = trafo_backward(w.context, loss, NULL);
  trafo_tensor_free(out);
  trafo_tensor_free(loss);
  return error;
}
static trafo_error* in_gradcheck(void) {
  trafo_gradcheck_result result;
  const trafo_tensor* in[] = {w.leaf};
  return trafo_gradcheck(w.context, region_calls, NULL, in, 1, 1, 1e-6, 1e-5, 1e-3, &result, NULL);
}
static trafo_error* in_model_write(void) {
  return trafo_model_write(w.model, write_calls, NULL);
}
static trafo_error* in_model_read(void) {
  trafo_model* model = NULL;
  trafo_error* error = trafo_model_read(w.context, read_calls, NULL, TRAFO_FLOAT32, &model);
  trafo_model_free(model);
  return error;
}
static trafo_error* in_tokenizer_write(void) {
  return trafo_tokenizer_write(w.tokenizer, write_calls, NULL);
}
static trafo_error* in_trainer_write(void) {
  return trafo_trainer_write(w.trainer, write_calls, NULL);
}
static trafo_error* in_trainer_read(void) {
  return trafo_trainer_read(w.trainer, checkpoint_calls, NULL);
}
static trafo_error* in_user_data_free(void) {
  trafo_error* error = trafo_trainer_set_rate(w.trainer, rate_same, NULL, free_calls);
  return error ? error : trafo_trainer_set_rate(w.trainer, NULL, NULL, NULL);
}
static trafo_error* in_deleter(void) {
  struct DLManagedTensorVersioned managed;
  int64_t shape[8];
  trafo_tensor* out = NULL;
  good_dlpack(&managed, shape);
  managed.deleter = deleter_calls;
  trafo_error* error = trafo_tensor_from_dlpack(w.context, &managed, TRAFO_COPY_ALWAYS, &out);
  trafo_tensor_free(out);
  return error;
}

static const struct outer {
  const char* name;
  trafo_error* (*run)(void);
  int trainer; /* the trainer is at work meanwhile */
} outers[] = {
    {"a progress callback", in_event, 1},
    {"a rate callback", in_rate, 1},
    {"a batch callback", in_batches, 1},
    {"a pair callback", in_pairs, 0},
    {"a pair callback of a run", in_pairs_of_a_run, 0},
    {"a region", in_region, 0},
    {"a region in backward", in_backward, 0},
    {"a region of gradcheck", in_gradcheck, 0},
    {"a writer of a model", in_model_write, 0},
    {"a reader of a model", in_model_read, 0},
    {"a writer of a tokenizer", in_tokenizer_write, 0},
    {"a writer of a trainer", in_trainer_write, 1},
    {"a reader of a trainer", in_trainer_read, 1},
    {"user_data_free", in_user_data_free, 0},
    {"a deleter", in_deleter, 0},
};
enum { OUTERS = sizeof outers / sizeof *outers };

static void run_inside(const misuse_function* f, const struct outer* outer, int busy) {
  void* arguments = calloc(1, f->argument_bytes);
  f->good(arguments);
  if (busy) f->busy(arguments);
  inner = f, inner_arguments = arguments, inner_done = 0;
  inner_expect = f->uses_trainer == 1 && outer->trainer ? REFUSED : EITHER;
  char what[64];
  snprintf(what, sizeof what, "inside %s%s", outer->name, busy ? ", of a handle in use" : "");
  note(f, what, CLASS_in_callback);
  /* The outer call ends in whatever way, but with an error that says why. */
  judge(f, CLASS_in_callback, EITHER, outer->run());
  if (!inner_done) wrong(f, CLASS_in_callback, "the callback was not called");
  f->clean(arguments);
  free(arguments);
}

/* Every callback; from one on that kills, the parent goes on after it. _free also of the handle
 * that the outer call uses. */
static void run_callbacks(const misuse_function* f) {
  for (; shared->next < OUTERS;) run_inside(f, &outers[shared->next++], 0);
}
static void run_busy_callback(const misuse_function* f) {
  run_inside(f, &outers[shared->next++], 1);
}

/* ---- Calls from another thread while a run holds the trainer ---- */

static atomic_int held, released;

static int32_t event_waits(void* user_data, const trafo_event* event) {
  (void)user_data, (void)event;
  atomic_store(&held, 1);
  while (!atomic_load(&released)) usleep(50);
  return 0;
}
static int32_t event_notes(void* user_data, const trafo_event* event) {
  (void)user_data, (void)event;
  atomic_store(&held, 1);
  return atomic_load(&released);
}
static trafo_error* end_of_run;
static void* hold_trainer(void* callback) {
  int32_t stop;
  trafo_event_fn* function = callback;
  end_of_run = trafo_trainer_run(w.trainer, *function == event_waits, NULL, *function, NULL, &stop);
  atomic_store(&held, 1);
  return NULL;
}

/* The run waits in its callback (other thread), or continues meanwhile (race). */
static void run_other_thread(const misuse_function* f, int cls, int busy) {
  void* arguments = calloc(1, f->argument_bytes);
  trafo_event_fn callback = cls == CLASS_race ? event_notes : event_waits;
  f->good(arguments);
  if (busy) f->busy(arguments);
  atomic_store(&held, 0), atomic_store(&released, 0);
  note(f,
       busy ? "of a handle that a run uses on another thread" : "while a run is on another thread",
       cls);
  pthread_t thread;
  if (pthread_create(&thread, NULL, hold_trainer, &callback) != 0) _exit(3);
  while (!atomic_load(&held)) usleep(50);
  for (int i = 0; i < (cls == CLASS_race && !f->busy ? 5 : 1); ++i) {
    judge(f, cls, f->uses_trainer ? REFUSED : EITHER, f->run(arguments));
    if (i < 4 && cls == CLASS_race && !f->busy) usleep(200);
  }
  atomic_store(&released, 1);
  pthread_join(thread, NULL);
  judge(f, cls, EITHER, end_of_run);
  end_of_run = NULL;
  f->clean(arguments);
  free(arguments);
}
static void run_held(const misuse_function* f) {
  run_other_thread(f, CLASS_other_thread, 0);
  run_other_thread(f, CLASS_race, 0);
  shared->next = 1;
}
static void run_held_busy(const misuse_function* f) {
  run_other_thread(f, shared->next++ == 0 ? CLASS_other_thread : CLASS_race, 1);
}

/* ---- Processes ---- */

/* In a process with a separate world; again while it dies before `count` cases are done, or has
 * more of them to do alone. */
static void batch(const misuse_function* f, void (*run)(const misuse_function*), int count) {
  shared->next = 0;
  do {
    const int before = shared->next;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      const struct rlimit limit = {(rlim_t)16 << 30, (rlim_t)16 << 30};
      setrlimit(RLIMIT_AS, &limit);
#endif
      alarm(SECONDS_A_CASE);
      snprintf(shared->now, sizeof shared->now, "%s", f->name);
      world_begin();
      run(f);
      alarm(SECONDS_A_CASE);
      snprintf(shared->now, sizeof shared->now, "%s, the end of its process", f->name);
      world_end();
      fflush(NULL);
      exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    char why[128];
    if (WIFSIGNALED(status)) {
      const int number = WTERMSIG(status);
      snprintf(why, sizeof why, "signal %d (%s)", number,
               number == SIGALRM ? "it did not return" : strsignal(number));
      wrong(f, CLASS_valid, why);
    } else if (WEXITSTATUS(status) != 0) {
      snprintf(why, sizeof why, "the process ended with status %d", WEXITSTATUS(status));
      wrong(f, CLASS_valid, why);
    }
    if (shared->next == before) ++shared->next; /* it freed before the case began */
  } while (shared->next < count);
}

static void print_table(void) {
  printf("%-44s", "function");
  for (int c = 0; c < CLASS_COUNT; ++c) printf(" %6.6s", misuse_class_names[c]);
  printf("\n");
  long tried = 0;
  for (int i = 0; i < misuse_function_count; ++i) {
    long of_function = 0;
    for (int c = 0; c < CLASS_COUNT; ++c) of_function += shared->tried[i][c];
    if (of_function == 0) continue;
    tried += of_function;
    printf("%-44s", misuse_functions[i].name);
    for (int c = 0; c < CLASS_COUNT; ++c) {
      char cell[32] = "-";
      if (shared->wrong[i][c])
        snprintf(cell, sizeof cell, "%d!%d", shared->tried[i][c], shared->wrong[i][c]);
      else if (shared->tried[i][c])
        snprintf(cell, sizeof cell, "%d", shared->tried[i][c]);
      printf(" %6s", cell);
    }
    printf("\n");
  }
  printf("suite: misuse  tried: %ld  failed: %d\n", tried, shared->failed);
}

static void only_files(const misuse_function* f) {
  (void)f;
  world_write_files();
  shared->next = 1;
}

int main(int argc, char** argv) {
  const char* only = NULL;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "-v"))
      verbose = 1;
    else
      only = argv[i];
  }
  char folder[] = "/tmp/trafo-misuse-XXXXXX";
  if (misuse_function_count > FUNCTIONS || !mkdtemp(folder)) return 2;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  world_files(folder);
  batch(&misuse_functions[0], only_files, 1);
  for (int i = 0; i < misuse_function_count && shared->failed < 1000; ++i) {
    const misuse_function* f = &misuse_functions[i];
    if (only && strcmp(only, f->name) != 0) continue;
    batch(f, run_arguments, f->variant_count);
    batch(f, run_callbacks, OUTERS);
    batch(f, run_held, 1);
    if (!f->busy) continue;
    batch(f, run_busy_callback, OUTERS);
    batch(f, run_held_busy, 2);
  }
  print_table();
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command) != 0 || shared->failed > 0;
}
