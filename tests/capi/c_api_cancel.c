// Calls that are cancelled: before they begin, from another thread, and from a function that they
// call. Each may be repeated.
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "capi_check.h"

enum { kLines = kIsSanitized ? 2000 : 20000, kLinesOfAFile = kIsSanitized ? 400000 : 4000000 };
enum { kWords = 12, kLineBytes = kWords * 8, kFew = 6 };

typedef struct Fixture {
  trafo_context* context;
  trafo_cancel* cancel;
  trafo_tokenizer* tokenizer;
  trafo_model* model;
  char* text;
  trafo_string_view* lines;  // kLines of random words
} Fixture;

static void make_lines(Fixture* f) {
  uint64_t state = 1;
  f->text = malloc((size_t)kLines * kLineBytes);
  f->lines = malloc(kLines * sizeof *f->lines);
  for (int i = 0; i < kLines; ++i) {
    char* const line = f->text + (size_t)i * kLineBytes;
    size_t length = 0;
    for (int word = 0; word < kWords; ++word) {
      for (int letter = 0; letter < 6; ++letter) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        line[length++] = (char)('a' + (state >> 33) % 24);
      }
      line[length++] = ' ';
    }
    f->lines[i] = (trafo_string_view){line, length - 1};
  }
}

static trafo_model* new_model(const Fixture* f) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_tokenizer_get_vocabulary(f->tokenizer, &config.vocabulary));
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = 256;
  OK(trafo_model_new(f->context, &config, 1, &model));
  return model;
}

static long wait_ms = 50;

static void* set_soon(void* cancel) {
  const struct timespec wait = {0, wait_ms * 1000 * 1000};
  nanosleep(&wait, NULL);
  return trafo_cancel_set(cancel);  // its error: the counters of the checks are the main thread's
}

// The call is cancelled if the token is set before it, and if another thread sets it meanwhile.
#define CANCELLED(f, call)                                            \
  do {                                                                \
    pthread_t thread;                                                 \
    void* error = NULL;                                               \
    OK(trafo_cancel_set((f)->cancel));                                \
    FAILS((call), TRAFO_CANCELLED, "cancelled");                      \
    OK(trafo_cancel_reset((f)->cancel));                              \
    CHECK(pthread_create(&thread, NULL, set_soon, (f)->cancel) == 0); \
    FAILS((call), TRAFO_CANCELLED, "cancelled");                      \
    CHECK(pthread_join(thread, &error) == 0);                         \
    OK(error);                                                        \
    OK(trafo_cancel_reset((f)->cancel));                              \
  } while (0)

static void check_tokenizers(Fixture* f) {
  static const char* const kinds[] = {"byte-bpe", "sentencepiece"};
  trafo_tokenizer_options options;
  trafo_tokenizer *none = NULL, *again[2] = {NULL, NULL};
  trafo_corpus* corpus = NULL;
  OK(trafo_corpus_new(f->lines, f->lines, kLines, &corpus));
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  for (int kind = 0; kind < 2; ++kind) {
    const size_t count = kind == 1 ? kLines / 5 : kLines;  // SentencePiece takes longer
    options.kind = view(kinds[kind]);
    options.vocabulary = 2000;
    options.soft_limit = 1;
    CANCELLED(f, trafo_tokenizer_train(f->lines, count, &options, f->cancel, &none));
    CHECK(none == NULL);
    // By then the text is read, and SentencePiece trains.
    wait_ms = 300;
    if (kind == 1) CANCELLED(f, trafo_tokenizer_train(f->lines, count, &options, f->cancel, &none));
    wait_ms = 50;
    OK(trafo_cancel_set(f->cancel));
    FAILS(trafo_corpus_train_tokenizer(corpus, &options, f->cancel, &none), TRAFO_CANCELLED,
          "cancelled");
    OK(trafo_cancel_reset(f->cancel));
  }
  // A training of SentencePiece that goes on unseen does not change the next one.
  options.vocabulary = 60;
  for (int i = 0; i < 2; ++i)
    OK(trafo_tokenizer_train(f->lines, 200, &options, i ? f->cancel : NULL, &again[i]));
  for (int id = 0; id < 60; ++id) {
    char* names[2] = {NULL, NULL};
    size_t lengths[2];
    for (int i = 0; i < 2; ++i) OK(trafo_tokenizer_get_token(again[i], id, &names[i], &lengths[i]));
    CHECK(strcmp(names[0], names[1]) == 0);
    for (int i = 0; i < 2; ++i) trafo_string_free(names[i]);
  }
  f->tokenizer = again[0];
  trafo_tokenizer_free(again[1]);
  trafo_corpus_free(corpus);
}

typedef struct Pairs {
  const Fixture* fixture;
  int64_t asked;
} Pairs;

