// Calls tell how far they are, and end when the function that they tell asks for it.
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "capi_check.h"

enum {
  kLines = kIsSanitized ? 1000 : 3000,
  kLineBytes = 48,
  kWorks = TRAFO_WORK_LEARN_SHORTLIST + 1
};

typedef struct Told {
  int64_t first, last, total;  // of the last piece of work of this kind
  int pieces, reports;
} Told;

typedef struct Fixture {
  trafo_context* context;
  trafo_cancel* cancel;
  trafo_tokenizer* tokenizer;
  trafo_model* model;
  trafo_corpus* corpus;
  trafo_string_view* lines;
  char* text;
  pthread_t caller;
  Told told[kWorks];
  int last_work;   // of the last report; -1: none
  int stop_at;     // the kind of work that is ended; -1: none
  int at_its_end;  // when all of it is done, not when it begins
  int asks;        // the function tries to use the context
  int refused;
  int stopped;        // the function has asked for the end
  const char* loads;  // a corpus that the function loads, by a call that tells nothing; NULL: none
  int events;
} Fixture;

static int32_t hear(void* user_data, int32_t work, int64_t done, int64_t total) {
  Fixture* const f = user_data;
  CHECK(pthread_equal(pthread_self(), f->caller) && !f->stopped);
  CHECK(work >= 0 && work < kWorks);
  CHECK(done >= 0 && total >= 0 && (total == 0 || done <= total));
  Told* const told = &f->told[work];
  const int begins = f->last_work != work || (done == 0 && told->last > 0);
  if (begins) {
    ++told->pieces;
    told->first = done;
  } else {
    CHECK(done >= told->last);
  }
  f->last_work = work;
  told->last = done;
  told->total = total;
  ++told->reports;
  if (f->asks) {
    trafo_memory_stats stats;
    FAILS(trafo_context_memory_stats(f->context, &stats), TRAFO_INVALID_ARGUMENT,
          "a progress function cannot use the context");
    ++f->refused;
  }
  if (f->loads) {
    trafo_corpus* corpus = NULL;
    OK(trafo_corpus_load_tsv(f->loads, strlen(f->loads), NULL, &corpus));
    trafo_corpus_free(corpus);
  }
  if (work == f->stop_at) f->stopped = f->at_its_end ? total > 0 && done == total : begins;
  return f->stopped;
}

static void forget(Fixture* f) {
  memset(f->told, 0, sizeof f->told);
  f->last_work = f->stop_at = -1;
  f->at_its_end = f->stopped = 0;
}

// The call tells of such work from 0 to this total, which may be any (-1). It ends when it is asked
// to as the work begins and as it is done.
#define TELLS(f, work, expected, call)                                        \
  do {                                                                        \
    forget(f);                                                                \
    OK(call);                                                                 \
    const Told told_ = (f)->told[work];                                       \
    CHECK(told_.pieces > 0 && told_.first == 0 && told_.last == told_.total); \
    CHECK((expected) == -1 ? told_.total > 0 : told_.total == (expected));    \
    for (int end_ = 0; end_ < (told_.total > 0 ? 2 : 1); ++end_) {            \
      int32_t set_ = 0;                                                       \
      forget(f);                                                              \
      (f)->stop_at = (work);                                                  \
      (f)->at_its_end = end_;                                                 \
      FAILS((call), TRAFO_CANCELLED, "cancel");                               \
      OK(trafo_cancel_is_set((f)->cancel, &set_));                            \
      CHECK(set_ == 1);                                                       \
      OK(trafo_cancel_reset((f)->cancel));                                    \
    }                                                                         \
    forget(f);                                                                \
  } while (0)

static void make_lines(Fixture* f) {
  uint64_t state = 1;
  f->text = malloc((size_t)kLines * kLineBytes);
  f->lines = malloc(kLines * sizeof *f->lines);
  for (int i = 0; i < kLines; ++i) {
    char* const line = f->text + (size_t)i * kLineBytes;
    for (int k = 0; k < kLineBytes; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      line[k] = k % 8 == 7 ? ' ' : (char)('a' + (state >> 33) % 24);
    }
    f->lines[i] = (trafo_string_view){line, kLineBytes - 1};
  }
}

