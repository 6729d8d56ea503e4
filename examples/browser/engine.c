#include "engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trafo.h>

static char reason[1024];
static char* output;
static double output_tokens;
static atomic_int stop;

/* A model with what it needs. */
typedef struct {
  trafo_context* context;
  trafo_model* model;
  trafo_tokenizer* tokenizer;
} loaded_model;

/* The model that translates, and the folder that it is from. */
static loaded_model translator;
static char translator_folder[256];
static int translator_threads;

void page_stop(void) {
  atomic_store(&stop, 1);
}
const char* page_output(void) {
  return output ? output : "";
}
double page_output_tokens(void) {
  return output_tokens;
}
const char* page_error(void) {
  return reason;
}

static int failed(trafo_error* error) {
  if (!error) return 0;
  snprintf(reason, sizeof reason, "%s: %s", trafo_error_origin(error), trafo_error_message(error));
  trafo_error_free(error);
  return 1;
}

static int no_memory(void) {
  snprintf(reason, sizeof reason, "there is no memory for the text");
  return -1;
}

static int make_context(int threads, trafo_context** context) {
  trafo_context_options options;
  if (failed(trafo_context_options_init(&options, sizeof options))) return -1;
  options.threads = threads;
  return failed(trafo_context_new(&options, context)) ? -1 : 0;
}

static void free_model(loaded_model* loaded) {
  trafo_tokenizer_free(loaded->tokenizer);
  trafo_model_free(loaded->model);
  trafo_context_free(loaded->context);
  memset(loaded, 0, sizeof *loaded);
}

static int save(const loaded_model* loaded, const char* folder) {
  char path[512];
  int length = snprintf(path, sizeof path, "%s/model.safetensors", folder);
  if (failed(trafo_model_save(loaded->model, path, (size_t)length))) return -1;
  length = snprintf(path, sizeof path, "%s/spm.model", folder);
  return failed(trafo_tokenizer_save(loaded->tokenizer, path, (size_t)length)) ? -1 : 0;
}

static int load(const char* folder, int threads, loaded_model* loaded) {
  char path[512];
  if (make_context(threads, &loaded->context) != 0) return -1;
  int length = snprintf(path, sizeof path, "%s/model.safetensors", folder);
  if (failed(trafo_model_load(loaded->context, path, (size_t)length, &loaded->model))) return -1;
  length = snprintf(path, sizeof path, "%s/spm.model", folder);
  return failed(trafo_tokenizer_load(path, (size_t)length, &loaded->tokenizer)) ? -1 : 0;
}

static int make_model(const trafo_corpus* corpus, int vocabulary, loaded_model* made) {
  trafo_tokenizer_options options;
  if (failed(trafo_tokenizer_options_init(&options, sizeof options))) return -1;
  options.vocabulary = vocabulary;
  options.soft_limit = 1; /* fewer tokens are allowed: the text may be small */
  if (failed(trafo_corpus_train_tokenizer(corpus, &options, NULL, &made->tokenizer))) return -1;
  trafo_model_config config;
  if (failed(trafo_model_config_init(&config, sizeof config)) ||
      failed(trafo_model_config_preset(&config, "tiny", 4)) ||
      failed(trafo_tokenizer_get_vocabulary(made->tokenizer, &config.vocabulary)))
    return -1;
  config.encoder_layers = config.decoder_layers = 2;
  config.width = 64;
  config.ffn_width = 256;
  config.heads = 4;
  return failed(trafo_model_new(made->context, &config, 1, &made->model)) ? -1 : 0;
}

int page_create(const char* folder, const char* pairs, int vocabulary, int threads) {
  trafo_corpus* corpus = NULL;
  loaded_model made = {0};
  free_model(&translator);
  int result = failed(trafo_corpus_load_tsv(pairs, strlen(pairs), NULL, &corpus)) ? -1 : 0;
  if (result == 0) result = make_context(threads, &made.context);
  if (result == 0) result = make_model(corpus, vocabulary, &made);
  if (result == 0) result = save(&made, folder);
  free_model(&made);
  trafo_corpus_free(corpus);
  return result;
}

static int32_t on_event(void* user_data, const trafo_event* event) {
  (void)user_data;
  if (event->kind == TRAFO_EVENT_LOG) page_event((double)event->update, event->loss);
  return atomic_load(&stop);
}

