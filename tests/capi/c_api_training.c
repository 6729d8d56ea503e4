// Text to translation: tokenizers, corpora, models, training runs, translation, metrics.
#include "capi_check.h"

enum { kPairs = 120 };

static char lines[2][kPairs][64];
static trafo_string_view source[kPairs], target[kPairs];

// "one two .." in one language, the same numbers in the other.
static void make_pairs(void) {
  static const char* const words[2][6] = {{"eins", "zwei", "drei", "vier", "neun", "zehn"},
                                          {"one", "two", "three", "four", "nine", "ten"}};
  for (int i = 0; i < kPairs; ++i)
    for (int side = 0; side < 2; ++side) {
      snprintf(lines[side][i], sizeof lines[0][0], "%s %s %s", words[side][i % 6],
               words[side][i / 6 % 6], words[side][i / 36 % 6]);
      (side ? target : source)[i] = view(lines[side][i]);
    }
}

typedef struct log_of_events {
  int count[16];
  int stop_at_update;
  trafo_trainer* trainer;  // used from inside, which is refused
  trafo_model* model;
  trafo_tokenizer* tokenizer;
  int refused;
  int free_it;
} log_of_events;

static int32_t on_event(void* user_data, const trafo_event* event) {
  log_of_events* log = user_data;
  CHECK(event->struct_size == sizeof *event && event->kind >= 0 && event->kind < 16);
  ++log->count[event->kind];
  if (event->kind == TRAFO_EVENT_VALIDATED) {
    CHECK(event->metric_count == 3 && event->metrics[0].metric == TRAFO_METRIC_BLEU &&
          event->metrics[2].metric == TRAFO_METRIC_CE);
    for (int64_t i = 0; i < event->metric_count; ++i) CHECK(isfinite(event->metrics[i].value));
  }
  if (event->kind == TRAFO_EVENT_SAVED) CHECK(event->path.length > 0);
  if (log->trainer && event->kind == TRAFO_EVENT_LOG && !log->refused) {
    trafo_step_result step;
    FAILS(trafo_trainer_step(log->trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "at work");
    FAILS(trafo_trainer_save(log->trainer), TRAFO_INVALID_ARGUMENT, "at work");
    ++log->refused;
    trafo_translations* translations = NULL;  // the model may be used
    OK(trafo_translate(log->model, log->tokenizer, source, 1, NULL, NULL, &translations));
    trafo_translations_free(translations);
    if (log->free_it) trafo_trainer_free(log->trainer);
  }
  return log->stop_at_update > 0 && event->update >= log->stop_at_update;
}

static trafo_model* new_model(trafo_context* context, int64_t vocabulary, uint64_t seed) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  config.vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 32;
  config.ffn_width = 64;
  config.heads = 2;
  config.dropout = 0.1;
  config.max_positions = 64;
  OK(trafo_model_new(context, &config, seed, &model));
  return model;
}

static void test_text(trafo_tokenizer* tokenizer, trafo_corpus* corpus) {
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  CHECK(vocabulary > 10);
  int64_t of_sources = -1;
  OK(trafo_tokenizer_get_source_vocabulary(tokenizer, &of_sources));
  CHECK(of_sources == 0);
  int32_t* ids = NULL;
  size_t count = 0, length = 0;
  char* text = NULL;
  OK(trafo_tokenizer_encode(tokenizer, "eins zwei", 9, &ids, &count));
  CHECK(count > 0);
  OK(trafo_tokenizer_decode(tokenizer, ids, count, &text, &length));
  CHECK(length == 9 && strcmp(text, "eins zwei") == 0);
  trafo_string_free(text);
  trafo_ids_free(ids);
  OK(trafo_tokenizer_encode(tokenizer, NULL, 0, &ids, &count));
  CHECK(ids != NULL && count == 0);
  trafo_ids_free(ids);
  OK(trafo_tokenizer_get_token(tokenizer, TRAFO_TOKEN_EOS, &text, &length));
  CHECK(strcmp(text, "</s>") == 0);
  trafo_string_free(text);
  trafo_special_tokens special;
  OK(trafo_tokenizer_get_special(tokenizer, &special));
  CHECK(special.unk == TRAFO_TOKEN_UNK && special.bos == TRAFO_TOKEN_BOS);
  CHECK(special.eos == TRAFO_TOKEN_EOS && special.pad == TRAFO_TOKEN_PAD);
  FAILS(trafo_tokenizer_get_special(tokenizer, NULL), TRAFO_INVALID_ARGUMENT, "out is NULL");
  FAILS(trafo_tokenizer_get_special(NULL, &special), TRAFO_INVALID_ARGUMENT, "tokenizer");
  const int32_t wild[] = {(int32_t)vocabulary};
  FAILS(trafo_tokenizer_decode(tokenizer, wild, 1, &text, &length), TRAFO_INVALID_ARGUMENT, "");
  FAILS(trafo_tokenizer_get_token(tokenizer, -1, &text, &length), TRAFO_INVALID_ARGUMENT, "-1");

  trafo_tokenizer *loaded = NULL, *from_buffer = NULL;
  const char* path = work_path("spm.model");
  OK(trafo_tokenizer_save(tokenizer, path, strlen(path)));
  OK(trafo_tokenizer_load(path, strlen(path), &loaded));
  size_t bytes = 0;
  uint8_t* data = read_file(path, &bytes);
  OK(trafo_tokenizer_load_buffer(data, bytes, &from_buffer));
  free(data);
  int64_t again = 0;
  OK(trafo_tokenizer_get_vocabulary(from_buffer, &again));
  CHECK(again == vocabulary);
  trafo_tokenizer_free(loaded);
  trafo_tokenizer_free(from_buffer);

  trafo_corpus_info info;
  trafo_string_view left, right;
  OK(trafo_corpus_get_info(corpus, &info));
  CHECK(info.pairs == kPairs && info.lines == kPairs && info.dropped_empty == 0);
  OK(trafo_corpus_get_pair(corpus, 1, &left, &right));
  CHECK(left.length == source[1].length && memcmp(right.data, target[1].data, right.length) == 0);
  FAILS(trafo_corpus_get_pair(corpus, kPairs, &left, &right), TRAFO_INVALID_ARGUMENT, "119");

  trafo_corpus *tsv = NULL, *files = NULL;
  path = work_path("a.tsv");
  write_file(path, "a\tb\n\tempty\nc\td\n", 15);
  OK(trafo_corpus_load_tsv(path, strlen(path), NULL, &tsv));
  OK(trafo_corpus_get_info(tsv, &info));
  CHECK(info.lines == 3 && info.pairs == 2 && info.dropped_empty == 1);
  trafo_corpus_free(tsv);
  OK(trafo_corpus_load(path, strlen(path), path, strlen(path), NULL, &files));
  trafo_corpus_free(files);
}