static void check_tokenizers(Fixture* f) {
  trafo_tokenizer_options options;
  trafo_tokenizer* tokenizer = NULL;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.kind = view("byte-bpe");
  options.vocabulary = 400;
  TELLS(f, TRAFO_WORK_GATHER_TEXT, kLines,
        (trafo_tokenizer_free(tokenizer),
         trafo_tokenizer_train(f->lines, kLines, &options, f->cancel, &tokenizer)));
  TELLS(f, TRAFO_WORK_LEARN_VOCABULARY, 400,
        (trafo_tokenizer_free(tokenizer),
         trafo_tokenizer_train(f->lines, kLines, &options, f->cancel, &tokenizer)));
  // With nothing to learn the work is done at once, also if it is to end as it begins.
  const trafo_string_view letter = view("a");
  options.soft_limit = 1;
  TELLS(f, TRAFO_WORK_LEARN_VOCABULARY, 400,
        (trafo_tokenizer_free(tokenizer),
         trafo_tokenizer_train(&letter, 1, &options, f->cancel, &tokenizer)));
  options.soft_limit = 0;
  options.kind = view("sentencepiece");
  options.vocabulary = 100;
  TELLS(f, TRAFO_WORK_GATHER_TEXT, 2 * kLines,
        (trafo_tokenizer_free(tokenizer),
         trafo_corpus_train_tokenizer(f->corpus, &options, f->cancel, &tokenizer)));
  TELLS(f, TRAFO_WORK_LEARN_VOCABULARY, 0,
        (trafo_tokenizer_free(tokenizer),
         trafo_corpus_train_tokenizer(f->corpus, &options, f->cancel, &tokenizer)));
  CHECK(tokenizer == NULL);
  OK(trafo_corpus_train_tokenizer(f->corpus, &options, f->cancel, &f->tokenizer));
}

static void* write_pairs(void* path) {
  FILE* const file = fopen(path, "wb");
  for (int i = 0; file && i < 10000; ++i) fputs("a b\tc d\n", file);
  if (file) fclose(file);
  return NULL;
}

static void check_corpora(Fixture* f) {
  char source[256], target[256];
  trafo_corpus* corpus = NULL;
  trafo_corpus_options options;
  snprintf(source, sizeof source, "%s", work_path("told.src"));
  snprintf(target, sizeof target, "%s", work_path("told.tsv"));
  int64_t bytes = 0;
  FILE* files[2] = {fopen(source, "wb"), fopen(target, "wb")};
  for (int i = 0; i < 2 * kLines; ++i) {
    bytes += fprintf(files[0], "%.*s\n", kLineBytes - 1, f->lines[i % kLines].data);
    bytes += fprintf(files[1], "a\tb\n");
  }
  CHECK(fclose(files[0]) == 0 && fclose(files[1]) == 0);
  const trafo_string_view sides[2] = {view(source), view(target)};
  TELLS(f, TRAFO_WORK_READ_TEXT, bytes,
        (trafo_corpus_free(corpus),
         trafo_corpus_load(source, strlen(source), target, strlen(target), f->cancel, &corpus)));
  TELLS(f, TRAFO_WORK_READ_TEXT, 4 * 2 * kLines,
        (trafo_corpus_free(corpus),
         trafo_corpus_load_tsv(target, strlen(target), f->cancel, &corpus)));
  OK(trafo_corpus_options_init(&options, sizeof options));
  options.memory_bytes = 0;  // on disk; the second side is read on another thread
  TELLS(f, TRAFO_WORK_READ_TEXT, bytes,
        (trafo_corpus_free(corpus), trafo_corpus_open(sides, 2, &options, f->cancel, &corpus)));
  TELLS(f, TRAFO_WORK_READ_TEXT, 4 * 2 * kLines,
        (trafo_corpus_free(corpus), trafo_corpus_open(sides + 1, 1, &options, f->cancel, &corpus)));
  // How long a pipe is, is unknown until it ends.
  const char* const pipe = work_path("told.pipe");
  pthread_t writer;
  CHECK(mkfifo(pipe, 0600) == 0);
  CHECK(pthread_create(&writer, NULL, write_pairs, (void*)pipe) == 0);
  f->loads = target;
  OK(trafo_corpus_load_tsv(pipe, strlen(pipe), f->cancel, &corpus));
  CHECK(pthread_join(writer, NULL) == 0);
  f->loads = NULL;
  const Told told = f->told[TRAFO_WORK_READ_TEXT];
  CHECK(told.first == 0 && told.last == 80000 && told.total == 80000);
  trafo_corpus_free(corpus);
}

