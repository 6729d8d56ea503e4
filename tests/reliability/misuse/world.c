/* Live handles of every kind, and the rest of what good arguments are made of. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "misuse.h"
#include "tests/capi/tiny_config.h"

world w;
const uint8_t* tokenizer_bytes;
size_t tokenizer_byte_count;
int misuse_user_data;
static char folder[200];
static uint8_t* tokenizer_copy;
typedef struct stored {
  uint8_t* data;
  size_t count, given;
} stored;
static stored model_bytes, checkpoint_bytes;
static int events;

void must(trafo_error* error) {
  if (!error) return;
  fprintf(stderr, "the table's own call failed: %s [%s]\n", trafo_error_message(error),
          trafo_error_origin(error));
  _exit(3);
}

/* ---- Functions that the library calls ---- */

int32_t region_copies(void* user_data, trafo_context* context, const trafo_tensor* const* inputs,
                      size_t input_count, trafo_tensor** outputs, size_t output_count) {
  (void)user_data;
  if (input_count < 1) return 1;
  for (size_t i = 0; i < output_count; ++i) {
    trafo_error* error = trafo_op_scale(context, inputs[0], 2, &outputs[i]);
    if (!error) continue;
    trafo_error_free(error);
    for (size_t j = 0; j < i; ++j) trafo_tensor_free(outputs[j]);
    return 1;
  }
  return 0;
}

/* Stops a run that a wrong argument has made endless. */
int32_t event_ignored(void* user_data, const trafo_event* event) {
  (void)user_data;
  return event->kind == TRAFO_EVENT_LOG && ++events > 8;
}
trafo_event_fn event_counter(void) {
  events = 0;
  return event_ignored;
}
int32_t progress_heard(void* user_data, int32_t work, int64_t done, int64_t total) {
  (void)user_data, (void)work, (void)done, (void)total;
  return 0;
}
double rate_same(void* user_data, int64_t update, double scheduled) {
  (void)user_data, (void)update;
  return scheduled;
}
int32_t pair_words(void* user_data, int64_t index, trafo_string_view* source,
                   trafo_string_view* target) {
  (void)user_data;
  *source = *target = good_lines()[index % 3];
  return 0;
}
int32_t batch_words(void* user_data, int64_t index, trafo_batch* out) {
  static const int32_t ids[4] = {4, 5, 6, TRAFO_TOKEN_EOS}, lengths[2] = {2, 2};
  (void)user_data, (void)index;
  out->sentences = 2;
  out->source = out->target = ids;
  out->source_width = out->target_width = 2;
  out->source_lengths = out->target_lengths = lengths;
  return 0;
}
int32_t write_taken(void* user_data, const uint8_t* data, size_t bytes) {
  (void)user_data, (void)data, (void)bytes;
  return 0;
}
static int32_t give(stored* from, uint8_t* data, size_t capacity, size_t* out_bytes) {
  const size_t left = from->count - from->given;
  *out_bytes = left < capacity ? left : capacity;
  memcpy(data, from->data + from->given, *out_bytes);
  from->given += *out_bytes;
  if (left == 0) from->given = 0; /* for the next reader */
  return 0;
}
int32_t read_model(void* user_data, uint8_t* data, size_t capacity, size_t* out_bytes) {
  (void)user_data;
  return give(&model_bytes, data, capacity, out_bytes);
}
int32_t read_checkpoint(void* user_data, uint8_t* data, size_t capacity, size_t* out_bytes) {
  (void)user_data;
  return give(&checkpoint_bytes, data, capacity, out_bytes);
}
void ignore_user_data(void* user_data) {
  (void)user_data;
}

static volatile int32_t last_result;
void keep_result(int32_t result) {
  last_result = result;
}
/* A text that is borrowed can be read. */
void keep_text(const char* text) {
  last_result = text ? (int32_t)strlen(text) : -1;
}

/* ---- Arguments ---- */

