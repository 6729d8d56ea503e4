// Training inside a program: learning rates and pairs from functions, models and runs to writers
// and from readers, two trainers.
#include "capi_check.h"
#include "tiny_config.h"

enum { kPairs = 60, kSteps = 4 };

static char lines[2][kPairs][48];
static trafo_string_view sides[2][kPairs];
static int freed;
static void count_free(void* user_data) {
  (void)user_data;
  ++freed;
}

typedef struct setting {
  trafo_context* context;
  trafo_tokenizer* tokenizer;
  trafo_corpus* corpus;
} setting;

static trafo_model* new_model(const setting* s, uint64_t seed) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(tiny_config(&config));
  OK(trafo_tokenizer_get_vocabulary(s->tokenizer, &config.vocabulary));
  OK(trafo_model_new(s->context, &config, seed, &model));
  return model;
}

static trafo_trainer* new_trainer(const setting* s, trafo_model* model,
                                  const trafo_corpus* corpus) {
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.max_length = 16;
  options.ema_alpha = 0.01;
  OK(trafo_trainer_new(model, s->tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  return trainer;
}

static void steps(trafo_trainer* trainer, int count, trafo_step_result* results) {
  for (int i = 0; i < count; ++i) OK(trafo_trainer_step(trainer, NULL, &results[i]));
}

static int same_steps(const trafo_step_result* a, const trafo_step_result* b, int count) {
  int same = 1;
  for (int i = 0; i < count; ++i)
    same = same && a[i].update == b[i].update && a[i].loss == b[i].loss &&
           a[i].grad_norm == b[i].grad_norm;
  return same;
}

static double rate_of_update(void* user_data, int64_t update, double scheduled) {
  return *(double*)user_data >= 0 ? *(double*)user_data * (double)update + scheduled : -1;
}

static void test_rates(const setting* s) {
  trafo_model* model = new_model(s, 1);
  trafo_trainer* trainer = new_trainer(s, model, s->corpus);
  double slope = 0.125;
  trafo_step_result step, plain;
  freed = 0;
  OK(trafo_trainer_step(trainer, NULL, &plain));
  OK(trafo_trainer_set_rate(trainer, rate_of_update, &slope, count_free));
  OK(trafo_trainer_step(trainer, NULL, &step));
  NEAR(step.learning_rate, 0.125 * 2 + 2 * plain.learning_rate, 1e-12);  // it warms up
  slope = -1;
  OK(trafo_trainer_set_rate(trainer, rate_of_update, &slope, count_free));
  CHECK(freed == 1);
  FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "learning rate");
  OK(trafo_trainer_set_rate(trainer, NULL, NULL, NULL));
  CHECK(freed == 2);
  OK(trafo_trainer_step(trainer, NULL, &step));
  NEAR(step.learning_rate, 3 * plain.learning_rate, 1e-12);
  FAILS(trafo_trainer_set_rate(NULL, rate_of_update, &slope, count_free), TRAFO_INVALID_ARGUMENT,
        "trainer");
  CHECK(freed == 3);
  OK(trafo_trainer_set_rate(trainer, rate_of_update, &slope, count_free));
  trafo_trainer_free(trainer);
  CHECK(freed == 4);
  trafo_model_free(model);
}

// A function that frees the trainer it is called for: the call goes on, the handle is invalid
// afterwards.
static double free_trainer(void* user_data, int64_t update, double scheduled) {
  trafo_trainer* trainer = *(trafo_trainer**)user_data;
  trafo_step_result step;
  (void)update;
  trafo_trainer_free(trainer);
  FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "not a live");
  trafo_trainer_free(trainer);
  return scheduled;
}