static int run_trainer(const loaded_model* loaded, const trafo_corpus* corpus, const char* run,
                       int updates, double rate) {
  trafo_trainer_options options;
  if (failed(trafo_trainer_options_init(&options, sizeof options))) return -1;
  options.learning_rate = rate;
  options.warmup = 10;
  options.batch_tokens = 500;
  options.after_updates = updates;
  options.log_freq.value = 1;
  options.keep_last = 1;
  trafo_trainer* trainer = NULL;
  if (failed(trafo_trainer_new(loaded->model, loaded->tokenizer, corpus, NULL, &options, run,
                               strlen(run), NULL, &trainer)))
    return -1;
  int32_t why = 0;
  trafo_error* const error = trafo_trainer_run(trainer, 0, NULL, on_event, NULL, &why);
  trafo_trainer_free(trainer);
  if (error && trafo_error_code(error) == TRAFO_CANCELLED && atomic_load(&stop)) {
    trafo_error_free(error);
    return 0;
  }
  return failed(error) ? -1 : 0;
}

int page_train(const char* folder, const char* pairs, const char* run, int updates, double rate,
               int threads) {
  trafo_corpus* corpus = NULL;
  loaded_model loaded = {0};
  atomic_store(&stop, 0);
  free_model(&translator);
  int result = failed(trafo_corpus_load_tsv(pairs, strlen(pairs), NULL, &corpus)) ? -1 : 0;
  if (result == 0) result = load(folder, threads, &loaded);
  if (result == 0) result = run_trainer(&loaded, corpus, run, updates, rate);
  if (result == 0) result = save(&loaded, folder);
  free_model(&loaded);
  trafo_corpus_free(corpus);
  return result;
}

static int load_translator(const char* folder, int threads) {
  if (translator.tokenizer && translator_threads == threads &&
      strcmp(translator_folder, folder) == 0)
    return 0;
  free_model(&translator);
  snprintf(translator_folder, sizeof translator_folder, "%s", folder);
  translator_threads = threads;
  if (load(folder, threads, &translator) == 0 &&
      !failed(trafo_model_prepare_inference(translator.model)))
    return 0;
  free_model(&translator);
  return -1;
}

/* Lines of a text, which end with a newline or the text. The caller frees *lines. */
static int split(const char* text, trafo_string_view** lines, size_t* count) {
  size_t most = 1;
  for (const char* at = text; *at; ++at) most += *at == '\n';
  *count = 0;
  *lines = malloc(most * sizeof **lines);
  if (!*lines) return no_memory();
  while (*text) {
    const trafo_string_view line = {text, strcspn(text, "\n")};
    (*lines)[(*count)++] = line;
    text += line.length + (text[line.length] == '\n');
  }
  return 0;
}

static int append(trafo_string_view line, size_t* bytes) {
  char* const longer = realloc(output, *bytes + line.length + 2);
  if (!longer) return no_memory();
  output = longer;
  memcpy(output + *bytes, line.data, line.length);
  *bytes += line.length + 1;
  output[*bytes - 1] = '\n';
  output[*bytes] = 0;
  return 0;
}

static int take_output(const trafo_translations* translations, size_t count) {
  size_t bytes = 0;
  free(output);
  output = NULL;
  output_tokens = 0;
  for (size_t i = 0; i < count; ++i) {
    trafo_string_view line;
    const int32_t* tokens;
    size_t length = 0;
    if (failed(trafo_translations_get(translations, i, 0, &line, NULL)) ||
        failed(trafo_translations_get_tokens(translations, i, 0, &tokens, &length)))
      return -1;
    output_tokens += (double)length + 1;
    if (append(line, &bytes) != 0) return -1;
  }
  return 0;
}

int page_translate(const char* folder, const char* lines, int beam, int threads) {
  trafo_translate_options options;
  trafo_string_view* sources = NULL;
  trafo_translations* translations = NULL;
  size_t count = 0;
  if (load_translator(folder, threads) != 0 || split(lines, &sources, &count) != 0 ||
      failed(trafo_translate_options_init(&options, sizeof options)))
    return -1;
  options.beam = beam;
  const int result = failed(trafo_translate(translator.model, translator.tokenizer, sources, count,
                                            &options, NULL, &translations))
                         ? -1
                         : take_output(translations, count);
  trafo_translations_free(translations);
  free(sources);
  return result;
}
