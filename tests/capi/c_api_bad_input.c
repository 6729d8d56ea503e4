// A fault of the input is an error that names it, and nothing else changes.
#define _XOPEN_SOURCE 700
#include "capi_check.h"
#include "tiny_config.h"

#include <sys/stat.h>
#include <unistd.h>

static void refuse_corpus(const char* source, size_t source_bytes, const char* target, int32_t code,
                          const char* reason) {
  trafo_corpus* corpus = NULL;
  const char *left = work_path("bad.src"), *right = work_path("bad.tgt");
  write_file(left, source, source_bytes);
  write_file(right, target, strlen(target));
  FAILS(trafo_corpus_load(left, strlen(left), right, strlen(right), NULL, &corpus), code, reason);
  FAILS(trafo_corpus_load(left, strlen(left), right, strlen(right), NULL, &corpus), code,
        "bad.");  // names the file
  CHECK(corpus == NULL);
}

static void test_corpora(void) {
  refuse_corpus("a\nb\n", 4, "a\n", TRAFO_INVALID_ARGUMENT, "2");
  refuse_corpus("a\nb\xff\n", 5, "a\nb\n", TRAFO_INVALID_ARGUMENT, "bad.src:2");
  refuse_corpus("a\nb\0c\n", 6, "a\nb\n", TRAFO_INVALID_ARGUMENT, "NUL");
  refuse_corpus("", 0, "", TRAFO_INVALID_ARGUMENT, "");
  refuse_corpus("\n", 1, "\n", TRAFO_INVALID_ARGUMENT, "");
  const size_t size = (1u << 20) + 2;
  char* longer = malloc(size + 1);
  memset(longer, 'x', size);
  longer[size] = '\n';
  refuse_corpus(longer, size + 1, "a\n", TRAFO_INVALID_ARGUMENT, "bad.src:1");
  free(longer);

  trafo_corpus* corpus = NULL;
  const char* path = work_path("bad.tsv");
  write_file(path, "a\tb\nno tab\n", 11);
  FAILS(trafo_corpus_load_tsv(path, strlen(path), NULL, &corpus), TRAFO_INVALID_ARGUMENT,
        "bad.tsv");
  FAILS(trafo_corpus_load_tsv(path, strlen(path), NULL, &corpus), TRAFO_INVALID_ARGUMENT, "2");
  path = work_path("none/there");
  FAILS(trafo_corpus_load_tsv(path, strlen(path), NULL, &corpus), TRAFO_NOT_FOUND, "none/there");
  FAILS(trafo_corpus_load_tsv(work_directory(), strlen(work_directory()), NULL, &corpus),
        TRAFO_INVALID_ARGUMENT, "directory");
  FAILS(trafo_corpus_load_tsv("a\0b", 3, NULL, &corpus), TRAFO_INVALID_ARGUMENT, "NUL");
  // A message may go to a terminal.
  FAILS(trafo_corpus_load_tsv("no\x1b[31mne", 9, NULL, &corpus), TRAFO_NOT_FOUND, "no?[31mne");
  const trafo_string_view good = {"a", 1}, invalid = {"\xc3", 1}, broken = {NULL, 3};
  FAILS(trafo_corpus_new(&good, &invalid, 1, &corpus), TRAFO_INVALID_ARGUMENT, "target sentence 1");
  FAILS(trafo_corpus_new(&good, &broken, 1, &corpus), TRAFO_INVALID_ARGUMENT, "NULL");
  FAILS(trafo_corpus_new(&good, &good, 0, &corpus), TRAFO_INVALID_ARGUMENT, "");
  CHECK(corpus == NULL);
}

// Every truncation and a bit flip at many places: an error, or for a tokenizer, whose format has no
// checksum, anything but a crash.
static void damage(const uint8_t* data, size_t bytes, void (*load)(const char* path, int flipped)) {
  uint8_t* copy = malloc(bytes);
  const char* path = work_path("damaged");
  for (size_t i = 0; i < 12; ++i) {
    write_file(path, data, bytes * i / 12);
    load(path, 0);
  }
  for (size_t i = 0; i < 60; ++i) {
    memcpy(copy, data, bytes);
    copy[(bytes - 1) * i / 59] ^= (uint8_t)(1u << (i % 8));
    write_file(path, copy, bytes);
    load(path, 1);
  }
  free(copy);
}