static int32_t give_pair(void* user_data, int64_t index, trafo_string_view* source,
                         trafo_string_view* target) {
  Pairs* const pairs = user_data;
  if (++pairs->asked == 1000) trafo_error_free(trafo_cancel_set(pairs->fixture->cancel));
  *source = *target = pairs->fixture->lines[index];
  return 0;
}

static void check_trainer(Fixture* f) {
  trafo_trainer_options options;
  trafo_trainer *trainer = NULL, *twin = NULL;
  trafo_corpus *few = NULL, *many = NULL, *given = NULL;
  trafo_step_result step, same;
  trafo_metric_value metrics[8];
  int64_t count = -1;
  Pairs pairs = {f, 0};
  OK(trafo_corpus_new(f->lines, f->lines, kFew, &few));
  OK(trafo_corpus_new(f->lines, f->lines, kLines, &many));
  OK(trafo_corpus_from_function(kLines, 1, give_pair, &pairs, NULL, &given));
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 512;
  // In the midst of a corpus that is tokenised, on whatever thread.
  FAILS(
      trafo_trainer_new(f->model, f->tokenizer, few, given, &options, NULL, 0, f->cancel, &trainer),
      TRAFO_CANCELLED, "cancelled");
  CHECK(trainer == NULL && pairs.asked >= 1000 && pairs.asked < kLines);
  FAILS(
      trafo_trainer_new(f->model, f->tokenizer, few, NULL, &options, NULL, 0, f->cancel, &trainer),
      TRAFO_CANCELLED, "cancelled");
  OK(trafo_cancel_reset(f->cancel));
  // The model has not changed, and neither a step nor a validation that is cancelled loses
  // anything.
  trafo_model* const other = new_model(f);
  OK(trafo_trainer_new(f->model, f->tokenizer, few, many, &options, NULL, 0, f->cancel, &trainer));
  OK(trafo_trainer_new(other, f->tokenizer, few, many, &options, NULL, 0, NULL, &twin));
  for (int i = 1; i <= 3; ++i) {
    OK(trafo_cancel_set(f->cancel));
    FAILS(trafo_trainer_step(trainer, f->cancel, &step), TRAFO_CANCELLED, "cancelled");
    CHECK(step.update == 0);
    OK(trafo_cancel_reset(f->cancel));
    CANCELLED(f, trafo_trainer_validate(trainer, f->cancel, metrics, 8, &count));
    CHECK(count == 0);
    OK(trafo_trainer_step(trainer, f->cancel, &step));
    OK(trafo_trainer_step(twin, NULL, &same));
    CHECK(step.update == i && step.loss == same.loss && step.grad_norm == same.grad_norm);
  }
  trafo_trainer_free(trainer);
  trafo_trainer_free(twin);
  trafo_model_free(other);
  trafo_corpus_free(few);
  trafo_corpus_free(many);
  trafo_corpus_free(given);
}

typedef struct Pipe {
  const Fixture* fixture;
  const char* path;
  pthread_t reader;    /* which gets a signal while it waits */
  int is_silent;       /* it has a few lines, not lines without end */
  atomic_int returned; /* the call that reads it */
} Pipe;

static void take_signal(int number) {
  (void)number;
}

// Sets the token in the midst of the lines. Returns the error of that, as other threads check
// nothing.
static void* write_lines(void* argument) {
  Pipe* const to = argument;
  const trafo_string_view* const lines = to->fixture->lines;
  FILE* const file = fopen(to->path, "wb");
  trafo_error* error = NULL;
  const struct timespec quiet = {0, 200000000};
  // A call that does not look at the token ends all the same, and the checks say so.
  for (int64_t i = 0;
       i < 50 * (int64_t)kLines && file &&
       fprintf(file, "%.*s\t%s\n", (int)lines[i % kLines].length, lines[i % kLines].data, "b") > 0;
       ++i) {
    if (i == (to->is_silent ? kFew : kLines)) {
      if (to->is_silent) {
        fflush(file);
        nanosleep(&quiet, NULL);  // the call waits for more
        pthread_kill(to->reader, SIGUSR1);
        nanosleep(&quiet, NULL);
      }
      error = trafo_cancel_set(to->fixture->cancel);
    }
    if (to->is_silent && i == kFew) break;
  }
  const struct timespec pause = {0, 5000000};
  for (int i = 0; to->is_silent && !to->returned && i < 4000; ++i) nanosleep(&pause, NULL);
  if (file) fclose(file);
  return error;
}