static void check_models(Fixture* f) {
  trafo_model_config config;
  trafo_model* other = NULL;
  trafo_shortlist* list = NULL;
  trafo_translations* lines = NULL;
  trafo_translate_options translating;
  double scores[200];
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_tokenizer_get_vocabulary(f->tokenizer, &config.vocabulary));
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = 256;
  OK(trafo_model_new(f->context, &config, 1, &f->model));
  TELLS(f, TRAFO_WORK_SCORE, 200,
        trafo_score(f->model, f->tokenizer, f->lines, f->lines, 200, f->cancel, scores, NULL));
  OK(trafo_translate_options_init(&translating, sizeof translating));
  translating.max_length = 4;
  TELLS(f, TRAFO_WORK_TRANSLATE, 100,
        (trafo_translations_free(lines),
         trafo_translate(f->model, f->tokenizer, f->lines, 100, &translating, f->cancel, &lines)));
  TELLS(f, TRAFO_WORK_LEARN_SHORTLIST, 6 * 200,
        (trafo_shortlist_free(list),
         trafo_shortlist_learn(f->tokenizer, f->lines, f->lines, 200, 4, f->cancel, &list)));

  trafo_quantize_options quantizing;
  trafo_factorize_options factorizing;
  trafo_sparsify_options sparsifying;
  trafo_prune_options pruning;
  trafo_corpus* few = NULL;
  OK(trafo_corpus_new(f->lines, f->lines, 50, &few));
  OK(trafo_quantize_options_init(&quantizing, sizeof quantizing));
  TELLS(f, TRAFO_WORK_COMPRESS, -1,
        (trafo_model_free(other), trafo_model_quantize(f->model, &quantizing, f->cancel, &other)));
  quantizing.tokenizer = f->tokenizer;
  quantizing.calibration = few;
  TELLS(f, TRAFO_WORK_CALIBRATE, -1,
        (trafo_model_free(other), trafo_model_quantize(f->model, &quantizing, f->cancel, &other)));
  OK(trafo_factorize_options_init(&factorizing, sizeof factorizing));
  factorizing.rank = 4;
  factorizing.tokenizer = f->tokenizer;
  factorizing.calibration = few;
  TELLS(
      f, TRAFO_WORK_COMPRESS, -1,
      (trafo_model_free(other), trafo_model_factorize(f->model, &factorizing, f->cancel, &other)));
  OK(trafo_sparsify_options_init(&sparsifying, sizeof sparsifying));
  sparsifying.sparsity = 0.5;
  sparsifying.tokenizer = f->tokenizer;
  sparsifying.calibration = few;
  TELLS(f, TRAFO_WORK_COMPRESS, -1,
        (trafo_model_free(other), trafo_model_sparsify(f->model, &sparsifying, f->cancel, &other)));
  OK(trafo_prune_options_init(&pruning, sizeof pruning));
  pruning.encoder_ffn_share = 0.5;
  TELLS(f, TRAFO_WORK_SCORE, 50,
        (trafo_model_free(other),
         trafo_model_prune(f->model, f->tokenizer, few, &pruning, f->cancel, &other)));
  trafo_corpus_free(few);
}