static trafo_context* context;

static void load_model(const char* path, int flipped) {
  (void)flipped;
  trafo_model* model = NULL;
  FAILS(trafo_model_load(context, path, strlen(path), &model), TRAFO_CORRUPT_FILE, "damaged");
  CHECK(model == NULL);
}

static void load_tokenizer(const char* path, int flipped) {
  trafo_tokenizer* tokenizer = NULL;
  if (!flipped) {
    FAILS(trafo_tokenizer_load(path, strlen(path), &tokenizer), TRAFO_CORRUPT_FILE, "damaged");
    return;
  }
  trafo_error* error = trafo_tokenizer_load(path, strlen(path), &tokenizer);
  if (error) {
    CHECK(tokenizer == NULL && strstr(trafo_error_message(error), "damaged"));
    trafo_error_free(error);
    return;
  }
  int32_t* ids = NULL;
  size_t count = 0;
  OK(trafo_tokenizer_encode(tokenizer, "alpha beta", 10, &ids, &count));
  trafo_ids_free(ids);
  trafo_tokenizer_free(tokenizer);
}

static void test_paths(trafo_model* model, trafo_tokenizer* tokenizer) {
  const char* missing = work_path("no/such/directory/file");
  FAILS(trafo_model_save(model, missing, strlen(missing)), TRAFO_IO, "no/such");
  FAILS(trafo_tokenizer_save(tokenizer, missing, strlen(missing)), TRAFO_IO, "no/such");
  trafo_model* none = NULL;
  FAILS(trafo_model_load(context, missing, strlen(missing), &none), TRAFO_NOT_FOUND, "no/such");
  trafo_tokenizer* no_tokenizer = NULL;
  trafo_shortlist* no_list = NULL;
  FAILS(trafo_tokenizer_load(missing, strlen(missing), &no_tokenizer), TRAFO_NOT_FOUND, "no/such");
  FAILS(trafo_shortlist_load(tokenizer, missing, strlen(missing), &no_list), TRAFO_NOT_FOUND,
        "no/such");
  const char* folder = work_directory();
  FAILS(trafo_shortlist_load(tokenizer, folder, strlen(folder), &no_list), TRAFO_INVALID_ARGUMENT,
        "is a directory");
  char endless[5000];
  memset(endless, 'a', sizeof endless);
  FAILS(trafo_model_save(model, endless, sizeof endless), TRAFO_IO, "");
  FAILS(trafo_model_save(model, "", 0), TRAFO_INVALID_ARGUMENT, "path is empty");
  if (geteuid() == 0) return;  // root writes everywhere
  const char *directory = work_path("readonly"), *inside = work_path("readonly/model");
  CHECK(mkdir(directory, 0500) == 0);
  FAILS(trafo_model_save(model, inside, strlen(inside)), TRAFO_IO, "readonly");
}

// A trainer whose run directory vanishes reports it, and goes on when it is back.
static void test_lost_directory(trafo_model* model, trafo_tokenizer* tokenizer,
                                trafo_corpus* corpus) {
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_step_result step;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.save_freq.value = 0;
  options.max_length = 16;
  const char *file = work_path("plain"), *below = work_path("plain/run"), *run = work_path("lost"),
             *moved = work_path("moved");
  write_file(file, "x", 1);
  FAILS(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, below, strlen(below), NULL,
                          &trainer),
        TRAFO_IO, "plain");
  CHECK(trainer == NULL);
  if (!OK(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, run, strlen(run), NULL,
                            &trainer)))
    return;
  OK(trafo_trainer_step(trainer, NULL, &step));
  CHECK(rename(run, moved) == 0);
  write_file(run, "in the way", 10);
  FAILS(trafo_trainer_save(trainer), TRAFO_IO, "lost");
  CHECK(remove(run) == 0 && rename(moved, run) == 0);
  OK(trafo_trainer_step(trainer, NULL, &step));
  CHECK(step.update == 2);
  OK(trafo_trainer_save(trainer));
  trafo_trainer_free(trainer);
}