// A configuration needs the header of a file alone, and a header whose tensors fit it.
static void test_config_without_weights(const char* path, const trafo_model_config* config) {
  size_t bytes = 0;
  uint8_t* data = read_file(path, &bytes);
  uint64_t header = 0;
  memcpy(&header, data, sizeof header);
  const char* other = work_path("header.safetensors");
  trafo_model_config read;
  memset(data + 8 + header, 0xff, bytes - 8 - header);  // NaN: the weights are not looked at
  write_file(other, data, bytes);
  OK(trafo_model_read_config(other, strlen(other), &read, sizeof read));
  CHECK(memcmp(&read, config, sizeof read) == 0);
  uint8_t* name = NULL;  // a tensor of another name
  for (size_t i = 8; i + 8 < 8 + header && !name; ++i)
    if (memcmp(data + i, ".weight\"", 8) == 0) name = data + i;
  CHECK(name != NULL);
  if (name) name[1] = 'W';
  write_file(other, data, bytes);
  FAILS(trafo_model_read_config(other, strlen(other), &read, sizeof read), TRAFO_CORRUPT_FILE,
        "the header is damaged");
  CHECK(read.struct_size == 0);
  FAILS(trafo_model_read_config("nowhere", 7, &read, sizeof read), TRAFO_NOT_FOUND, "nowhere");
  free(data);
}

static void test_model(trafo_context* context, trafo_model* model) {
  int64_t tensors = 0, elements = 0, sum = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  for (int64_t i = 0; i < tensors; ++i) {
    const char* name = NULL;
    trafo_tensor* parameter = NULL;
    int64_t shape[8], product = 1;
    int32_t rank = 0;
    OK(trafo_model_get_parameter(model, i, &name, &parameter));
    CHECK(name && name[0]);
    OK(trafo_tensor_get_shape(parameter, shape, 8, &rank));
    for (int32_t j = 0; j < rank; ++j) product *= shape[j];
    sum += product;
    OK(trafo_tensor_set_requires_grad(parameter, 0));  // of this handle, not of the model
    trafo_tensor_free(parameter);
  }
  CHECK(sum == elements);
  FAILS(trafo_model_get_parameter(model, tensors, NULL, NULL), TRAFO_INVALID_ARGUMENT, "index");

  trafo_model* loaded = NULL;
  trafo_model_config config;
  const char* path = work_path("model.safetensors");
  OK(trafo_model_save(model, path, strlen(path)));
  OK(trafo_model_load(context, path, strlen(path), &loaded));
  OK(trafo_model_get_config(loaded, &config, sizeof config));
  CHECK(config.width == 32 && config.heads == 2 && config.struct_size == sizeof config);
  trafo_model_free(loaded);
  OK(trafo_model_load_as(context, path, strlen(path), TRAFO_FLOAT32, &loaded));
  OK(trafo_model_get_config(loaded, &config, sizeof config));
  CHECK(config.width == 32 && config.precision == TRAFO_FLOAT32);
  trafo_model_free(loaded);
  trafo_model_config read;
  OK(trafo_model_read_config(path, strlen(path), &read, sizeof read));
  CHECK(memcmp(&read, &config, sizeof read) == 0);
  test_config_without_weights(path, &config);
  FAILS(trafo_model_load_as(context, path, strlen(path), TRAFO_BFLOAT16, &loaded),
        TRAFO_UNSUPPORTED, "bfloat16");
  FAILS(trafo_model_load_as(context, path, strlen(path), TRAFO_FLOAT64, &loaded), TRAFO_UNSUPPORTED,
        "float32 weights");
  FAILS(trafo_model_load_as(context, path, strlen(path), TRAFO_INT32, &loaded),
        TRAFO_INVALID_ARGUMENT, "precision");
}