// In memory, cancelled while it is read.
static void check_large_corpus(Fixture* f) {
  const char* const path = work_path("large.tsv");
  FILE* const file = fopen(path, "wb");
  CHECK(file != NULL);
  for (int i = 0; file && i < kLinesOfAFile; ++i) fputs("a b c d\te f g h\n", file);
  CHECK(file && !ferror(file) && fclose(file) == 0);
  trafo_corpus* corpus = NULL;
  pthread_t setter;
  void* error = NULL;
  wait_ms = 5;
  CHECK(pthread_create(&setter, NULL, set_soon, f->cancel) == 0);
  FAILS(trafo_corpus_load_tsv(path, strlen(path), f->cancel, &corpus), TRAFO_CANCELLED,
        "cancelled");
  CHECK(corpus == NULL && pthread_join(setter, &error) == 0);
  OK(error);
  wait_ms = 50;
  OK(trafo_cancel_reset(f->cancel));
  remove(path);
}

// A corpus of a pipe has no end: only the token ends the call.
static void check_corpora(Fixture* f) {
  trafo_corpus* corpus = NULL;
  trafo_corpus_options options;
  const char* const file = work_path("lines.txt");
  write_file(file, "a\nb\n", 4);
  Pipe from = {f, work_path("endless.tsv"), pthread_self(), 0, 0};
  const trafo_string_view path = view(from.path);
  const trafo_string_view second[2] = {view(file), path};  // of two sides, on a separate thread
  OK(trafo_corpus_options_init(&options, sizeof options));
  options.memory_bytes = 0;
  CHECK(mkfifo(from.path, 0600) == 0);
  void (*const before)(int) = signal(SIGPIPE, SIG_IGN);
  void (*const signalled)(int) = signal(SIGUSR1, take_signal);
  for (int way = 0; way < 4; ++way) {
    pthread_t writer;
    void* error = NULL;
    from.returned = 0;
    from.is_silent = way == 3;
    const time_t began = time(NULL);
    CHECK(pthread_create(&writer, NULL, write_lines, &from) == 0);
    if (way == 0)
      FAILS(trafo_corpus_load_tsv(path.data, path.length, f->cancel, &corpus), TRAFO_CANCELLED,
            "cancelled");
    else
      FAILS(trafo_corpus_open(way == 1 ? second : &path, way == 1 ? 2 : 1, &options, f->cancel,
                              &corpus),
            TRAFO_CANCELLED, "cancelled");
    from.returned = 1;
    CHECK(corpus == NULL && time(NULL) - began < 15);
    CHECK(pthread_join(writer, &error) == 0);
    OK(error);
    OK(trafo_cancel_reset(f->cancel));
  }
  signal(SIGPIPE, before);
  signal(SIGUSR1, signalled);
  check_large_corpus(f);
  const trafo_string_view sides[2] = {view(file), view(file)};
  OK(trafo_cancel_set(f->cancel));
  FAILS(trafo_corpus_load(file, strlen(file), file, strlen(file), f->cancel, &corpus),
        TRAFO_CANCELLED, "cancelled");
  FAILS(trafo_corpus_open(sides, 2, &options, f->cancel, &corpus), TRAFO_CANCELLED, "cancelled");
  // The token belongs to its call alone.
  OK(trafo_corpus_load(file, strlen(file), file, strlen(file), NULL, &corpus));
  trafo_corpus_free(corpus);
  OK(trafo_cancel_reset(f->cancel));
  OK(trafo_corpus_open(sides, 2, &options, f->cancel, &corpus));
  trafo_corpus_free(corpus);
}

static void check_evaluation(Fixture* f) {
  trafo_evaluation_options options;
  trafo_evaluation result;
  OK(trafo_evaluation_options_init(&options, sizeof options));
  options.confidence = 1;
  options.resamples = 1 << 20;  // for many minutes
  CANCELLED(f, trafo_evaluate(f->lines, f->lines, kLines, 1, NULL, &options, f->cancel, &result,
                              sizeof result));
  CHECK(result.bleu.score == 0);
  options.resamples = 10;
  OK(trafo_evaluate(f->lines, f->lines, kFew, 1, NULL, &options, f->cancel, &result,
                    sizeof result));
  NEAR(result.bleu.score, 100, 1e-6);
}

static int entries(const char* directory) {
  int count = 0;
  DIR* const open = opendir(directory);
  CHECK(open != NULL);
  for (const struct dirent* each; open && (each = readdir(open)) != NULL;)
    count += each->d_name[0] != '.' || strlen(each->d_name) > 2;
  if (open) closedir(open);
  return count;
}