const trafo_string_view* good_lines(void) {
  static const trafo_string_view lines[3] = {
      {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
  return lines;
}
const trafo_string_view* good_tokens(void) {
  static const trafo_string_view tokens[3] = {{"<psi>", 5}, {"<chi>", 5}, {"<omega>", 7}};
  return tokens;
}
const trafo_ids_view* good_rows(void) {
  static const int32_t ids[3][3] = {
      {4, 5, TRAFO_TOKEN_EOS}, {6, TRAFO_TOKEN_EOS}, {5, TRAFO_TOKEN_EOS}};
  static const trafo_ids_view rows[3] = {{ids[0], 3}, {ids[1], 2}, {ids[2], 2}};
  return rows;
}
const trafo_ids_view* good_types(void) {
  static const int32_t types[3] = {0, 0, 1};
  static const trafo_ids_view rows[3] = {{types, 3}, {types, 2}, {types, 2}};
  return rows;
}
const trafo_ids_view* good_prefixes(void) {
  static const int32_t ids[1] = {4};
  static const trafo_ids_view rows[3] = {{ids, 1}, {NULL, 0}, {ids, 1}};
  return rows;
}
const trafo_string_view* good_paths(void) {
  static trafo_string_view paths[3];
  paths[0] = (trafo_string_view){w.files.tsv, strlen(w.files.tsv)};
  return paths;
}
const trafo_string_view* good_patterns(void) {
  static const trafo_string_view patterns[3] = {{"*norm*", 6}};
  return patterns;
}
const trafo_string_view* good_model_paths(void) {
  static trafo_string_view paths[3];
  paths[0] = paths[1] = (trafo_string_view){w.files.model, strlen(w.files.model)};
  return paths;
}
void good_shape(int64_t* shape, int64_t first) {
  for (int i = 0; i < 8; ++i) shape[i] = 1;
  shape[0] = first;
}
static void memory_returned(struct DLManagedTensorVersioned* managed) {
  (void)managed;
}
void good_dlpack(struct DLManagedTensorVersioned* managed, int64_t* shape) {
  /* Two elements in the middle: wrong strides and offsets lead to memory that is there. No library
   * can know the contents after the memory that a program names. */
  static float memory[16];
  memset(managed, 0, sizeof *managed);
  managed->major = 1;
  managed->deleter = memory_returned;
  managed->data = memory + 8;
  managed->device_type = 1;
  managed->ndim = 1;
  managed->code = 2;
  managed->bits = 32;
  managed->lanes = 1;
  good_shape(shape, 2);
  managed->shape = shape;
}
void trainer_settings(trafo_trainer_options* options) {
  options->max_length = 16;
  options->log_freq.value = 1;
  options->valid_beam = 1;
}

static void remove_tree(const char* path) {
  DIR* list = opendir(path);
  if (!list) {
    remove(path);
    return;
  }
  for (struct dirent* entry; (entry = readdir(list));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    char inner[1024];
    snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
    remove_tree(inner);
  }
  closedir(list);
  rmdir(path);
}
const char* fresh_path(void) {
  static char path[256];
  snprintf(path, sizeof path, "%s/new-%d", folder, (int)getpid());
  remove_tree(path);
  return path;
}

char* fresh_string(void) {
  char* text = NULL;
  size_t length;
  must(trafo_tokenizer_get_token(w.tokenizer, 5, &text, &length));
  return text;
}
int32_t* fresh_ids(void) {
  int32_t* ids = NULL;
  size_t count;
  must(trafo_tokenizer_encode(w.tokenizer, "alpha", 5, &ids, &count));
  return ids;
}
trafo_tensor* fresh_loss(void) {
  trafo_tensor* loss = NULL;
  must(trafo_op_sum(w.context, w.leaf, &loss));
  return loss;
}

/* Pieces of a SentencePiece model may follow its end: a name, no score, the type of control
 * symbols. */
static trafo_tokenizer* with_languages(void) {
  static const uint8_t pieces[] =
      "\x0a\x09\x0a\x05"
      "en_XX"
      "\x18\x03"
      "\x0a\x09\x0a\x05"
      "de_DE"
      "\x18\x03";
  const size_t count = sizeof pieces - 1;
  uint8_t* bytes = malloc(tokenizer_byte_count + count);
  if (!bytes) _exit(3);
  memcpy(bytes, tokenizer_bytes, tokenizer_byte_count);
  memcpy(bytes + tokenizer_byte_count, pieces, count);
  trafo_tokenizer* out = NULL;
  must(trafo_tokenizer_load_buffer(bytes, tokenizer_byte_count + count, &out));
  free(bytes);
  return out;
}

/* The files are there after the first world. */
static trafo_corpus* plain_text(void) {
  trafo_corpus_options options;
  must(trafo_corpus_options_init(&options, sizeof options));
  options.monolingual = 1;
  const trafo_string_view path = {w.files.text, strlen(w.files.text)};
  trafo_corpus* out = NULL;
  must(trafo_corpus_open(&path, 1, &options, NULL, &out));
  return out;
}

static trafo_tokenizer* with_template(void) {
  static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
  trafo_tokenizer* out = NULL;
  must(trafo_tokenizer_with_chat_template(w.tokenizer, source, sizeof source - 1, &out));
  return out;
}

/* ---- Handles ---- */

static trafo_tensor* tensor(int32_t dtype, int32_t rank, const void* values, size_t bytes,
                            int64_t first) {
  const int64_t shape[3] = {first, 2, 2};
  trafo_tensor* out = NULL;
  must(trafo_tensor_new(w.context, dtype, shape, rank, values, bytes, &out));
  return out;
}

static trafo_trainer* trainer(const char* directory, int64_t valid_freq) {
  trafo_trainer* out = NULL;
  trafo_trainer_options options;
  must(trafo_trainer_options_init(&options, sizeof options));
  trainer_settings(&options);
  options.valid_freq.value = valid_freq;
  must(trafo_trainer_new(w.model, w.tokenizer, w.corpus, w.corpus, &options, directory,
                         strlen(directory), NULL, &out));
  return out;
}

trafo_trainer* fresh_saver(void) {
  return trainer(fresh_path(), 1000);
}

/* After an update that was validated and saved. */
static trafo_trainer* saved_trainer(const char* directory) {
  trafo_trainer* out = trainer(directory, 1);
  int32_t stop;
  must(trafo_trainer_run(out, 1, NULL, NULL, NULL, &stop));
  must(trafo_trainer_save(out));
  return out;
}

trafo_trainer* fresh_validated(void) {
  return saved_trainer(fresh_path());
}

trafo_corpus* fresh_preferences(void) {
  trafo_corpus* corpus = NULL;
  const trafo_string_view* lines = good_lines();
  must(trafo_corpus_new_preferences(lines, lines, lines + 1, 2, &corpus));
  return corpus;
}

trafo_model* fresh_language_model(void) {
  trafo_model* model = NULL;
  trafo_model_config config = w.config;
  config.architecture = TRAFO_DECODER_LM;
  config.pre_norm = 1;
  must(trafo_model_new(w.context, &config, 1, &model));
  return model;
}
trafo_model* fresh_encoder(void) {
  trafo_model* model = NULL;
  trafo_model_config config = w.config;
  config.architecture = TRAFO_ENCODER;
  config.pre_norm = 0;
  config.encoder_head = TRAFO_ENCODER_HEAD_SEQUENCE;
  config.labels = 3;
  config.token_types = 2;
  must(trafo_model_new(w.context, &config, 1, &model));
  must(trafo_model_set_special_tokens(
      model, &(trafo_special_tokens){TRAFO_TOKEN_UNK, TRAFO_TOKEN_BOS, TRAFO_TOKEN_EOS, -1}, NULL,
      0));
  return model;
}
trafo_model* fresh_prepared_model(void) {
  trafo_model* model = fresh_language_model();
  must(trafo_model_set_special_tokens(
      model, &(trafo_special_tokens){TRAFO_TOKEN_UNK, TRAFO_TOKEN_BOS, TRAFO_TOKEN_EOS, -1}, NULL,
      0));
  must(trafo_model_prepare_inference(model));
  return model;
}
trafo_generator* fresh_generator(int started) {
  trafo_generator* generator = NULL;
  trafo_model* model = fresh_prepared_model();
  must(trafo_generator_new(model, w.tokenizer, 1, &generator));
  trafo_model_free(model);
  int64_t first;
  if (started) must(trafo_generator_start(generator, good_lines(), 1, NULL, NULL, &first));
  return generator;
}
trafo_model* fresh_adapted(int state) {
  trafo_model* model = NULL;
  must(trafo_model_new(w.context, &w.config, 1, &model));
  if (state == 3) {
    must(trafo_model_load_teacher(model, w.files.model, strlen(w.files.model)));
    return model;
  }
  if (state == 4) {
    must(trafo_model_load_reference(model, w.files.model, strlen(w.files.model)));
    return model;
  }
  if (state == 5) {
    must(trafo_model_prepare_inference(model));
    return model;
  }
  if (state > 0) must(trafo_model_add_adapter(model, 2, 4, NULL, 0, 1));
  if (state > 1) must(trafo_model_merge_adapter(model));
  return model;
}

void* fresh(int kind) {
  void* handle = NULL;
  const trafo_string_view* lines = good_lines();
  switch (kind) {
    case KIND_trafo_error:
      return trafo_cancel_new(NULL);
    case KIND_trafo_context: {
      trafo_context_options options;
      must(trafo_context_options_init(&options, sizeof options));
      options.threads = 1;
      must(trafo_context_new(&options, (trafo_context**)&handle));
      return handle;
    }
    case KIND_trafo_tensor:
      return tensor(TRAFO_FLOAT32, 1, NULL, 0, 2);
    case KIND_trafo_cancel:
      must(trafo_cancel_new((trafo_cancel**)&handle));
      return handle;
    case KIND_trafo_adamw: {
      trafo_tensor* own = tensor(TRAFO_FLOAT64, 1, NULL, 0, 2);
      must(trafo_tensor_set_requires_grad(own, 1));
      must(trafo_adamw_new(w.context, &own, 1, NULL, (trafo_adamw**)&handle));
      trafo_tensor_free(own);
      return handle;
    }
    case KIND_trafo_tokenizer:
      must(trafo_tokenizer_load_buffer(tokenizer_bytes, tokenizer_byte_count,
                                       (trafo_tokenizer**)&handle));
      return handle;
    case KIND_trafo_corpus:
      must(trafo_corpus_new(lines, lines, 3, (trafo_corpus**)&handle));
      return handle;
    case KIND_trafo_model:
      must(trafo_model_new(w.context, &w.config, 1, (trafo_model**)&handle));
      must(trafo_model_set_special_tokens(
          handle, &(trafo_special_tokens){TRAFO_TOKEN_UNK, TRAFO_TOKEN_BOS, TRAFO_TOKEN_EOS, -1},
          NULL, 0));
      return handle;
    case KIND_trafo_trainer:
      return trainer("", 1000);
    case KIND_trafo_translations:
      must(trafo_translate(w.free_model, w.tokenizer, lines, 3, NULL, NULL,
                           (trafo_translations**)&handle));
      return handle;
    case KIND_trafo_shortlist:
      must(
          trafo_shortlist_learn(w.tokenizer, lines, lines, 3, 2, NULL, (trafo_shortlist**)&handle));
      return handle;
    case KIND_trafo_group: {
      uint8_t id[TRAFO_GROUP_ID_BYTES];
      must(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id, sizeof id));
      must(trafo_group_new(w.context, NULL, id, sizeof id, (trafo_group**)&handle));
      return handle;
    }
    case KIND_trafo_generator:
      return fresh_generator(0);
    default:
      fprintf(stderr, "world.c makes no handle of kind %d\n", kind);
      _exit(3);
  }
}

void* live(int kind) {
  void* const handles[KIND_COUNT] = {
      [KIND_trafo_error] = w.error,         [KIND_trafo_context] = w.context,
      [KIND_trafo_tensor] = w.matrix,       [KIND_trafo_cancel] = w.cancel,
      [KIND_trafo_adamw] = w.adamw,         [KIND_trafo_tokenizer] = w.tokenizer,
      [KIND_trafo_corpus] = w.corpus,       [KIND_trafo_model] = w.model,
      [KIND_trafo_trainer] = w.trainer,     [KIND_trafo_translations] = w.translations,
      [KIND_trafo_shortlist] = w.shortlist, [KIND_trafo_group] = w.group,
      [KIND_trafo_generator] = w.generator};
  return handles[kind];
}

void free_handle(int kind, void* handle) {
  switch (kind) {
    case KIND_trafo_error:
      trafo_error_free(handle);
      break;
    case KIND_trafo_context:
      trafo_context_free(handle);
      break;
    case KIND_trafo_tensor:
      trafo_tensor_free(handle);
      break;
    case KIND_trafo_cancel:
      trafo_cancel_free(handle);
      break;
    case KIND_trafo_adamw:
      trafo_adamw_free(handle);
      break;
    case KIND_trafo_tokenizer:
      trafo_tokenizer_free(handle);
      break;
    case KIND_trafo_corpus:
      trafo_corpus_free(handle);
      break;
    case KIND_trafo_model:
      trafo_model_free(handle);
      break;
    case KIND_trafo_trainer:
      trafo_trainer_free(handle);
      break;
    case KIND_trafo_translations:
      trafo_translations_free(handle);
      break;
    case KIND_trafo_shortlist:
      trafo_shortlist_free(handle);
      break;
    case KIND_trafo_group:
      trafo_group_free(handle);
      break;
    case KIND_trafo_generator:
      trafo_generator_free(handle);
      break;
    default:
      fprintf(stderr, "world.c frees no handle of kind %d\n", kind);
      _exit(3);
  }
}

static void* successors[KIND_COUNT];

/* One that is no more. Another of its kind, which has the memory that it had, is alive. */
void* freed(int kind) {
  free_handle(kind, successors[kind]);
  void* handle = fresh(kind);
  free_handle(kind, handle);
  successors[kind] = fresh(kind);
  if (successors[kind] == handle) {
    fprintf(stderr, "a handle of kind %d was given out twice\n", kind);
    _exit(3);
  }
  return handle;
}

static trafo_error* probe(int kind, void* handle) {
  union {
    int32_t number;
    int64_t count;
    size_t size;
    trafo_corpus_info info;
    trafo_memory_plan plan;
    trafo_group_info group;
  } out;
  switch (kind) {
    case KIND_trafo_error:
      return strstr(trafo_error_message(handle), "not live") ? trafo_cancel_new(NULL) : NULL;
    case KIND_trafo_context:
      return trafo_context_get_device(handle, &out.number, &out.number);
    case KIND_trafo_tensor:
      return trafo_tensor_get_dtype(handle, &out.number);
    case KIND_trafo_cancel:
      return trafo_cancel_is_set(handle, &out.number);
    case KIND_trafo_adamw:
      return trafo_adamw_step(handle, 0.1, NULL);
    case KIND_trafo_tokenizer:
      return trafo_tokenizer_get_vocabulary(handle, &out.count);
    case KIND_trafo_corpus:
      return trafo_corpus_get_info(handle, &out.info);
    case KIND_trafo_model:
      return trafo_model_get_parameter_count(handle, &out.count, &out.count);
    case KIND_trafo_trainer:
      return trafo_trainer_get_plan(handle, &out.plan, sizeof out.plan);
    case KIND_trafo_translations:
      return trafo_translations_get_truncated(handle, &out.size);
    case KIND_trafo_generator: {
      trafo_generation_piece piece;
      return trafo_generator_next(handle, NULL, &piece, sizeof piece);
    }
    case KIND_trafo_group:
      return trafo_group_get_info(handle, &out.group, sizeof out.group);
    default: { /* shortlists */
      const char* path = fresh_path();
      return trafo_shortlist_save(handle, path, strlen(path));
    }
  }
}

int successors_live(void) {
  int live_ones = 1;
  for (int kind = 0; kind < KIND_COUNT; ++kind) {
    trafo_error* error = successors[kind] ? probe(kind, successors[kind]) : NULL;
    if (error) live_ones = 0;
    trafo_error_free(error);
  }
  return live_ones;
}

static void read_whole(const char* path, uint8_t** out, size_t* count) {
  FILE* file = fopen(path, "rb");
  if (!file) return;
  *out = malloc(1 << 24);
  *count = *out ? fread(*out, 1, 1 << 24, file) : 0;
  fclose(file);
}

void world_files(const char* where) {
  snprintf(folder, sizeof folder, "%s", where);
#define NAMED(name) snprintf(w.files.name, sizeof w.files.name, "%s/" #name, folder)
  NAMED(tokenizer), NAMED(shortlist), NAMED(tsv), NAMED(text), NAMED(model), NAMED(language),
      NAMED(import), NAMED(checkpoint), NAMED(run), NAMED(adapter), NAMED(tensors), NAMED(adamw);
}

void world_begin(void) {
  static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  static const double wide[2] = {1, 2};
  static const int32_t integers[3] = {0, 1, 2};
  const trafo_string_view* lines = good_lines();
  w.context = fresh(KIND_trafo_context);
  w.matrix = tensor(TRAFO_FLOAT32, 2, values, 16, 2);
  w.cube = tensor(TRAFO_FLOAT32, 3, values, 32, 2);
  w.row = tensor(TRAFO_FLOAT32, 1, values, 8, 2);
  w.ids = tensor(TRAFO_INT32, 1, integers, 8, 2);
  w.offsets = tensor(TRAFO_INT32, 1, integers, 12, 3);
  w.leaf = tensor(TRAFO_FLOAT64, 1, wide, 16, 2);
  w.doubles = tensor(TRAFO_FLOAT64, 1, wide, 16, 2);
  must(trafo_tensor_set_requires_grad(w.leaf, 1));
  w.error = fresh(KIND_trafo_error);
  w.cancel = fresh(KIND_trafo_cancel);
  w.adamw = fresh(KIND_trafo_adamw);
  w.corpus = fresh(KIND_trafo_corpus);
  trafo_tokenizer_options options;
  must(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 30;
  options.soft_limit = 1;
  must(trafo_tokenizer_train(lines, 3, &options, NULL, &w.tokenizer));
  must(tiny_config(&w.config));
  must(trafo_tokenizer_get_vocabulary(w.tokenizer, &w.config.vocabulary));
  w.config.pre_norm = 0;
  w.model = fresh(KIND_trafo_model);
  w.free_model = fresh(KIND_trafo_model);
  w.shortlist = fresh(KIND_trafo_shortlist);
  w.group = fresh(KIND_trafo_group);
  w.generator = fresh(KIND_trafo_generator);
  w.translations = fresh(KIND_trafo_translations);
  w.trainer = fresh(KIND_trafo_trainer);
  read_whole(w.files.tokenizer, &tokenizer_copy, &tokenizer_byte_count);
  tokenizer_bytes = tokenizer_copy;
  w.chatting = with_template();
  if (tokenizer_bytes) { /* the files are there after the first world */
    w.bilingual = with_languages();
    w.plain = plain_text();
  }
  read_whole(w.files.model, &model_bytes.data, &model_bytes.count);
  read_whole(w.files.checkpoint, &checkpoint_bytes.data, &checkpoint_bytes.count);
  /* Without a profile, profile_write refuses every argument. */
  must(trafo_context_profile_start(w.context, 0));
}

static int32_t write_file(void* file, const uint8_t* data, size_t count) {
  return fwrite(data, 1, count, file) != count;
}
static void write_text(const char* path, const char* text) {
  FILE* file = fopen(path, "wb");
  if (!file || fputs(text, file) < 0 || fclose(file) != 0) _exit(3);
}

void world_write_files(void) {
  must(trafo_tokenizer_save(w.tokenizer, w.files.tokenizer, strlen(w.files.tokenizer)));
  must(trafo_shortlist_save(w.shortlist, w.files.shortlist, strlen(w.files.shortlist)));
  must(trafo_model_save(w.model, w.files.model, strlen(w.files.model)));
  trafo_model* language = fresh_language_model();
  must(trafo_model_save(language, w.files.language, strlen(w.files.language)));
  trafo_model_free(language);
  must(trafo_model_export(w.model, w.tokenizer, TRAFO_EXPORT_HF_MARIAN,
                          TRAFO_EXPORT_WEIGHTS_BY_FORMAT, w.files.import, strlen(w.files.import),
                          NULL, NULL));
  FILE* file = fopen(w.files.checkpoint, "wb");
  if (!file) _exit(3);
  must(trafo_trainer_write(w.trainer, write_file, file));
  if (fclose(file) != 0) _exit(3);
  trafo_trainer_free(saved_trainer(w.files.run));
  must(trafo_tokenizer_save(w.tokenizer, w.files.run, strlen(w.files.run)));
  trafo_model* adapted = fresh_adapted(1);
  must(trafo_model_save_adapter(adapted, w.files.adapter, strlen(w.files.adapter)));
  trafo_model_free(adapted);
  must(trafo_adamw_save(w.adamw, w.files.adamw, strlen(w.files.adamw)));
  const trafo_tensor* const row = w.row;
  must(trafo_tensors_save(w.context, w.files.tensors, strlen(w.files.tensors), good_lines(), &row,
                          1));
  write_text(w.files.tsv, "alpha\tbeta\nbeta\tgamma\n");
  write_text(w.files.text, "alpha\nbeta\n");
}

void world_end(void) {
  trafo_tensor* const tensors[] = {w.matrix, w.cube, w.row, w.ids, w.offsets, w.leaf, w.doubles};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; ++i) trafo_tensor_free(tensors[i]);
  trafo_tokenizer_free(w.bilingual);
  trafo_tokenizer_free(w.chatting);
  trafo_corpus_free(w.plain);
  trafo_model_free(w.free_model);
  for (int kind = 0; kind < KIND_COUNT; ++kind) free_handle(kind, successors[kind]);
  for (int kind = 0; kind < KIND_COUNT; ++kind) free_handle(kind, live(kind));
  free(tokenizer_copy);
  free(model_bytes.data);
  free(checkpoint_bytes.data);
}
