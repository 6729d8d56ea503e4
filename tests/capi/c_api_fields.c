// Errors name the option or argument that was wrong. Each option of every table is made wrong once.
#include <math.h>

#include "capi_check.h"
#include "generated/wrong_options.h"

static void check_field(trafo_error* error, const char* field, int line) {
  const int right = error != NULL && trafo_error_code(error) == TRAFO_INVALID_ARGUMENT &&
                    strcmp(trafo_error_field(error), field) == 0 &&
                    strncmp(trafo_error_message(error), field, strlen(field)) == 0;
  if (!right)
    fprintf(stderr, "line %d: %s: field \"%s\", message \"%s\"\n", line, field,
            trafo_error_field(error), trafo_error_message(error));
  CHECK(right);
  trafo_error_free(error);
}

static void test_model_fields(trafo_context* context) {
  trafo_model_config good, config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&good, sizeof good));
  OK(trafo_model_config_preset(&good, "tiny", 4));
#define WRONG(field, member, value)                                           \
  config = good;                                                              \
  config.member = value;                                                      \
  check_field(trafo_model_new(context, &config, 1, &model), field, __LINE__); \
  CHECK(model == NULL);
  WRONG_TRAFO_MODEL_CONFIG(WRONG)
#undef WRONG
}

static void test_trainer_fields(void) {
  trafo_model_config config;
  trafo_trainer_options good, options;
  trafo_memory_plan plan;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  OK(trafo_trainer_options_init(&good, sizeof good));
#define WRONG(field, member, value)                                                                \
  options = good;                                                                                  \
  options.member = value;                                                                          \
  check_field(trafo_plan_training(&config, &options, NULL, 0, 2, 8, 8, &plan, sizeof plan), field, \
              __LINE__);
  WRONG_TRAFO_TRAINER_OPTIONS(WRONG)
#undef WRONG
  options = good;
  options.valid_metrics = TRAFO_METRIC_BLEU | TRAFO_METRIC_CHRF;
  options.first_metric = TRAFO_METRIC_CE;
  FAILS(trafo_plan_training(&config, &options, NULL, 0, 2, 8, 8, &plan, sizeof plan),
        TRAFO_INVALID_ARGUMENT, "first_metric ce-mean-words is not one of valid_metrics bleu,chrf");
}

static void test_translate_fields(trafo_context* context) {
  const trafo_string_view lines[] = {{"a b c", 5}, {"b c d", 5}, {"c d e", 5}};
  trafo_tokenizer_options cut;
  trafo_tokenizer* tokenizer = NULL;
  trafo_model_config config;
  trafo_model* model = NULL;
  trafo_translate_options good, options;
  trafo_translations* translations = NULL;
  OK(trafo_tokenizer_options_init(&cut, sizeof cut));
  cut.vocabulary = -1;
  check_field(trafo_tokenizer_train(lines, 3, &cut, NULL, &tokenizer), "vocabulary", __LINE__);
  cut.vocabulary = 40;
  cut.character_coverage = 0.5;
  check_field(trafo_tokenizer_train(lines, 3, &cut, NULL, &tokenizer), "character_coverage",
              __LINE__);
  cut.character_coverage = 1;
  cut.soft_limit = 1;
  OK(trafo_tokenizer_train(lines, 3, &cut, NULL, &tokenizer));
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  OK(trafo_model_new(context, &config, 1, &model));
  OK(trafo_translate_options_init(&good, sizeof good));
#define WRONG(field, member, value)                                                              \
  options = good;                                                                                \
  options.member = value;                                                                        \
  check_field(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &translations), field, \
              __LINE__);
  WRONG_TRAFO_TRANSLATE_OPTIONS(WRONG)
#undef WRONG
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
}

static void test_evaluation_fields(void) {
  const trafo_string_view text[] = {{"a b c d", 7}};
  trafo_evaluation_options good, options;
  trafo_evaluation scores;
  OK(trafo_evaluation_options_init(&good, sizeof good));
  good.confidence = 1;
#define WRONG(field, member, value)                                                           \
  options = good;                                                                             \
  options.member = value;                                                                     \
  check_field(trafo_evaluate(text, text, 1, 1, NULL, &options, NULL, &scores, sizeof scores), \
              field, __LINE__);
  WRONG_TRAFO_EVALUATION_OPTIONS(WRONG)
#undef WRONG
}

void test_fields(void) {
  CHECK(strcmp(trafo_error_field(NULL), "") == 0);
  trafo_context* context = new_context(1);
  test_model_fields(context);
  test_trainer_fields();
  test_translate_fields(context);
  test_evaluation_fields();
  // Arguments that are no options, and an error of no argument.
  trafo_context* none = NULL;
  trafo_context_options options;
  OK(trafo_context_options_init(&options, sizeof options));
  check_field(trafo_context_new(&options, NULL), "out", __LINE__);
  options.threads = -1;
  check_field(trafo_context_new(&options, &none), "threads", __LINE__);
  trafo_model* model = NULL;
  trafo_error* error = trafo_model_load(context, "/nonexistent", 12, &model);
  CHECK(trafo_error_code(error) == TRAFO_NOT_FOUND && strcmp(trafo_error_field(error), "") == 0);
  trafo_error_free(error);
  trafo_context_free(context);
}