static void test_freed_in_its_own_call(const setting* s) {
  trafo_model* model = new_model(s, 1);
  trafo_trainer* trainer = new_trainer(s, model, s->corpus);
  trafo_step_result step;
  freed = 0;
  OK(trafo_trainer_set_rate(trainer, free_trainer, &trainer, count_free));
  CHECK(freed == 0);
  OK(trafo_trainer_step(trainer, NULL, &step));
  CHECK(step.update == 1 && freed == 1);
  FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "not a live");
  trafo_model_free(model);
}

typedef struct pair_source {
  _Atomic int64_t asked;  // the library asks on a separate thread
  int64_t refuse_at;      // the asking that is refused; 0: none
  int bad_text;
} pair_source;

static int32_t give_pair(void* user_data, int64_t index, trafo_string_view* out_source,
                         trafo_string_view* out_target) {
  pair_source* from = user_data;
  if (++from->asked == from->refuse_at) return 7;
  static char copies[2][48];  // only valid until the next call
  for (int side = 0; side < 2; ++side) memcpy(copies[side], lines[side][index], sizeof copies[0]);
  if (from->bad_text) copies[1][0] = (char)0xff;
  *out_source = (trafo_string_view){copies[0], sides[0][index].length};
  *out_target = (trafo_string_view){copies[1], sides[1][index].length};
  return 0;
}

// Returns the code of the error that reading its own corpus gives.
static int32_t ask_itself(void* user_data, int64_t index, trafo_string_view* out_source,
                          trafo_string_view* out_target) {
  trafo_error* error =
      trafo_corpus_get_pair(*(trafo_corpus**)user_data, index + 1, out_source, out_target);
  const int32_t code = trafo_error_code(error);
  trafo_error_free(error);
  return code;
}