static void test_shapes(void) {
  trafo_tensor* tensor = NULL;
  const int64_t negative[] = {2, -3}, huge[] = {INT64_MAX, INT64_MAX}, large[] = {INT64_MAX / 4},
                one[] = {1};
  const float value = 1;
  FAILS(trafo_tensor_new(context, TRAFO_FLOAT32, negative, 2, NULL, 0, &tensor),
        TRAFO_SHAPE_MISMATCH, "-3");
  FAILS(trafo_tensor_new(context, TRAFO_FLOAT32, huge, 2, NULL, 0, &tensor), TRAFO_INVALID_ARGUMENT,
        "overflows");
  FAILS(trafo_tensor_new(context, TRAFO_FLOAT32, large, 1, &value, 4, &tensor), TRAFO_OUT_OF_MEMORY,
        "bytes");
  FAILS(trafo_tensor_new(context, TRAFO_FLOAT32, one, 9, NULL, 0, &tensor), TRAFO_INVALID_ARGUMENT,
        "rank");
  FAILS(trafo_tensor_new(context, 17, one, 1, NULL, 0, &tensor), TRAFO_INVALID_ARGUMENT,
        "dtype is unknown: 17");
  FAILS(trafo_tensor_new(context, TRAFO_FLOAT32, one, 1, &value, 3, &tensor), TRAFO_SHAPE_MISMATCH,
        "");
  CHECK(tensor == NULL);
}

void test_bad_input(void) {
  context = new_context(1);
  test_shapes();
  test_corpora();
  const trafo_string_view words[] = {
      {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
  trafo_corpus* corpus = NULL;
  trafo_tokenizer *tokenizer = NULL, *none = NULL;
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  FAILS(trafo_tokenizer_train(words, 3, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "");  // 8000 subwords of that
  options.vocabulary = 30;
  options.soft_limit = 1;
  // SentencePiece ends the process for text of which its normal form leaves nothing.
  const trafo_string_view blanks[] = {{"\xe3\x80\x80", 3},  // U+3000
                                      {"\xc2\xa0", 2},      // NBSP
                                      {"\xe2\x80\x8b", 3},  // U+200B
                                      {"\xe2\x80\xa8", 3},  // U+2028
                                      {"\x7f", 1}};
  for (size_t i = 0; i < 5; ++i)
    FAILS(trafo_tokenizer_train(&blanks[i], 1, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
          "no sentence");
  CHECK(none == NULL);
  OK(trafo_corpus_new(words, words, 3, &corpus));
  OK(trafo_tokenizer_train(words, 3, &options, NULL, &tokenizer));
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  int32_t* ids = NULL;
  size_t count = 0, bytes = 0;
  FAILS(trafo_tokenizer_encode(tokenizer, "\xff", 1, &ids, &count), TRAFO_INVALID_ARGUMENT,
        "UTF-8");

  trafo_model_config config;
  trafo_model *model = NULL, *small = NULL;
  OK(tiny_config(&config));
  config.vocabulary = vocabulary;
  OK(trafo_model_new(context, &config, 1, &model));
  trafo_translations* translations = NULL;
  const trafo_string_view bad[] = {{"alpha", 5}, {"\xc3(", 2}};
  FAILS(trafo_translate(model, tokenizer, bad, 2, NULL, NULL, &translations),
        TRAFO_INVALID_ARGUMENT, "line 2");
  config.vocabulary = vocabulary + 1;
  OK(trafo_model_new(context, &config, 1, &small));
  FAILS(trafo_translate(small, tokenizer, bad, 1, NULL, NULL, &translations),
        TRAFO_INVALID_ARGUMENT, "belong together");
  trafo_model_free(small);

  const char* path = work_path("whole.safetensors");
  OK(trafo_model_save(model, path, strlen(path)));
  uint8_t* data = read_file(path, &bytes);
  damage(data, bytes, load_model);
  free(data);
  path = work_path("whole.spm");
  OK(trafo_tokenizer_save(tokenizer, path, strlen(path)));
  data = read_file(path, &bytes);
  damage(data, bytes, load_tokenizer);
  free(data);
  FAILS(trafo_tokenizer_load_buffer((const uint8_t*)"nonsense", 8, &none), TRAFO_CORRUPT_FILE, "");
  test_paths(model, tokenizer);
  test_lost_directory(model, tokenizer, corpus);
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
  trafo_corpus_free(corpus);
  trafo_context_free(context);
}