// A model's bytes as its file.
static uint8_t* model_bytes(trafo_model* model, size_t* bytes) {
  const char* path = work_path("bytes.safetensors");
  OK(trafo_model_save(model, path, strlen(path)));
  return read_file(path, bytes);
}

// The models of a run directory, and the trainer's best one.
static void test_models_of_run(trafo_context* context, trafo_trainer* trainer, trafo_model* last,
                               const char* directory) {
  const size_t length = strlen(directory);
  trafo_model *loaded = NULL, *best = NULL;
  size_t bytes[2];
  OK(trafo_model_load_run(context, directory, length, TRAFO_RUN_LAST, TRAFO_FLOAT32, &loaded));
  uint8_t* files[2] = {model_bytes(last, &bytes[0]), model_bytes(loaded, &bytes[1])};
  CHECK(bytes[0] == bytes[1] && memcmp(files[0], files[1], bytes[0]) == 0);
  free(files[0]);
  free(files[1]);
  trafo_model_free(loaded);
  OK(trafo_model_load_run(context, directory, length, TRAFO_RUN_BEST, TRAFO_FLOAT32, &loaded));
  OK(trafo_trainer_load_best(trainer, &best));
  files[0] = model_bytes(loaded, &bytes[0]);
  files[1] = model_bytes(best, &bytes[1]);
  CHECK(bytes[0] == bytes[1] && memcmp(files[0], files[1], bytes[0]) == 0);
  free(files[0]);
  free(files[1]);
  trafo_model_free(best);
  trafo_model_free(loaded);
  FAILS(
      trafo_model_load_run(context, directory, length, TRAFO_RUN_AVERAGED, TRAFO_FLOAT32, &loaded),
      TRAFO_NOT_FOUND, "has no averaged model");
  CHECK(loaded == NULL);
  FAILS(trafo_model_load_run(context, directory, length, 3, TRAFO_FLOAT32, &loaded),
        TRAFO_INVALID_ARGUMENT, "TRAFO_RUN_AVERAGED (2)");
  FAILS(trafo_model_load_run(context, "no/run", 6, TRAFO_RUN_BEST, TRAFO_FLOAT32, &loaded),
        TRAFO_NOT_FOUND, "no such directory");
}

// RUN/ckpt/UPDATE/model.safetensors by the names of the checkpoint.
static void expect_checkpoint(const char* run, const char* name, int64_t update) {
  char *found = NULL, expected[4096];
  snprintf(expected, sizeof expected, "%s/ckpt/%lld/model.safetensors", run, (long long)update);
  OK(trafo_find_checkpoint(run, strlen(run), name, strlen(name), &found));
  CHECK(found && strcmp(found, expected) == 0);
  trafo_string_free(found);
}

static void test_checkpoints_of_run(const char* run) {
  const size_t length = strlen(run);
  int64_t updates[16] = {0}, count = 0, all = 0;
  OK(trafo_list_checkpoints(run, length, NULL, 0, &all));
  OK(trafo_list_checkpoints(run, length, updates, 16, &count));
  CHECK(all == count && count >= 2 && updates[count - 1] == 12);
  for (int64_t i = 1; i < count; ++i) CHECK(updates[i - 1] < updates[i]);
  int64_t first = -1;
  updates[1] = -1;
  OK(trafo_list_checkpoints(run, length, &first, 1, &count));
  CHECK(first == updates[0] && count == all && updates[1] == -1);
  expect_checkpoint(run, "12", 12);
  expect_checkpoint(run, "latest", 12);
  char *found = NULL, *best = NULL, path[4096];
  OK(trafo_find_model(run, length, &best));
  OK(trafo_find_checkpoint(run, length, "best-bleu", 9, &found));
  CHECK(strcmp(found, best) == 0);
  trafo_string_free(found);
  trafo_string_free(best);
  snprintf(path, sizeof path, "%s/best-guess", run);
  write_file(path, "../../12\n", 9);
  FAILS(trafo_find_checkpoint(run, length, "best-guess", 10, &found), TRAFO_CORRUPT_FILE,
        "best-guess does not hold an update number");
  const char* absent[] = {"7", "best-ter", "averaged", "../run/latest", ""};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; ++i) {
    FAILS(trafo_find_checkpoint(run, length, absent[i], strlen(absent[i]), &found), TRAFO_NOT_FOUND,
          " has no ");
    CHECK(found == NULL);
  }
  FAILS(trafo_find_checkpoint("nowhere", 7, "latest", 6, &found), TRAFO_NOT_FOUND,
        "no such directory");
  OK(trafo_list_checkpoints("nowhere", 7, updates, 16, &count));
  CHECK(count == 0);
  snprintf(path, sizeof path, "%s/latest/run", run);  // below a file
  OK(trafo_list_checkpoints(path, strlen(path), updates, 16, &count));
  CHECK(count == 0);
  FAILS(trafo_list_checkpoints(run, length, updates, -1, &count), TRAFO_INVALID_ARGUMENT,
        "capacity must be at least 0");
}