static int32_t score_in_event(void* user_data, const trafo_event* event) {
  Fixture* const f = user_data;
  double score = 0;
  (void)event;
  OK(trafo_score(f->model, f->tokenizer, f->lines, f->lines, 1, NULL, &score, NULL));
  ++f->events;
  return 0;
}

static void check_training(Fixture* f) {
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_metric_value metrics[8];
  int64_t count = 0;
  int32_t stop = 0;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 512;
  options.valid_freq.value = 2;
  options.valid_metrics = options.first_metric = TRAFO_METRIC_CE;
  TELLS(
      f, TRAFO_WORK_ENCODE_TEXT, kLines,
      (trafo_trainer_free(trainer), trafo_trainer_new(f->model, f->tokenizer, f->corpus, f->corpus,
                                                      &options, NULL, 0, f->cancel, &trainer)));
  CHECK(trainer == NULL);
  OK(trafo_trainer_new(f->model, f->tokenizer, f->corpus, f->corpus, &options, NULL, 0, NULL,
                       &trainer));
  TELLS(f, TRAFO_WORK_VALIDATE, kLines,
        trafo_trainer_validate(trainer, f->cancel, metrics, 8, &count));
  TELLS(f, TRAFO_WORK_VALIDATE, kLines,
        trafo_trainer_run(trainer, 2, f->cancel, NULL, NULL, &stop));
  // A call of the event function that was given no handle tells nothing.
  OK(trafo_trainer_run(trainer, 2, f->cancel, score_in_event, f, &stop));
  CHECK(f->events > 0 && f->told[TRAFO_WORK_VALIDATE].pieces > 0);
  CHECK(f->told[TRAFO_WORK_SCORE].pieces == 0);
  trafo_trainer_free(trainer);
}

static void check_exports(Fixture* f) {
  static const int32_t formats[] = {TRAFO_EXPORT_HF_PEGASUS, TRAFO_EXPORT_CTRANSLATE2,
                                    TRAFO_EXPORT_ONNX};
  char target[300];
  trafo_model* read = NULL;
  trafo_tokenizer* tokenizer = NULL;
  int number = 0;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    TELLS(f, TRAFO_WORK_CONVERT_WEIGHTS, -1,
          (snprintf(target, sizeof target, "%s-%d", work_path("told"), number++),
           trafo_model_export(f->model, f->tokenizer, formats[i], TRAFO_EXPORT_WEIGHTS_BY_FORMAT,
                              target, strlen(target), f->cancel, NULL)));
    struct stat info;
    CHECK(stat(target, &info) != 0);  // it was ended
  }
  snprintf(target, sizeof target, "%s-0", work_path("told"));
  TELLS(
      f, TRAFO_WORK_CONVERT_WEIGHTS, -1,
      (trafo_model_free(read), trafo_tokenizer_free(tokenizer),
       trafo_model_import(f->context, target, strlen(target), f->cancel, &read, &tokenizer, NULL)));
  CHECK(read == NULL && tokenizer == NULL);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check_evaluation(Fixture* f) {
  trafo_evaluation_options options;
  trafo_evaluation result;
  OK(trafo_evaluation_options_init(&options, sizeof options));
  options.confidence = 1;
  options.resamples = 2000;
  TELLS(f, TRAFO_WORK_EVALUATE, 100,
        trafo_evaluate(f->lines, f->lines, 100, 1, NULL, &options, f->cancel, &result,
                       sizeof result));
  TELLS(f, TRAFO_WORK_RESAMPLE, 2000,
        trafo_evaluate(f->lines, f->lines, 100, 1, NULL, &options, f->cancel, &result,
                       sizeof result));
  // As often as is promised: when each of four pieces begins and ends, and every 100 ms.
  const double began = seconds();
  OK(trafo_evaluate(f->lines, f->lines, kLines, 1, NULL, &options, f->cancel, &result,
                    sizeof result));
  const double took = seconds() - began;
  const int reports = f->told[TRAFO_WORK_EVALUATE].reports + f->told[TRAFO_WORK_RESAMPLE].reports;
  CHECK(f->told[TRAFO_WORK_EVALUATE].pieces == 2 && f->told[TRAFO_WORK_RESAMPLE].pieces == 2);
  CHECK(reports >= 8 && reports <= 8 + (int)(took * 10));
  CHECK(took < 0.5 || reports > 8);
}