// However late an export is cancelled, its directory is whole or not there, and beside it is
// nothing.
static void check_exports(Fixture* f) {
  static const int32_t formats[] = {TRAFO_EXPORT_HF_PEGASUS, TRAFO_EXPORT_CTRANSLATE2,
                                    TRAFO_EXPORT_ONNX};
  char parent[256], target[300];
  snprintf(parent, sizeof parent, "%s", work_path("exports"));
  snprintf(target, sizeof target, "%s/model", parent);
  CHECK(mkdir(parent, 0700) == 0);
  trafo_model* model = NULL;
  trafo_model_config config;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  OK(trafo_tokenizer_get_vocabulary(f->tokenizer, &config.vocabulary));
  OK(trafo_model_new(f->context, &config, 1, &model));
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    OK(trafo_cancel_set(f->cancel));
    FAILS(trafo_model_export(model, f->tokenizer, formats[i], TRAFO_EXPORT_WEIGHTS_BY_FORMAT,
                             target, strlen(target), f->cancel, NULL),
          TRAFO_CANCELLED, "cancelled");
    CHECK(entries(parent) == (int)i);
    OK(trafo_cancel_reset(f->cancel));
    // Later and later, until an export is whole before the token is set.
    int cancelled = 0, whole = 0;
    for (wait_ms = 1; !whole && wait_ms < 900; wait_ms += 1 + wait_ms / 2) {
      char each[320];
      snprintf(each, sizeof each, "%s-%zu", target, i);
      pthread_t setter;
      CHECK(pthread_create(&setter, NULL, set_soon, f->cancel) == 0);
      trafo_error* const error =
          trafo_model_export(model, f->tokenizer, formats[i], TRAFO_EXPORT_WEIGHTS_BY_FORMAT, each,
                             strlen(each), f->cancel, NULL);
      whole = error == NULL;
      cancelled += !whole;
      CHECK(whole || trafo_error_code(error) == TRAFO_CANCELLED);
      CHECK(entries(parent) == (int)i + whole);
      trafo_error_free(error);
      CHECK(pthread_join(setter, NULL) == 0);
      OK(trafo_cancel_reset(f->cancel));
    }
    CHECK(cancelled > 0);
    if (!whole) {
      snprintf(target, sizeof target, "%s/model-%zu", parent, i);
      OK(trafo_model_export(model, f->tokenizer, formats[i], TRAFO_EXPORT_WEIGHTS_BY_FORMAT, target,
                            strlen(target), f->cancel, NULL));
      snprintf(target, sizeof target, "%s/model", parent);
    }
  }
  wait_ms = 50;
  snprintf(target, sizeof target, "%s/model-0", parent);
  trafo_model* read = NULL;
  trafo_tokenizer* tokenizer = NULL;
  OK(trafo_cancel_set(f->cancel));
  FAILS(trafo_model_import(f->context, target, strlen(target), f->cancel, &read, &tokenizer, NULL),
        TRAFO_CANCELLED, "cancelled");
  CHECK(read == NULL && tokenizer == NULL);
  OK(trafo_cancel_reset(f->cancel));
  OK(trafo_model_import(f->context, target, strlen(target), f->cancel, &read, &tokenizer, NULL));
  trafo_model_free(read);
  trafo_tokenizer_free(tokenizer);
  trafo_model_free(model);
}

void test_cancelling(void) {
  Fixture f = {NULL, NULL, NULL, NULL, NULL, NULL};
  trafo_shortlist* list = NULL;
  trafo_model* quantized = NULL;
  trafo_quantize_options options;
  f.context = new_context(2);
  OK(trafo_cancel_new(&f.cancel));
  make_lines(&f);
  check_tokenizers(&f);
  f.model = new_model(&f);
  double* const scores = malloc(kLines * sizeof *scores);
  CANCELLED(&f,
            trafo_score(f.model, f.tokenizer, f.lines, f.lines, kLines, f.cancel, scores, NULL));
  CHECK(scores[0] == 0);
  OK(trafo_score(f.model, f.tokenizer, f.lines, f.lines, kFew, f.cancel, scores, NULL));
  CHECK(scores[0] < 0);
  CANCELLED(&f, trafo_shortlist_learn(f.tokenizer, f.lines, f.lines, kLines, 4, f.cancel, &list));
  OK(trafo_shortlist_learn(f.tokenizer, f.lines, f.lines, kFew, 4, f.cancel, &list));
  OK(trafo_quantize_options_init(&options, sizeof options));
  OK(trafo_cancel_set(f.cancel));
  FAILS(trafo_model_quantize(f.model, &options, f.cancel, &quantized), TRAFO_CANCELLED,
        "cancelled");
  OK(trafo_cancel_reset(f.cancel));
  OK(trafo_model_quantize(f.model, &options, f.cancel, &quantized));
  check_trainer(&f);
  check_corpora(&f);
  check_evaluation(&f);
  check_exports(&f);
  free(scores);
  free(f.lines);
  free(f.text);
  trafo_model_free(quantized);
  trafo_shortlist_free(list);
  trafo_model_free(f.model);
  trafo_tokenizer_free(f.tokenizer);
  trafo_cancel_free(f.cancel);
  trafo_context_free(f.context);
}