// A tokenizer of another size, and one of the same size that the model was not trained with.
static void test_tokenizer_of_model(trafo_context* context, const trafo_tokenizer* tokenizer,
                                    const trafo_corpus* corpus, const char* run) {
  trafo_model *trained = NULL, *fresh = NULL;
  trafo_tokenizer *other = NULL, *smaller = NULL;
  OK(trafo_model_load_run(context, run, strlen(run), TRAFO_RUN_LAST, TRAFO_FLOAT32, &trained));
  OK(trafo_model_check_tokenizer(trained, tokenizer));
  int64_t vocabulary = 0, size = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = vocabulary;
  options.bpe = 1;
  OK(trafo_corpus_train_tokenizer(corpus, &options, NULL, &other));
  OK(trafo_tokenizer_get_vocabulary(other, &size));
  CHECK(size == vocabulary);
  FAILS(trafo_model_check_tokenizer(trained, other), TRAFO_INVALID_ARGUMENT,
        "was trained with another vocabulary than the tokenizer");
  fresh = new_model(context, vocabulary, 5);
  OK(trafo_model_check_tokenizer(fresh, other));  // no vocabulary is known
  options.vocabulary = vocabulary - 1;
  OK(trafo_corpus_train_tokenizer(corpus, &options, NULL, &smaller));
  FAILS(trafo_model_check_tokenizer(fresh, smaller), TRAFO_INVALID_ARGUMENT,
        "they do not belong together");
  trafo_tokenizer_free(smaller);
  trafo_tokenizer_free(other);
  trafo_model_free(fresh);
  trafo_model_free(trained);
}

