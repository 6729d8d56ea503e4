/* A program that trains, is killed, resumes and translates, for systems without Rust and Go:
 *
 *   kill_and_resume RUN UPDATES [KILLED_AT]
 *
 * Saves every tenth update. KILLED_AT: killed at the end of this update. Prints the update that it
 * resumed after, if any, and translations. kill_and_resume.sh calls it. */
#include "examples/c/guide.h"

#ifdef _WIN32
#include <windows.h>
static void kill_this_program(void) {
  TerminateProcess(GetCurrentProcess(), 137);
}
#else
#include <signal.h>
static void kill_this_program(void) {
  raise(SIGKILL);
}
#endif

enum { kPairs = 64, kFreq = 10 };

static long long killed_at = -1;

static int32_t on_event(void* user_data, const trafo_event* event) {
  (void)user_data;
  if (event->kind == TRAFO_EVENT_RESUMED)
    printf("resumed after %lld updates\n", (long long)event->update);
  if (event->kind == TRAFO_EVENT_LOG && event->update == killed_at) kill_this_program();
  return 0;
}

static trafo_corpus* made_up_pairs(void) {
  static const char* const german[] = {"eins", "zwei", "drei", "vier"};
  static const char* const english[] = {"one", "two", "three", "four"};
  static char lines[2][kPairs][32];
  trafo_string_view source[kPairs], target[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    snprintf(lines[0][i], sizeof lines[0][i], "%s %s %s", german[i % 4], german[i / 4 % 4],
             german[i / 16]);
    snprintf(lines[1][i], sizeof lines[1][i], "%s %s %s", english[i % 4], english[i / 4 % 4],
             english[i / 16]);
    source[i] = text(lines[0][i]);
    target[i] = text(lines[1][i]);
  }
  trafo_corpus* corpus = NULL;
  must(trafo_corpus_new(source, target, kPairs, &corpus));
  return corpus;
}

static trafo_tokenizer* train_tokenizer(trafo_corpus* corpus) {
  trafo_tokenizer_options options;
  trafo_tokenizer* tokenizer = NULL;
  must(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 40;
  options.soft_limit = 1;
  must(trafo_corpus_train_tokenizer(corpus, &options, NULL, &tokenizer));
  return tokenizer;
}

static trafo_model* new_model(trafo_context* context, trafo_tokenizer* tokenizer) {
  trafo_model_config config;
  trafo_model* model = NULL;
  must(trafo_model_config_init(&config, sizeof config));
  must(trafo_model_config_preset(&config, "tiny", 4));
  must(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 32;
  config.ffn_width = 64;
  config.heads = 2;
  config.dropout = 0;
  must(trafo_model_new(context, &config, 1, &model));
  return model;
}

static void translate(trafo_model* model, trafo_tokenizer* tokenizer) {
  const trafo_string_view lines[] = {text("eins zwei drei"), text("vier vier eins")};
  trafo_translations* translations = NULL;
  must(trafo_translate(model, tokenizer, lines, 2, NULL, NULL, &translations));
  for (size_t i = 0; i < 2; ++i) {
    trafo_string_view translation;
    double score = 0;
    must(trafo_translations_get(translations, i, 0, &translation, &score));
    printf("%.*s\n", (int)translation.length, translation.data);
  }
  trafo_translations_free(translations);
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  if (count > 3) killed_at = atoll(arguments[3]);
  trafo_context* context = NULL;
  trafo_context_options threads;
  must(trafo_context_options_init(&threads, sizeof threads));
  threads.threads = 2;
  must(trafo_context_new(&threads, &context));
  trafo_corpus* corpus = made_up_pairs();
  trafo_tokenizer* tokenizer = train_tokenizer(corpus);
  trafo_model* model = new_model(context, tokenizer);

  trafo_trainer_options options;
  must(trafo_trainer_options_init(&options, sizeof options));
  options.learning_rate = 5e-3;
  options.warmup = 10;
  options.batch_tokens = 200;
  options.after_updates = atoll(arguments[2]);
  options.log_freq.value = 1;
  options.save_freq = (trafo_period){.value = kFreq, .unit = TRAFO_UNIT_UPDATES};
  trafo_trainer* trainer = NULL;
  int32_t stop = 0;
  must(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, arguments[1],
                         strlen(arguments[1]), NULL, &trainer));
  must(trafo_trainer_run(trainer, 0, NULL, on_event, NULL, &stop));
  trafo_trainer_free(trainer);
  translate(model, tokenizer);
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
  trafo_corpus_free(corpus);
  trafo_context_free(context);
  return 0;
}