// Pairs from a function are trained on like the same pairs in memory, bit by bit.
static void test_pairs(const setting* s) {
  trafo_step_result in_memory[kSteps], pulled[kSteps], step;
  trafo_model* model = new_model(s, 1);
  trafo_trainer* trainer = new_trainer(s, model, s->corpus);
  steps(trainer, kSteps, in_memory);
  trafo_trainer_free(trainer);
  trafo_model_free(model);

  pair_source from = {0};
  trafo_corpus* corpus = NULL;
  freed = 0;
  OK(trafo_corpus_from_function(kPairs, 1, give_pair, &from, count_free, &corpus));
  trafo_string_view left, right;
  OK(trafo_corpus_get_pair(corpus, 5, &left, &right));
  CHECK(left.length == sides[0][5].length && memcmp(right.data, lines[1][5], right.length) == 0);
  model = new_model(s, 1);
  trainer = new_trainer(s, model, corpus);
  trafo_corpus_free(corpus);
  steps(trainer, kSteps, pulled);
  CHECK(same_steps(in_memory, pulled, kSteps));
  CHECK(freed == 0 && from.asked >= kPairs);
  trafo_trainer_free(trainer);
  CHECK(freed == 1);

  // One that refuses and one whose text is invalid end the call that needs the pair; refusing once
  // is got over.
  from = (pair_source){.refuse_at = 3};
  OK(trafo_corpus_from_function(kPairs, 1, give_pair, &from, NULL, &corpus));
  trafo_trainer_options options;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.max_length = 16;
  trainer = NULL;
  trafo_error* error =
      trafo_trainer_new(model, s->tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer);
  if (!error) error = trafo_trainer_step(trainer, NULL, &step);
  CHECK(trafo_error_code(error) == TRAFO_IO);  // not CANCELLED: nobody asked it to stop
  CHECK(strstr(trafo_error_message(error), "returned 7") != NULL);
  trafo_error_free(error);
  if (!trainer)
    OK(trafo_trainer_new(model, s->tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  OK(trafo_trainer_step(trainer, NULL, &step));
  trafo_trainer_free(trainer);
  from = (pair_source){.bad_text = 1};
  FAILS(trafo_corpus_get_pair(corpus, 0, &left, &right), TRAFO_INVALID_ARGUMENT, "UTF-8");
  trafo_corpus_free(corpus);
  trafo_model_free(model);
  // A function that asks for a pair of the corpus that it provides is refused, without a deadlock.
  OK(trafo_corpus_from_function(kPairs, 1, ask_itself, &corpus, NULL, &corpus));
  FAILS(trafo_corpus_get_pair(corpus, 0, &left, &right), TRAFO_IO,
        "returned 1");  // INVALID_ARGUMENT
  trafo_corpus_free(corpus);
  freed = 0;
  corpus = NULL;
  FAILS(trafo_corpus_from_function(0, 1, give_pair, &from, count_free, &corpus),
        TRAFO_INVALID_ARGUMENT, "pairs");
  FAILS(trafo_corpus_from_function(3, 1, NULL, &from, count_free, &corpus), TRAFO_INVALID_ARGUMENT,
        "function");
  CHECK(freed == 2 && corpus == NULL);
}

// The sentences of one batch in rows, as the built-in batcher puts them together: shortest first.
typedef struct rows {
  int32_t ids[2][4][16], lengths[2][4];
  int64_t asked;
  int bad;  // what is wrong with the next batch
} rows;

static int32_t give_batch(void* user_data, int64_t index, trafo_batch* out) {
  rows* from = user_data;
  CHECK(out->struct_size == sizeof *out && out->source == NULL && out->sentences == 0);
  CHECK(index == from->asked);
  if (from->bad == 1) return 9;
  ++from->asked;
  out->sentences = 4;
  out->source = from->ids[0][0];
  out->target = from->ids[1][0];
  out->source_width = out->target_width = 16;
  out->source_lengths = from->lengths[0];
  out->target_lengths = from->lengths[1];
  if (from->bad == 2) out->source_lengths = NULL;
  if (from->bad == 3) out->target_width = 2;
  if (from->bad == 4) out->sentences = INT64_MAX;
  if (from->bad == 5) out->source_width = INT64_MAX;
  if (from->bad) --from->asked;
  return 0;
}

// Batches that a function gives are trained on as the same ones of the corpus are, bit by bit.
static void test_batches(const setting* s, int32_t architecture) {
  // Each sentence a word longer than the last, so that their order in the batch is known.
  static const char* const texts[4] = {"eins", "eins two", "eins two drei", "eins two drei four"};
  trafo_string_view views[4];
  rows from = {.asked = 0};
  for (int i = 0; i < 4; ++i) {
    views[i] = (trafo_string_view){texts[i], strlen(texts[i])};
    int32_t* ids = NULL;
    size_t count = 0;
    OK(trafo_tokenizer_encode(s->tokenizer, texts[i], views[i].length, &ids, &count));
    CHECK(count < 16);
    for (int side = 0; side < 2; ++side) {
      memcpy(from.ids[side][i], ids, count * sizeof *ids);
      from.ids[side][i][count] = TRAFO_TOKEN_EOS;
      from.lengths[side][i] = (int32_t)count + 1;
    }
    trafo_ids_free(ids);
  }
  trafo_corpus* corpus = NULL;
  OK(trafo_corpus_new(views, views, 4, &corpus));
  trafo_step_result of_corpus[kSteps], given[kSteps], step;
  trafo_trainer_options options;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.max_length = 32;
  for (int own = 0; own < 2; ++own) {
    trafo_model_config config;
    trafo_model* model = NULL;
    trafo_trainer* trainer = NULL;
    OK(tiny_config(&config));
    OK(trafo_tokenizer_get_vocabulary(s->tokenizer, &config.vocabulary));
    config.architecture = architecture;
    config.activation = architecture == TRAFO_DECODER_LM ? TRAFO_GELU : TRAFO_RELU;
    OK(trafo_model_new(s->context, &config, 1, &model));
    OK(trafo_trainer_new(model, s->tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
    freed = 0;
    if (own) OK(trafo_trainer_set_batches(trainer, give_batch, &from, count_free));
    steps(trainer, kSteps, own ? given : of_corpus);
    if (own) {
      CHECK(from.asked == kSteps);
      from.bad = 1;
      FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_IO, "returned 9");
      for (from.bad = 2; from.bad <= 5; ++from.bad)
        FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "the");
      from.bad = 0;
      from.ids[1][2][0] = 1 << 20;
      from.asked = kSteps;
      FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT,
            "row 2 of the target");
      from.ids[1][2][0] = 4;
      from.asked = kSteps;
      OK(trafo_trainer_step(trainer, NULL, &step));  // nothing was lost
      CHECK(step.update == kSteps + 1);
      OK(trafo_trainer_set_batches(trainer, NULL, NULL, NULL));
      CHECK(freed == 1);
      OK(trafo_trainer_step(trainer, NULL, &step));
    }
    trafo_trainer_free(trainer);
    trafo_model_free(model);
  }
  CHECK(same_steps(of_corpus, given, kSteps));
  trafo_corpus_free(corpus);
}

typedef struct store {
  uint8_t* bytes;
  size_t size, capacity, read;
  int broken;
} store;

static int32_t put(void* user_data, const uint8_t* data, size_t bytes) {
  store* to = user_data;
  if (to->broken) return 5;
  if (to->size + bytes > to->capacity) {
    to->capacity = 2 * (to->size + bytes);
    to->bytes = realloc(to->bytes, to->capacity);
  }
  memcpy(to->bytes + to->size, data, bytes);
  to->size += bytes;
  return 0;
}

static int32_t get(void* user_data, uint8_t* data, size_t capacity, size_t* out_bytes) {
  store* from = user_data;
  if (from->broken) return 5;
  size_t count = from->size - from->read;
  if (count > 1000) count = 1000;  // less than there is room for
  if (count > capacity) count = capacity;
  memcpy(data, from->bytes + from->read, count);
  from->read += count;
  *out_bytes = count;
  return 0;
}

static int32_t get_too_much(void* user_data, uint8_t* data, size_t capacity, size_t* out_bytes) {
  (void)user_data, (void)data;
  *out_bytes = capacity + 1;
  return 0;
}

// A run that was written and read goes on as the one that was not.
static void test_streams(const setting* s) {
  trafo_step_result expected[kSteps], got[kSteps], step;
  store run = {0}, weights = {0}, vocabulary = {0}, bad = {.broken = 1};
  trafo_model *model = new_model(s, 1), *second = new_model(s, 2), *read = NULL;
  trafo_trainer *trainer = new_trainer(s, model, s->corpus), *other = NULL;
  steps(trainer, 3, got);
  FAILS(trafo_trainer_write(trainer, put, &bad), TRAFO_IO, "5");
  OK(trafo_trainer_write(trainer, put, &run));
  steps(trainer, kSteps, expected);

  other = new_trainer(s, second, s->corpus);
  OK(trafo_trainer_step(other, NULL, &step));  // it has been elsewhere
  FAILS(trafo_trainer_read(other, get, &bad), TRAFO_IO, "5");
  FAILS(trafo_trainer_read(other, get_too_much, &run), TRAFO_INVALID_ARGUMENT, "reader");
  run.size -= 1;
  FAILS(trafo_trainer_read(other, get, &run), TRAFO_CORRUPT_FILE, "ends in");
  run.size += 1;
  for (size_t at = 3; at < run.size; at += run.size / 7) {
    run.read = 0;
    run.bytes[at] ^= 1;
    trafo_error* error = trafo_trainer_read(other, get, &run);
    CHECK(trafo_error_code(error) == TRAFO_CORRUPT_FILE ||
          trafo_error_code(error) == TRAFO_VERSION);
    trafo_error_free(error);
    run.bytes[at] ^= 1;
  }
  run.read = 0;
  OK(trafo_trainer_read(other, get, &run));
  steps(other, kSteps, got);
  CHECK(same_steps(expected, got, kSteps) && got[0].update == 4);
  run.read = 0;
  OK(trafo_trainer_read(trainer, get, &run));  // and back in time
  steps(trainer, kSteps, got);
  CHECK(same_steps(expected, got, kSteps));

  OK(trafo_model_write(model, put, &weights));
  OK(trafo_model_read(s->context, get, &weights, TRAFO_FLOAT32, &read));
  FAILS(trafo_trainer_read(trainer, get, &weights), TRAFO_CORRUPT_FILE, "not a checkpoint");
  trafo_model_free(read);
  weights.read = 0;
  weights.bytes[weights.size - 1] ^= 1;
  FAILS(trafo_model_read(s->context, get, &weights, TRAFO_FLOAT32, &read), TRAFO_CORRUPT_FILE, "");
  CHECK(read == NULL);
  FAILS(trafo_model_write(model, NULL, NULL), TRAFO_INVALID_ARGUMENT, "write");
  trafo_tokenizer* tokenizer = NULL;
  OK(trafo_tokenizer_write(s->tokenizer, put, &vocabulary));
  OK(trafo_tokenizer_load_buffer(vocabulary.bytes, vocabulary.size, &tokenizer));
  trafo_tokenizer_free(tokenizer);
  free(run.bytes);
  free(weights.bytes);
  free(vocabulary.bytes);
  trafo_trainer_free(trainer);
  trafo_trainer_free(other);
  trafo_model_free(model);
  trafo_model_free(second);
}

// Two trainers of one context, a step each in turn, are as if each were alone.
static void test_two_trainers(const setting* s) {
  trafo_step_result alone[2][kSteps], in_turn[2][kSteps];
  trafo_model* models[2];
  trafo_trainer* trainers[2];
  for (int i = 0; i < 2; ++i) {
    models[i] = new_model(s, (uint64_t)i + 1);
    trainers[i] = new_trainer(s, models[i], s->corpus);
    steps(trainers[i], kSteps, alone[i]);
    trafo_trainer_free(trainers[i]);
    trafo_model_free(models[i]);
  }
  for (int i = 0; i < 2; ++i) {
    models[i] = new_model(s, (uint64_t)i + 1);
    trainers[i] = new_trainer(s, models[i], s->corpus);
  }
  for (int step = 0; step < kSteps; ++step)
    for (int i = 0; i < 2; ++i) steps(trainers[i], 1, &in_turn[i][step]);
  for (int i = 0; i < 2; ++i) {
    CHECK(same_steps(alone[i], in_turn[i], kSteps));
    trafo_trainer_free(trainers[i]);
    trafo_model_free(models[i]);
  }
}

void test_callbacks(void) {
  static const char* const words[2][4] = {{"eins", "zwei", "drei", "vier"},
                                          {"one", "two", "three", "four"}};
  for (int i = 0; i < kPairs; ++i)
    for (int side = 0; side < 2; ++side) {
      snprintf(lines[side][i], sizeof lines[0][0], "%s %s %s", words[side][i % 4],
               words[side][i / 4 % 4], words[side][i / 16 % 4]);
      sides[side][i] = view(lines[side][i]);
    }
  setting s = {.context = new_context(2)};
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 40;
  options.soft_limit = 1;
  OK(trafo_corpus_new(sides[0], sides[1], kPairs, &s.corpus));
  OK(trafo_corpus_train_tokenizer(s.corpus, &options, NULL, &s.tokenizer));
  test_rates(&s);
  test_freed_in_its_own_call(&s);
  test_pairs(&s);
  test_batches(&s, TRAFO_ENCODER_DECODER);
  test_batches(&s, TRAFO_DECODER_LM);
  test_streams(&s);
  test_two_trainers(&s);
  trafo_corpus_free(s.corpus);
  trafo_tokenizer_free(s.tokenizer);
  trafo_context_free(s.context);
}