static void test_run(trafo_context* context, trafo_tokenizer* tokenizer, trafo_corpus* corpus,
                     int64_t vocabulary) {
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.max_length = 32;
  options.warmup = 10;
  options.after_updates = 12;
  options.log_freq.value = 2;
  options.valid_freq.value = 6;
  options.save_freq.value = 5;
  const char *directory = work_path("run"), *whole = work_path("whole");

  trafo_model *uncut = new_model(context, vocabulary, 3),
              *model = new_model(context, vocabulary, 3);
  int32_t stop = -1;
  log_of_events log = {.model = uncut, .tokenizer = tokenizer};
  OK(trafo_trainer_new(uncut, tokenizer, corpus, corpus, &options, whole, strlen(whole), NULL,
                       &trainer));
  log.trainer = trainer;
  OK(trafo_trainer_run(trainer, 0, NULL, on_event, &log, &stop));
  CHECK(stop == TRAFO_STOP_LIMIT && log.refused == 1);
  CHECK(log.count[TRAFO_EVENT_STARTED] == 1 && log.count[TRAFO_EVENT_LOG] == 6 &&
        log.count[TRAFO_EVENT_VALIDATING] == 2 && log.count[TRAFO_EVENT_VALIDATED] == 2 &&
        log.count[TRAFO_EVENT_SAVED] >= 3 && log.count[TRAFO_EVENT_FINISHED] == 1);
  trafo_step_result step;
  FAILS(trafo_trainer_step(trainer, NULL, &step), TRAFO_INVALID_ARGUMENT, "training is done");
  trafo_metric_value metrics[TRAFO_METRIC_COUNT];
  int64_t metric_count = 0;
  OK(trafo_trainer_validate(trainer, NULL, metrics, TRAFO_METRIC_COUNT, &metric_count));
  CHECK(metric_count == 3 && metrics[2].metric == TRAFO_METRIC_CE && metrics[2].value > 0);
  CHECK(metrics[0].value >= 0 && metrics[1].value >= 0);
  FAILS(trafo_trainer_validate(trainer, NULL, metrics, 2, &metric_count), TRAFO_INVALID_ARGUMENT,
        "capacity is 2, and there are 3 metrics");
  CHECK(metric_count == 0);
  char *found = NULL, *same = NULL;
  OK(trafo_find_model(whole, strlen(whole), &found));
  OK(trafo_find_model(found, strlen(found), &same));
  CHECK(strstr(found, "model.safetensors") != NULL && strcmp(found, same) == 0);
  trafo_string_free(found);
  trafo_string_free(same);
  FAILS(trafo_find_model("nowhere", 7, &found), TRAFO_NOT_FOUND, "no such file");
  CHECK(found == NULL);
  test_checkpoints_of_run(whole);
  test_tokenizer_of_model(context, tokenizer, corpus, whole);
  test_models_of_run(context, trainer, uncut, whole);
  trafo_trainer_free(trainer);

  // The same in pieces: a step, a cancel, a callback that stops, a new process' trainer.
  OK(trafo_trainer_new(model, tokenizer, corpus, corpus, &options, directory, strlen(directory),
                       NULL, &trainer));
  OK(trafo_trainer_step(trainer, NULL, &step));
  CHECK(step.update == 1 && step.labels > 0 && isfinite(step.loss) && !step.skipped);
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_trainer_run(trainer, 0, cancel, NULL, NULL, &stop), TRAFO_CANCELLED, "cancel token");
  OK(trafo_cancel_reset(cancel));
  OK(trafo_trainer_run(trainer, 2, cancel, NULL, NULL, &stop));
  CHECK(stop == TRAFO_STOP_PAUSED);
  log_of_events second = {.stop_at_update = 5, .model = model, .tokenizer = tokenizer};
  FAILS(trafo_trainer_run(trainer, 0, cancel, on_event, &second, &stop), TRAFO_CANCELLED,
        "callback");
  OK(trafo_trainer_save(trainer));
  trafo_trainer_free(trainer);
  trafo_model_free(model);

  model = new_model(context, vocabulary, 99);  // the checkpoint's weights replace these
  OK(trafo_trainer_new(model, tokenizer, corpus, corpus, &options, directory, strlen(directory),
                       NULL, &trainer));
  log_of_events third = {.trainer = trainer,
                         .model = model,
                         .tokenizer = tokenizer,
                         .free_it = 1};  // frees the trainer from inside
  OK(trafo_trainer_run(trainer, 0, cancel, on_event, &third, &stop));
  CHECK(third.count[TRAFO_EVENT_RESUMED] == 1 && third.count[TRAFO_EVENT_FINISHED] == 1 &&
        stop == TRAFO_STOP_LIMIT);
  FAILS(trafo_trainer_save(trainer), TRAFO_INVALID_ARGUMENT, "freed");
  size_t bytes[2];
  uint8_t* files[2] = {model_bytes(uncut, &bytes[0]), model_bytes(model, &bytes[1])};
  CHECK(bytes[0] == bytes[1] && memcmp(files[0], files[1], bytes[0]) == 0);
  free(files[0]);
  free(files[1]);

  // Another architecture's checkpoint, and no run directory to save into.
  trafo_model_config config;
  trafo_model* other = NULL;
  OK(trafo_model_get_config(model, &config, sizeof config));
  config.width = 64;
  OK(trafo_model_new(context, &config, 1, &other));
  FAILS(trafo_trainer_new(other, tokenizer, corpus, corpus, &options, directory, strlen(directory),
                          NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "width");
  CHECK(trainer == NULL);
  OK(trafo_trainer_new(other, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  FAILS(trafo_trainer_save(trainer), TRAFO_INVALID_ARGUMENT, "run directory");
  FAILS(trafo_trainer_validate(trainer, NULL, metrics, TRAFO_METRIC_COUNT, &metric_count),
        TRAFO_INVALID_ARGUMENT, "validation corpus");
  CHECK(metric_count == 0);
  trafo_model* none = NULL;
  FAILS(trafo_trainer_load_best(trainer, &none), TRAFO_INVALID_ARGUMENT, "run directory");
  CHECK(none == NULL);
  OK(trafo_trainer_step(trainer, NULL, &step));
  // A model that a trainer still changes cannot be promised to stay unchanged.
  FAILS(trafo_model_prepare_inference(other), TRAFO_INVALID_ARGUMENT, "has a trainer");
  OK(trafo_trainer_step(trainer, NULL, &step));
  trafo_trainer_free(trainer);
  OK(trafo_model_prepare_inference(other));
  FAILS(trafo_trainer_new(other, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "prepared for inference");
  trafo_model_free(other);
  trafo_model_free(model);
  trafo_model_free(uncut);
  trafo_cancel_free(cancel);
}

static void test_sampling(trafo_model* model, trafo_tokenizer* tokenizer) {
  trafo_translate_options options;
  trafo_translations *both = NULL, *second = NULL;
  trafo_string_view a, b;
  OK(trafo_translate_options_init(&options, sizeof options));
  CHECK(options.sampling == 0 && options.temperature == 1 && options.top_p == 1 &&
        options.seed == 1);
  options.sampling = 1;
  options.n_best = 7; /* more than the beam */
  options.min_length = 2;
  options.max_length = 12;
  OK(trafo_translate(model, tokenizer, source, 2, &options, NULL, &both));
  options.first_line = 1;
  OK(trafo_translate(model, tokenizer, source + 1, 1, &options, NULL, &second));
  for (size_t rank = 0; rank < 7; ++rank) {
    OK(trafo_translations_get(both, 1, rank, &a, NULL));
    OK(trafo_translations_get(second, 0, rank, &b, NULL));
    CHECK(a.length == b.length && memcmp(a.data, b.data, a.length) == 0);
  }
  trafo_translations_free(both);
  trafo_translations_free(second);
  options.temperature = 0;
  FAILS(trafo_translate(model, tokenizer, source, 1, &options, NULL, &both), TRAFO_INVALID_ARGUMENT,
        "temperature");
}

static void test_word_scores(trafo_model* model, trafo_tokenizer* tokenizer) {
  trafo_translate_options options;
  trafo_translations *found = NULL, *given = NULL;
  OK(trafo_translate_options_init(&options, sizeof options));
  CHECK(options.word_scores == 0 && options.alignment == 0 && options.alignment_layer == 0);
  options.n_best = 2;
  options.max_length = 12;
  options.word_scores = options.alignment = 1;
  OK(trafo_translate(model, tokenizer, source, 3, &options, NULL, &found));
  for (size_t line = 0; line < 3; ++line) {
    trafo_string_view text;
    double score = 0, sum = 0;
    const int32_t* tokens = NULL;
    const double* scores = NULL;
    const float* weights = NULL;
    size_t token_count = 0, score_count = 0, rows = 0, columns = 0;
    int64_t had = 0, used = 0;
    OK(trafo_translations_get(found, line, 0, &text, &score));
    OK(trafo_translations_get_tokens(found, line, 0, &tokens, &token_count));
    OK(trafo_translations_get_word_scores(found, line, 0, &scores, &score_count));
    OK(trafo_translations_get_alignment(found, line, 0, &weights, &rows, &columns));
    OK(trafo_translations_get_source(found, line, &had, &used));
    CHECK(token_count > 0 && (score_count == token_count || score_count == token_count + 1));
    CHECK(rows == score_count && columns == (size_t)used);
    for (size_t i = 0; i < score_count; ++i) sum += scores[i];
    NEAR(sum / (double)score_count, score, 1e-9);
    for (size_t t = 0; t < rows; ++t) {
      double row = 0;
      for (size_t s = 0; s < columns; ++s) row += (double)weights[t * columns + s];
      NEAR(row, 1, 1e-5);
    }
  }
  const double* scores = NULL;
  const float* weights = NULL;
  size_t count = 1, rows = 1, columns = 1;
  FAILS(trafo_translations_get_word_scores(found, 0, 9, &scores, &count), TRAFO_NOT_FOUND,
        "hypotheses, not 10");
  FAILS(trafo_translations_get_alignment(found, 3, 0, &weights, &rows, &columns),
        TRAFO_INVALID_ARGUMENT, "index is 3");
  trafo_translations_free(found);

  double log_probability[3];
  int64_t tokens[3];
  OK(trafo_score(model, tokenizer, source, target, 3, NULL, log_probability, tokens));
  options.length_penalty = 0;
  OK(trafo_force_decode(model, tokenizer, source, target, 3, &options, NULL, &given));
  for (size_t line = 0; line < 3; ++line) {
    trafo_string_view text;
    double score = 0;
    OK(trafo_translations_get(given, line, 0, &text, &score));
    OK(trafo_translations_get_word_scores(given, line, 0, &scores, &count));
    CHECK(text.length == target[line].length &&
          memcmp(text.data, target[line].data, text.length) == 0);
    CHECK((int64_t)count == tokens[line]);
    NEAR(score, log_probability[line], 1e-9);
  }
  trafo_translations_free(given);
  OK(trafo_force_decode(model, tokenizer, source, target, 1, NULL, NULL, &given));
  OK(trafo_translations_get_word_scores(given, 0, 0, &scores, &count));
  OK(trafo_translations_get_alignment(given, 0, 0, &weights, &rows, &columns));
  CHECK(scores == NULL && count == 0 && weights == NULL && rows == 0 && columns == 0);
  trafo_translations_free(given);
  options.alignment_layer = 2;
  FAILS(trafo_translate(model, tokenizer, source, 1, &options, NULL, &found),
        TRAFO_INVALID_ARGUMENT, "alignment_layer is 2, the model has decoder layers 1 to 1");

  // Given beginnings, rules and distinct texts.
  OK(trafo_translate_options_init(&options, sizeof options));
  CHECK(options.repetition_penalty == 1 && options.no_repeat_ngram_size == 0 &&
        options.distinct == 0);
  options.max_length = 12;
  options.repetition_penalty = 1.5;
  options.no_repeat_ngram_size = 2;
  options.distinct = 1;
  const trafo_string_view none = {"", 0};
  const trafo_string_view prefixes[] = {target[0], none, target[2]};
  OK(trafo_translate_with_prefixes(model, tokenizer, source, prefixes, 3, &options, NULL, &found));
  for (size_t line = 0; line < 3; ++line) {
    trafo_string_view text;
    OK(trafo_translations_get(found, line, 0, &text, NULL));
    CHECK(text.length >= prefixes[line].length &&
          memcmp(text.data, prefixes[line].data, prefixes[line].length) == 0);
  }
  trafo_translations_free(found);
  options.repetition_penalty = 0;
  FAILS(trafo_translate(model, tokenizer, source, 1, &options, NULL, &found),
        TRAFO_INVALID_ARGUMENT, "repetition_penalty");
  FAILS(trafo_score_text(model, tokenizer, target, 3, NULL, NULL, &found), TRAFO_UNSUPPORTED,
        "scores pairs, not plain text");
}

// Signs that the vocabulary spells in three bytes each: what is too long is cut between signs.
static void test_truncation(trafo_context* context, trafo_corpus* corpus) {
  trafo_tokenizer_options options;
  trafo_tokenizer* tokenizer = NULL;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 300;
  options.byte_fallback = 1;
  options.soft_limit = 1;
  OK(trafo_corpus_train_tokenizer(corpus, &options, NULL, &tokenizer));
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  trafo_model* model = new_model(context, vocabulary, 1);
  char euros[40 * 3 + 1] = "";
  for (int i = 0; i < 40; ++i) memcpy(euros + 3 * i, "\xe2\x82\xac", 3);
  const trafo_string_view line = {euros, 120};
  trafo_translations* translations = NULL;
  int64_t had = 0, used = 0;
  OK(trafo_translate(model, tokenizer, &line, 1, NULL, NULL, &translations));
  OK(trafo_translations_get_source(translations, 0, &had, &used));
  CHECK(had == 1 + 120 + 1);  // word boundary, bytes, eos
  CHECK(used == 1 + 60 + 1);  // of 64 at most
  trafo_translations_free(translations);
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
}

static void test_translation(trafo_model* model, trafo_tokenizer* tokenizer) {
  trafo_translate_options options;
  trafo_translations* translations = NULL;
  trafo_string_view text, some[3] = {source[0], view(""), source[1]};
  double score = 0;
  size_t count = 0;
  OK(trafo_translate_options_init(&options, sizeof options));
  options.beam = 3;
  options.n_best = 2;
  options.max_length = 12;
  OK(trafo_translate(model, tokenizer, some, 3, &options, NULL, &translations));
  OK(trafo_translations_get_count(translations, 0, &count));
  CHECK(count >= 1 && count <= 2);
  OK(trafo_translations_get(translations, 0, count - 1, &text, &score));
  CHECK(score < 0);
  FAILS(trafo_translations_get(translations, 0, count, &text, &score), TRAFO_NOT_FOUND,
        "hypotheses, not");
  OK(trafo_translations_get(translations, 1, 0, &text, NULL));
  CHECK(text.length == 0);
  int32_t finish = -1;
  OK(trafo_translations_get_finish(translations, 1, 0, &finish));
  CHECK(finish == TRAFO_FINISH_END);
  FAILS(trafo_translations_get_finish(translations, 0, 2, &finish), TRAFO_NOT_FOUND,
        "hypotheses, not 3");
  FAILS(trafo_translations_get(translations, 0, 2, &text, &score), TRAFO_NOT_FOUND,
        "hypotheses, not 3");
  FAILS(trafo_translations_get(translations, 3, 0, &text, &score), TRAFO_INVALID_ARGUMENT,
        "3 lines");
  OK(trafo_translations_get_truncated(translations, &count));
  CHECK(count == 0);
  int64_t had = 0, used = 0;
  OK(trafo_translations_get_source(translations, 0, &had, &used));
  CHECK(had > 1 && used == had);
  FAILS(trafo_translations_get_source(translations, 3, &had, &used), TRAFO_INVALID_ARGUMENT,
        "3 lines");
  trafo_translations_free(translations);
  test_sampling(model, tokenizer);
  test_word_scores(model, tokenizer);
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_translate(model, tokenizer, some, 3, NULL, cancel, &translations), TRAFO_CANCELLED,
        "");
  trafo_cancel_free(cancel);
  options.n_best = 9;
  FAILS(trafo_translate(model, tokenizer, some, 3, &options, NULL, &translations),
        TRAFO_INVALID_ARGUMENT, "n_best");

  double log_probability[2];
  int64_t tokens[2];
  OK(trafo_score(model, tokenizer, source, target, 2, NULL, log_probability, tokens));
  CHECK(log_probability[0] < 0 && isfinite(log_probability[1]) && tokens[0] > 1);
  OK(trafo_score(model, tokenizer, source, target, 2, NULL, log_probability, NULL));
}

static void test_metrics(void) {
  const trafo_string_view hypothesis = view("the cat sat on the mat"),
                          reference = view("the cat sat on a mat");
  double score = 0;
  char* signature = NULL;
  OK(trafo_bleu(&hypothesis, &hypothesis, 1, 0, &score, &signature));
  NEAR(score, 100, 1e-9);
  CHECK(signature && strstr(signature, "13a"));
  trafo_string_free(signature);
  OK(trafo_bleu(&hypothesis, &reference, 1, 0, &score, NULL));
  NEAR(score, 100 * pow(5.0 / 6 * 3 / 5 * 2 / 4 * 1 / 3, 0.25), 1e-6);
  OK(trafo_chrf(&hypothesis, &reference, 1, &score, &signature));
  CHECK(score > 50 && score < 100 && signature && strstr(signature, "nc:6"));
  trafo_string_free(signature);
  const trafo_string_view hypotheses[2] = {view("two words"), hypothesis},
                          references[2] = {view("two words"), reference};
  double bleu[2] = {0, 0}, chrf[2] = {0, 0}, alone[2] = {0, 0};
  OK(trafo_sentence_scores(hypotheses, references, 2, NULL, bleu, chrf));
  NEAR(bleu[0], 100, 1e-9);
  NEAR(bleu[1], 100 * pow(5.0 / 6 * 3 / 5 * 2 / 4 * 1 / 3, 0.25), 1e-6);
  NEAR(chrf[0], 100, 1e-9);
  NEAR(chrf[1], score, 1e-9);
  OK(trafo_sentence_scores(hypotheses, references, 2, NULL, NULL, alone));
  CHECK(alone[0] == chrf[0] && alone[1] == chrf[1]);
  FAILS(trafo_sentence_scores(hypotheses, references, 2, NULL, NULL, NULL), TRAFO_INVALID_ARGUMENT,
        "both NULL");
  FAILS(trafo_sentence_scores(hypotheses, references, 0, NULL, bleu, chrf), TRAFO_INVALID_ARGUMENT,
        "no hypotheses");
}

static int64_t matrices_of(const trafo_model* model, int64_t bits) {
  int64_t tensors = 0, elements = 0, found = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  for (int64_t i = 0; i < tensors; ++i) {
    trafo_parameter_info info;
    OK(trafo_model_get_parameter_info(model, i, &info, sizeof info));
    CHECK((info.dtype == TRAFO_INT8) == (info.bits < 32));
    if (info.rows > 1 && info.bits == bits) ++found;
  }
  return found;
}

static void test_quantization(trafo_context* context, trafo_model* model,
                              const trafo_tokenizer* tokenizer, const trafo_corpus* corpus) {
  const char* path = work_path("quantized");
  const trafo_string_view keep[2] = {{"encoder.*", 9}, {"nothing.*", 9}};
  trafo_quantize_options options;
  trafo_model *quantized = NULL, *loaded = NULL, *none = NULL;
  OK(trafo_quantize_options_init(&options, sizeof options));
  CHECK(options.bits == 8 && options.method == TRAFO_QUANTIZE_NEAREST && !options.calibration);
  OK(trafo_model_quantize(model, NULL, NULL, &quantized));
  CHECK(matrices_of(quantized, 8) > 0 && matrices_of(quantized, 32) == 0 &&
        matrices_of(model, 8) == 0);
  FAILS(trafo_model_quantize(quantized, NULL, NULL, &none), TRAFO_UNSUPPORTED,
        "quantized weights already");
  trafo_model_free(quantized);

  options.bits = 4;
  options.method = TRAFO_QUANTIZE_GPTQ;
  options.keep_float = keep;
  options.keep_float_count = 1;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "needs calibration pairs");
  options.calibration = corpus;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "need a tokenizer");
  options.tokenizer = tokenizer;
  OK(trafo_model_quantize(model, &options, NULL, &quantized));
  OK(trafo_model_save(quantized, path, strlen(path)));
  OK(trafo_model_load(context, path, strlen(path), &loaded));
  CHECK(matrices_of(loaded, 4) > 0 && matrices_of(loaded, 32) > 0 && matrices_of(loaded, 8) == 0);
  CHECK(matrices_of(loaded, 4) == matrices_of(quantized, 4));
  trafo_model_free(quantized);
  trafo_model_free(loaded);

  options.keep_float_count = 2;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_NOT_FOUND, "nothing.*");
  options.method = 2;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "method must be");
  options.method = TRAFO_QUANTIZE_NEAREST;
  options.bits = 3;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "bits must be 8 or 4, got 3");
  trafo_tokenizer_options other;
  trafo_tokenizer* short_one = NULL;
  OK(trafo_tokenizer_options_init(&other, sizeof other));
  other.vocabulary = 30;
  other.soft_limit = 1;
  OK(trafo_corpus_train_tokenizer(corpus, &other, NULL, &short_one));
  options.bits = 4;
  options.keep_float_count = 1;
  options.tokenizer = short_one;
  FAILS(trafo_model_quantize(model, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "the tokenizer has");
  trafo_tokenizer_free(short_one);
  CHECK(none == NULL);
}