static void* ask_of_context(void* user_data) {
  Fixture* const f = user_data;
  trafo_memory_stats stats;
  return trafo_context_memory_stats(f->context, &stats);
}

static int32_t wait_for_other(void* user_data, int32_t work, int64_t done, int64_t total) {
  Fixture* const f = user_data;
  pthread_t other;
  void* error = NULL;
  (void)work, (void)done, (void)total;
  CHECK(pthread_create(&other, NULL, ask_of_context, f) == 0 && pthread_join(other, &error) == 0);
  FAILS(error, TRAFO_INVALID_ARGUMENT, "at work on another thread, in a call that may call back");
  ++f->refused;
  return 0;
}

// A function that uses the context, or waits for a thread that does, gets an error and does not
// hang.
static void check_contexts(Fixture* f) {
  double score = 0;
  trafo_memory_stats stats;
  forget(f);
  f->asks = 1;
  OK(trafo_score(f->model, f->tokenizer, f->lines, f->lines, 1, f->cancel, &score, NULL));
  CHECK(f->refused >= 2 && score < 0);
  f->asks = f->refused = 0;
  OK(trafo_context_memory_stats(f->context, &stats));
  OK(trafo_cancel_set_progress(f->cancel, wait_for_other, f, NULL));
  OK(trafo_score(f->model, f->tokenizer, f->lines, f->lines, 1, f->cancel, &score, NULL));
  CHECK(f->refused >= 2);
  // Other calls of the context wait for one that tells nothing, as before.
  OK(trafo_cancel_set_progress(f->cancel, NULL, NULL, NULL));
  f->refused = 0;
  OK(trafo_score(f->model, f->tokenizer, f->lines, f->lines, 1, f->cancel, &score, NULL));
  CHECK(f->refused == 0);
  OK(ask_of_context(f));
}

static void count_freed(void* user_data) {
  ++*(int*)user_data;
}

static void check_user_data(void) {
  trafo_cancel* cancel = NULL;
  int freed[3] = {0, 0, 0};
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_set_progress(cancel, hear, &freed[0], count_freed));
  CHECK(freed[0] == 0);
  OK(trafo_cancel_set_progress(cancel, hear, &freed[1], count_freed));
  CHECK(freed[0] == 1 && freed[1] == 0);
  trafo_cancel_free(cancel);
  CHECK(freed[1] == 1);
  FAILS(trafo_cancel_set_progress(cancel, hear, &freed[2], count_freed), TRAFO_INVALID_ARGUMENT,
        "freed");
  CHECK(freed[0] == 1 && freed[1] == 1 && freed[2] == 1);
}

void test_progress(void) {
  Fixture f = {0};
  forget(&f);
  f.caller = pthread_self();
  f.context = new_context(2);
  make_lines(&f);
  OK(trafo_corpus_new(f.lines, f.lines, kLines, &f.corpus));
  OK(trafo_cancel_new(&f.cancel));
  OK(trafo_cancel_set_progress(f.cancel, hear, &f, NULL));
  check_tokenizers(&f);
  check_corpora(&f);
  check_models(&f);
  check_training(&f);
  check_exports(&f);
  check_evaluation(&f);
  check_contexts(&f);
  check_user_data();
  free(f.lines);
  free(f.text);
  trafo_corpus_free(f.corpus);
  trafo_model_free(f.model);
  trafo_tokenizer_free(f.tokenizer);
  trafo_cancel_free(f.cancel);
  trafo_context_free(f.context);
}