void test_training(void) {
  make_pairs();
  trafo_context* context = new_context(2);
  trafo_corpus* corpus = NULL;
  trafo_tokenizer *tokenizer = NULL, *from_lines = NULL;
  trafo_tokenizer_options options;
  OK(trafo_corpus_new(source, target, kPairs, &corpus));
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 60;
  options.soft_limit = 1;
  OK(trafo_corpus_train_tokenizer(corpus, &options, NULL, &tokenizer));
  const trafo_string_view symbol = {"<x>", 3};
  trafo_tokenizer_options chosen = options;
  chosen.normalization = TRAFO_NORMALIZATION_NFKC_CF;
  chosen.user_symbols = &symbol;
  chosen.user_symbol_count = 1;
  int32_t* ids = NULL;
  char* text = NULL;
  size_t count = 0, length = 0;
  if (OK(trafo_tokenizer_train(source, kPairs, &chosen, NULL, &from_lines))) {
    OK(trafo_tokenizer_encode(from_lines, "<x>EINS", 7, &ids, &count));
    OK(trafo_tokenizer_decode(from_lines, ids, count, &text, &length));
    CHECK(length == 7 && strcmp(text, "<x>eins") == 0);
    trafo_string_free(text);
    OK(trafo_tokenizer_get_token(from_lines, ids[1], &text, &length));
    CHECK(strcmp(text, "<x>") == 0);
    trafo_string_free(text);
    trafo_ids_free(ids);
    trafo_tokenizer_free(from_lines);
  }
  chosen.normalization = 5;
  FAILS(trafo_tokenizer_train(source, kPairs, &chosen, NULL, &from_lines), TRAFO_INVALID_ARGUMENT,
        "normalization must be 0 to 4, got 5");
  chosen.normalization = TRAFO_NORMALIZATION_IDENTITY;
  chosen.user_symbols = NULL;
  FAILS(trafo_tokenizer_train(source, kPairs, &chosen, NULL, &from_lines), TRAFO_INVALID_ARGUMENT,
        "user_symbols");
  int64_t vocabulary = 0;
  if (OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary))) {
    trafo_model* model = new_model(context, vocabulary, 1);
    test_text(tokenizer, corpus);
    test_model(context, model);
    test_run(context, tokenizer, corpus, vocabulary);
    test_translation(model, tokenizer);
    test_truncation(context, corpus);
    trafo_model* floats = new_model(context, vocabulary, 2);
    test_quantization(context, floats, tokenizer, corpus);
    trafo_model_free(floats);
    trafo_model_free(model);
  }
  test_metrics();
  trafo_corpus_free(corpus);
  trafo_tokenizer_free(tokenizer);
  trafo_context_free(context);
}
