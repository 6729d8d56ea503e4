// Freezing of parameters, factors of their learning rate and weight decay, LoRA adapters, which
// freeze the model, and teachers.
#include "capi_check.h"

enum { kPairs = 40 };

static trafo_model* new_model(trafo_context* context, int64_t vocabulary) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  config.vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  OK(trafo_model_new(context, &config, 3, &model));
  return model;
}

static trafo_parameter_info info_of(const trafo_model* model, int64_t index) {
  trafo_parameter_info info;
  OK(trafo_model_get_parameter_info(model, index, &info, sizeof info));
  return info;
}

static int begins(const char* name, const char* prefix) {
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

// The values of parameter `index`, for free().
static float* values_of(trafo_model* model, int64_t index, size_t* bytes) {
  trafo_tensor* tensor = NULL;
  OK(trafo_model_get_parameter(model, index, NULL, &tensor));
  *bytes = (size_t)info_of(model, index).elements * sizeof(float);
  float* values = malloc(*bytes);
  OK(trafo_tensor_read(tensor, values, *bytes));
  trafo_tensor_free(tensor);
  return values;
}

static void test_infos(trafo_model* model) {
  int64_t tensors = 0, elements = 0, sum = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  for (int64_t i = 0; i < tensors; ++i) {
    const trafo_parameter_info info = info_of(model, i);
    const char* name = NULL;
    OK(trafo_model_get_parameter(model, i, &name, NULL));
    CHECK(strcmp(info.name, name) == 0);
    const int norm_or_bias = strstr(name, "norm") || strstr(name, "bias");
    CHECK(strcmp(info.group, norm_or_bias ? "norms_and_biases" : "matrices") == 0);
    CHECK(info.struct_size == sizeof info && info.dtype == TRAFO_FLOAT32 && info.trainable == 1);
    CHECK(info.lr_factor == 1 && info.weight_decay_factor == 1);
    sum += info.elements;
  }
  CHECK(sum == elements);
  trafo_parameter_info info;
  FAILS(trafo_model_get_parameter_info(model, tensors, &info, sizeof info), TRAFO_INVALID_ARGUMENT,
        "index");
}

static void test_refusals(trafo_model* model) {
  int64_t count = 7;
  FAILS(trafo_model_freeze(model, "encode", 6, &count), TRAFO_NOT_FOUND, "\"encode\"");
  CHECK(count == 0);
  FAILS(trafo_model_unfreeze(model, "x*", 2, NULL), TRAFO_NOT_FOUND, "x*");
  FAILS(trafo_model_set_update_factors(model, "*", 1, -1, 1, NULL), TRAFO_INVALID_ARGUMENT,
        "factors");
  FAILS(trafo_model_set_update_factors(model, "*", 1, 1, NAN, NULL), TRAFO_INVALID_ARGUMENT,
        "factors");
  // A tensor of a parameter would go on with memory that the model has left.
  trafo_tensor* parameter = NULL;
  OK(trafo_model_get_parameter(model, 0, NULL, &parameter));
  FAILS(trafo_model_freeze(model, "encoder.*", 9, &count), TRAFO_INVALID_ARGUMENT, "in use");
  CHECK(count == 0 && info_of(model, 1).trainable == 1);
  trafo_tensor_free(parameter);
}

static void test_frozen_training(trafo_model* model, const trafo_tokenizer* tokenizer,
                                 const trafo_corpus* corpus) {
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_step_result step;
  int64_t tensors = 0, elements = 0, count = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.warmup = 1;
  trafo_memory_plan whole, part;
  OK(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  OK(trafo_trainer_get_plan(trainer, &whole, sizeof whole));
  FAILS(trafo_model_freeze(model, "encoder.*", 9, NULL), TRAFO_INVALID_ARGUMENT, "has a trainer");
  FAILS(trafo_model_set_update_factors(model, "*", 1, 1, 0, NULL), TRAFO_INVALID_ARGUMENT,
        "has a trainer");
  trafo_trainer_free(trainer);

  const char* name = info_of(model, 1).name;
  OK(trafo_model_freeze(model, "encoder.*", 9, &count));
  CHECK(count > 4 && strcmp(info_of(model, 1).name, name) == 0);
  OK(trafo_model_freeze(model, "*embedding.weight", 17, &count));
  CHECK(count >= 1);
  OK(trafo_model_set_update_factors(model, "decoder.0.ffn.*", 15, 0.5, 0, &count));
  CHECK(count == 4);
  float** before = calloc((size_t)tensors, sizeof *before);
  size_t bytes = 0;
  int64_t frozen = 0;
  for (int64_t i = 0; i < tensors; ++i) {
    const trafo_parameter_info info = info_of(model, i);
    const int of_ffn = begins(info.name, "decoder.0.ffn.");
    frozen += !info.trainable;
    CHECK(info.trainable == !(begins(info.name, "encoder.") || strstr(info.name, "embedding")));
    CHECK(info.lr_factor == (of_ffn ? 0.5 : 1) && info.weight_decay_factor == !of_ffn);
    before[i] = values_of(model, i, &bytes);
  }
  CHECK(frozen > 4 && frozen < tensors);
  OK(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  OK(trafo_trainer_get_plan(trainer, &part, sizeof part));
  CHECK(part.gradients_bytes < whole.gradients_bytes && part.total_bytes < whole.total_bytes);
  for (int i = 0; i < 3; ++i) OK(trafo_trainer_step(trainer, NULL, &step));
  trafo_trainer_free(trainer);
  for (int64_t i = 0; i < tensors; ++i) {
    float* after = values_of(model, i, &bytes);
    CHECK((memcmp(before[i], after, bytes) == 0) == !info_of(model, i).trainable);
    free(before[i]);
    free(after);
  }
  free(before);

  OK(trafo_model_unfreeze(model, "encoder.*", 9, &count));
  CHECK(count > 4 && info_of(model, 1).trainable == 1);
  OK(trafo_model_freeze(model, "*", 1, &count));
  CHECK(count == tensors);
  FAILS(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "nothing to train");
  OK(trafo_model_prepare_inference(model));
  FAILS(trafo_model_unfreeze(model, "*", 1, NULL), TRAFO_INVALID_ARGUMENT, "prepared");
}

// The values of all parameters, one after the other, for free().
static float* all_values(trafo_model* model, size_t* bytes) {
  int64_t tensors = 0, elements = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  float* all = malloc((size_t)elements * sizeof *all);
  *bytes = 0;
  for (int64_t i = 0; i < tensors; ++i) {
    size_t size = 0;
    float* values = values_of(model, i, &size);
    memcpy((char*)all + *bytes, values, size);
    *bytes += size;
    free(values);
  }
  return all;
}

static double score_of(trafo_model* model, const trafo_tokenizer* tokenizer) {
  const trafo_string_view line = {"alpha beta", 10};
  double score = 0;
  OK(trafo_score(model, tokenizer, &line, &line, 1, NULL, &score, NULL));
  return score;
}

// `attached` has the adapter of the directory. `base`, prepared for inference, is freed.
static void test_adapted_model(trafo_model* attached, trafo_model* base,
                               const trafo_tokenizer* tokenizer, const char* directory) {
  trafo_model *adapted = NULL, *none = NULL;
  int64_t tensors = 0, of_attached = 0, elements = 0;
  const size_t length = strlen(directory);
  const double expected = score_of(attached, tokenizer), before = score_of(base, tokenizer);
  FAILS(trafo_model_with_adapter(attached, directory, length, &none), TRAFO_INVALID_ARGUMENT,
        "base must be prepared");
  FAILS(trafo_model_with_adapter(base, "nowhere", 7, &none), TRAFO_NOT_FOUND, "nowhere");
  FAILS(trafo_model_with_adapter(base, directory, length, NULL), TRAFO_INVALID_ARGUMENT, "NULL");
  OK(trafo_model_with_adapter(base, directory, length, &adapted));
  FAILS(trafo_model_with_adapter(adapted, directory, length, &none), TRAFO_INVALID_ARGUMENT,
        "has an adapter");
  CHECK(none == NULL);
  CHECK(score_of(adapted, tokenizer) == expected && expected != before);
  CHECK(score_of(base, tokenizer) == before);
  trafo_model_free(base);
  OK(trafo_model_prepare_inference(adapted));  // it is
  FAILS(trafo_model_remove_adapter(adapted), TRAFO_INVALID_ARGUMENT, "prepared");
  FAILS(trafo_model_merge_adapter(adapted), TRAFO_INVALID_ARGUMENT, "prepared");
  OK(trafo_model_get_parameter_count(adapted, &tensors, &elements));
  OK(trafo_model_get_parameter_count(attached, &of_attached, &elements));
  CHECK(tensors == of_attached && info_of(adapted, 0).trainable == 0);
  CHECK(score_of(adapted, tokenizer) == expected);
  trafo_model_free(adapted);
}

static void test_adapters(trafo_context* context, const trafo_tokenizer* tokenizer,
                          const trafo_corpus* corpus, int64_t vocabulary) {
  char directory[512];
  snprintf(directory, sizeof directory, "%s", work_path("adapter"));
  trafo_model *model = new_model(context, vocabulary), *other = new_model(context, vocabulary);
  int64_t tensors = 0, elements = 0, more = 0;
  size_t bytes = 0, same = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &elements));
  float* base = all_values(model, &bytes);
  FAILS(trafo_model_add_adapter(model, 0, 1, NULL, 0, 1), TRAFO_INVALID_ARGUMENT, "rank");
  FAILS(trafo_model_add_adapter(model, 2, 4, "query,head", 10, 1), TRAFO_INVALID_ARGUMENT,
        "'head'");
  FAILS(trafo_model_add_adapter(model, 2, 4, "query,", 6, 1), TRAFO_INVALID_ARGUMENT,
        "targets has ''");
  FAILS(trafo_model_merge_adapter(model), TRAFO_INVALID_ARGUMENT, "no adapter");
  OK(trafo_model_add_adapter(model, 2, 4, "value,query", 11, 1));
  OK(trafo_model_get_parameter_count(model, &more, &elements));
  CHECK(more > tensors && strcmp(info_of(model, more - 1).group, "adapter") == 0);
  for (int64_t i = 0; i < more; ++i) CHECK(info_of(model, i).trainable == (i >= tensors));

  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_step_result step;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.warmup = 1;
  OK(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  for (int i = 0; i < 3; ++i) OK(trafo_trainer_step(trainer, NULL, &step));
  FAILS(trafo_model_remove_adapter(model), TRAFO_INVALID_ARGUMENT, "has a trainer");
  trafo_trainer_free(trainer);
  OK(trafo_model_save_adapter(model, directory, strlen(directory)));
  float* trained = all_values(model, &same);
  CHECK(same > bytes && memcmp(base, trained, bytes) == 0);

  OK(trafo_model_load_adapter(other, directory, strlen(directory)));
  FAILS(trafo_model_load_adapter(other, directory, strlen(directory)), TRAFO_INVALID_ARGUMENT,
        "already");
  float* loaded = all_values(other, &bytes);
  CHECK(bytes == same && memcmp(trained, loaded, bytes) == 0);
  free(loaded);
  OK(trafo_model_merge_adapter(other));
  FAILS(trafo_model_save_adapter(other, directory, strlen(directory)), TRAFO_INVALID_ARGUMENT,
        "merged");
  float* merged = all_values(other, &bytes);
  CHECK(memcmp(base, merged, bytes) != 0);
  free(merged);
  OK(trafo_model_unmerge_adapter(other));
  OK(trafo_model_remove_adapter(other));
  float* removed = all_values(other, &bytes);
  CHECK(memcmp(base, removed, bytes) == 0);
  free(removed);
  FAILS(trafo_model_load_adapter(other, "nowhere", 7), TRAFO_NOT_FOUND, "nowhere");
  OK(trafo_model_prepare_inference(other));
  FAILS(trafo_model_load_adapter(other, directory, strlen(directory)), TRAFO_INVALID_ARGUMENT,
        "prepared");
  test_adapted_model(model, other, tokenizer, directory);
  free(base);
  free(trained);
  trafo_model_free(model);
}

static void test_teachers(trafo_context* context, const trafo_tokenizer* tokenizer,
                          const trafo_corpus* corpus, int64_t vocabulary) {
  char folder[512], path[600], strange[600];
  snprintf(folder, sizeof folder, "%s", work_directory());
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  snprintf(strange, sizeof strange, "%s/strange.safetensors", folder);
  trafo_model *teacher = new_model(context, vocabulary), *model = new_model(context, vocabulary);
  trafo_model *alone = new_model(context, vocabulary), *other = new_model(context, vocabulary + 1);
  OK(trafo_model_save(teacher, path, strlen(path)));
  OK(trafo_model_save(other, strange, strlen(strange)));
  FAILS(trafo_model_remove_teacher(model), TRAFO_INVALID_ARGUMENT, "no teacher");
  OK(trafo_model_load_teacher(model, folder, strlen(folder)));
  FAILS(trafo_model_load_teacher(model, strange, strlen(strange)), TRAFO_INVALID_ARGUMENT,
        "strange.safetensors has a vocabulary of");
  FAILS(trafo_model_load_teacher(model, "nowhere", 7), TRAFO_NOT_FOUND, "nowhere");
  FAILS(trafo_model_load_teacher(NULL, path, strlen(path)), TRAFO_INVALID_ARGUMENT,
        "model is NULL");

  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  trafo_step_result with, without;
  trafo_memory_plan plan;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.warmup = 1;
  options.teacher_weight = 1.5;
  FAILS(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "teacher_weight");
  options.teacher_weight = 1;
  options.teacher_temperature = 0;
  FAILS(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "teacher_temperature");
  options.teacher_temperature = 2;
  OK(trafo_trainer_new(alone, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  OK(trafo_trainer_step(trainer, NULL, &without));
  OK(trafo_trainer_get_plan(trainer, &plan, sizeof plan));
  CHECK(plan.teacher_bytes == 0);
  trafo_trainer_free(trainer);
  OK(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
  OK(trafo_trainer_step(trainer, NULL, &with));
  OK(trafo_trainer_get_plan(trainer, &plan, sizeof plan));
  CHECK(plan.teacher_bytes > 0);
  FAILS(trafo_model_load_teacher(model, path, strlen(path)), TRAFO_INVALID_ARGUMENT,
        "has a trainer");
  FAILS(trafo_model_remove_teacher(model), TRAFO_INVALID_ARGUMENT, "has a trainer");
  trafo_trainer_free(trainer);
  CHECK(with.loss < without.loss);  // the teacher is the student without dropout
  OK(trafo_model_remove_teacher(model));
  OK(trafo_model_prepare_inference(alone));
  FAILS(trafo_model_load_teacher(alone, path, strlen(path)), TRAFO_INVALID_ARGUMENT, "prepared");
  trafo_model_free(teacher);
  trafo_model_free(model);
  trafo_model_free(alone);
  trafo_model_free(other);
}

typedef struct preference_log {
  int64_t metrics; /* of the last LOG event */
  double margin;   /* its reward-margin */
  int64_t validated;
  double accuracy;
} preference_log;

static int32_t on_preference_event(void* user_data, const trafo_event* event) {
  preference_log* log = user_data;
  if (event->kind == TRAFO_EVENT_LOG) log->metrics = event->objective_metric_count;
  for (int64_t i = 0; event->kind == TRAFO_EVENT_LOG && i < event->objective_metric_count; ++i) {
    const trafo_objective_metric* metric = &event->objective_metrics[i];
    if (metric->name.length == 13 && memcmp(metric->name.data, "reward-margin", 13) == 0)
      log->margin = metric->value;
  }
  if (event->kind != TRAFO_EVENT_VALIDATED) return 0;
  log->validated = event->metric_count;
  log->accuracy = event->metrics[0].value;
  CHECK(event->metrics[0].metric == TRAFO_METRIC_REWARD_ACCURACY);
  CHECK(event->deciding_metric == TRAFO_METRIC_REWARD_ACCURACY);
  return 0;
}

static void test_preferences(trafo_context* context, const trafo_tokenizer* tokenizer,
                             const trafo_corpus* parallel, int64_t vocabulary) {
  trafo_string_view prompts[24], chosen[24], rejected[24], answer;
  trafo_corpus *pairs = NULL, *none = NULL;
  char path[600];
  for (int i = 0; i < 24; ++i) {
    prompts[i] = view(i % 2 ? "one two" : "two three");
    chosen[i] = view(i % 2 ? "one" : "two");
    rejected[i] = view(i % 2 ? "three" : "three two");
  }
  OK(trafo_corpus_new_preferences(prompts, chosen, rejected, 24, &pairs));
  OK(trafo_corpus_get_rejected(pairs, 2, &answer));
  CHECK(answer.length == 9 && memcmp(answer.data, "three two", 9) == 0);
  FAILS(trafo_corpus_get_rejected(pairs, 24, &answer), TRAFO_INVALID_ARGUMENT, "index");
  FAILS(trafo_corpus_get_rejected(parallel, 0, &answer), TRAFO_INVALID_ARGUMENT,
        "no preference pairs");
  FAILS(trafo_corpus_new_preferences(prompts, chosen, rejected, 0, &none), TRAFO_INVALID_ARGUMENT,
        "is empty");
  int32_t labels[24];
  trafo_corpus_info info;
  for (int i = 0; i < 24; ++i) labels[i] = i % 2;
  OK(trafo_corpus_new_labelled(prompts, chosen, labels, 24, &none));
  OK(trafo_corpus_get_info(none, &info));
  CHECK(info.texts == 3 && info.labelled == 1 && info.csv == 0);
  OK(trafo_corpus_get_rejected(none, 2, &answer));
  CHECK(answer.length == 3 && memcmp(answer.data, "two", 3) == 0);
  OK(trafo_corpus_get_rejected(none, 1, &answer));
  CHECK(answer.length == 0);
  trafo_corpus_free(none);
  none = NULL;
  labels[3] = 2;
  FAILS(trafo_corpus_new_labelled(prompts, chosen, labels, 24, &none), TRAFO_INVALID_ARGUMENT,
        "labels");
  trafo_corpus_options reading;
  OK(trafo_corpus_options_init(&reading, sizeof reading));
  reading.preferences = 1;
  FAILS(trafo_corpus_open(prompts, 2, &reading, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "three files");
  reading.monolingual = 1;
  FAILS(trafo_corpus_open(prompts, 1, &reading, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "monolingual");

  trafo_model* model = new_model(context, vocabulary);
  snprintf(path, sizeof path, "%s/reference.safetensors", work_directory());
  OK(trafo_model_save(model, path, strlen(path)));
  trafo_trainer_options options;
  trafo_trainer* trainer = NULL;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.batch_tokens = 64;
  options.warmup = 1;
  options.learning_rate = 1e-2;
  options.objective = TRAFO_OBJECTIVE_DPO;
  options.log_freq.value = 4;
  options.valid_metrics = TRAFO_METRIC_REWARD_ACCURACY;
  options.first_metric = TRAFO_METRIC_REWARD_ACCURACY;
  FAILS(trafo_trainer_new(model, tokenizer, pairs, pairs, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "no reference");
  FAILS(trafo_model_remove_reference(model), TRAFO_INVALID_ARGUMENT, "no reference");
  OK(trafo_model_load_teacher(model, path, strlen(path)));
  FAILS(trafo_trainer_new(model, tokenizer, pairs, pairs, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "has a teacher");
  OK(trafo_model_load_reference(model, path, strlen(path)));
  FAILS(trafo_model_remove_teacher(model), TRAFO_INVALID_ARGUMENT, "no teacher");
  FAILS(trafo_trainer_new(model, tokenizer, parallel, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "no preference pairs");
  OK(trafo_trainer_new(model, tokenizer, pairs, pairs, &options, NULL, 0, NULL, &trainer));
  preference_log log = {0};
  int32_t stop = 0;
  OK(trafo_trainer_run(trainer, 20, NULL, on_preference_event, &log, &stop));
  CHECK(log.metrics == 4 && log.margin > 0);
  trafo_metric_value accuracy;
  int64_t count = 0;
  OK(trafo_trainer_validate(trainer, NULL, &accuracy, 1, &count));
  CHECK(count == 1 && accuracy.value == 1);
  trafo_trainer_free(trainer);
  OK(trafo_model_remove_reference(model));
  trafo_model_free(model);
  trafo_corpus_free(pairs);
}

static void test_pruning(trafo_context* context, const trafo_tokenizer* tokenizer,
                         const trafo_corpus* corpus, int64_t vocabulary) {
  trafo_model *model = new_model(context, vocabulary), *smaller = NULL;
  trafo_prune_options options;
  FAILS(trafo_prune_options_init(&options, 4), TRAFO_INVALID_ARGUMENT, "struct_size");
  OK(trafo_prune_options_init(&options, sizeof options));
  CHECK(options.encoder_ffn_share == 1 && options.decoder_ffn_share == 1);
  CHECK(options.encoder_head_share == 1 && options.decoder_head_share == 1);
  CHECK(options.encoder_layers == 0 && options.decoder_layers == 0);
  options.decoder_ffn_share = 0;
  FAILS(trafo_model_prune(model, tokenizer, corpus, &options, NULL, &smaller),
        TRAFO_INVALID_ARGUMENT, "decoder_ffn_share");
  CHECK(smaller == NULL);
  options.decoder_ffn_share = 0.5;
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_model_prune(model, tokenizer, corpus, &options, cancel, &smaller), TRAFO_CANCELLED,
        "cancelled");
  trafo_cancel_free(cancel);
  OK(trafo_model_prune(model, tokenizer, corpus, &options, NULL, &smaller));
  trafo_model_config before, after;
  OK(trafo_model_get_config(model, &before, sizeof before));
  OK(trafo_model_get_config(smaller, &after, sizeof after));
  CHECK(after.ffn_width == before.ffn_width / 2);
  CHECK(after.heads == before.heads && after.head_width == 0);
  // Without options, all stays.
  trafo_model* copy = NULL;
  OK(trafo_model_prune(smaller, tokenizer, corpus, NULL, NULL, &copy));
  size_t bytes = 0, same = 0;
  float *values = all_values(smaller, &bytes), *copied = all_values(copy, &same);
  CHECK(bytes == same && memcmp(values, copied, bytes) == 0);
  free(values);
  free(copied);
  trafo_model_free(copy);
  trafo_model_free(smaller);
  trafo_model_free(model);
}

static int64_t zeros_of(const trafo_model* model, const char* name, int64_t* elements) {
  int64_t tensors = 0, all = 0, zeros = -1;
  OK(trafo_model_get_parameter_count(model, &tensors, &all));
  for (int64_t i = 0; i < tensors; ++i) {
    trafo_parameter_info info;
    OK(trafo_model_get_parameter_info(model, i, &info, sizeof info));
    if (strcmp(info.name, name) != 0) continue;
    *elements = info.elements;
    OK(trafo_model_get_zeros(model, i, &zeros));
  }
  return zeros;
}

static void test_sparsity(trafo_context* context, const trafo_tokenizer* tokenizer,
                          const trafo_corpus* corpus, int64_t vocabulary) {
  const char* matrix = "decoder.0.ffn.up.weight";
  trafo_model *model = new_model(context, vocabulary), *sparse = NULL;
  trafo_sparsify_options options;
  FAILS(trafo_sparsify_options_init(&options, 4), TRAFO_INVALID_ARGUMENT, "struct_size");
  OK(trafo_sparsify_options_init(&options, sizeof options));
  CHECK(options.sparsity == 0.5 && options.score == TRAFO_PRUNE_MAGNITUDE);
  CHECK(options.pattern == TRAFO_SPARSITY_UNSTRUCTURED);
  CHECK(options.tokenizer == NULL && options.calibration == NULL);
  options.sparsity = 1;
  FAILS(trafo_model_sparsify(model, &options, NULL, &sparse), TRAFO_INVALID_ARGUMENT,
        "sparsity must be at least 0 and below 1, got 1");
  options.sparsity = 0.75;
  options.pattern = TRAFO_SPARSITY_2_4;
  FAILS(trafo_model_sparsify(model, &options, NULL, &sparse), TRAFO_INVALID_ARGUMENT, "2:4");
  options.pattern = 9;
  FAILS(trafo_model_sparsify(model, &options, NULL, &sparse), TRAFO_INVALID_ARGUMENT,
        "pattern is unknown: 9");
  options.pattern = TRAFO_SPARSITY_UNSTRUCTURED;
  options.score = TRAFO_PRUNE_WANDA;
  FAILS(trafo_model_sparsify(model, &options, NULL, &sparse), TRAFO_INVALID_ARGUMENT,
        "wanda needs calibration data");
  options.calibration = corpus;
  FAILS(trafo_model_sparsify(model, &options, NULL, &sparse), TRAFO_INVALID_ARGUMENT,
        "need a tokenizer");
  options.tokenizer = tokenizer;
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_model_sparsify(model, &options, cancel, &sparse), TRAFO_CANCELLED, "cancelled");
  trafo_cancel_free(cancel);
  CHECK(sparse == NULL);
  OK(trafo_model_sparsify(model, &options, NULL, &sparse));
  int64_t elements = 0, embedding = 0;
  CHECK(zeros_of(model, matrix, &elements) == 0);
  int64_t zeros = zeros_of(sparse, matrix, &elements);
  CHECK(zeros == elements / 4 * 3);
  CHECK(zeros_of(sparse, "embedding.weight", &embedding) == 0);
  FAILS(trafo_model_get_zeros(sparse, -1, &zeros), TRAFO_INVALID_ARGUMENT, "index must be 0 to");
  FAILS(trafo_model_get_zeros(sparse, 0, NULL), TRAFO_INVALID_ARGUMENT, "out_zeros");
  trafo_model* half = NULL;  // by the defaults
  OK(trafo_model_sparsify(model, NULL, NULL, &half));
  zeros = zeros_of(half, matrix, &elements);
  CHECK(zeros == elements / 2);
  trafo_model_free(half);
  trafo_model_free(sparse);
  trafo_model_free(model);
}

static const char* first_that_ends(const trafo_model* model, const char* end,
                                   trafo_parameter_info* info) {
  int64_t tensors = 0, all = 0;
  OK(trafo_model_get_parameter_count(model, &tensors, &all));
  for (int64_t i = 0; i < tensors; ++i) {
    OK(trafo_model_get_parameter_info(model, i, info, sizeof *info));
    const size_t length = strlen(info->name);
    if (length >= strlen(end) && strcmp(info->name + length - strlen(end), end) == 0)
      return info->name;
  }
  return NULL;
}

static void test_low_rank(trafo_context* context, const trafo_tokenizer* tokenizer,
                          const trafo_corpus* corpus, int64_t vocabulary) {
  trafo_model *model = new_model(context, vocabulary), *small = NULL;
  trafo_factorize_options options;
  FAILS(trafo_factorize_options_init(&options, 4), TRAFO_INVALID_ARGUMENT, "struct_size");
  OK(trafo_factorize_options_init(&options, sizeof options));
  CHECK(options.rank == 0 && options.ratio == 0 && options.layers_count == 0);
  CHECK(options.layers == NULL && options.tokenizer == NULL && options.calibration == NULL);
  FAILS(trafo_model_factorize(model, NULL, NULL, &small), TRAFO_INVALID_ARGUMENT,
        "options is NULL");
  FAILS(trafo_model_factorize(model, &options, NULL, &small), TRAFO_INVALID_ARGUMENT,
        "ratio or a rank is needed");
  options.ratio = 1.5;
  FAILS(trafo_model_factorize(model, &options, NULL, &small), TRAFO_INVALID_ARGUMENT,
        "ratio must be above 0 and below 1, got 1.5");
  options.ratio = 0;
  options.rank = 2;
  FAILS(trafo_model_factorize(model, &options, NULL, &small), TRAFO_INVALID_ARGUMENT,
        "the calibration data have no pair");
  options.calibration = corpus;
  FAILS(trafo_model_factorize(model, &options, NULL, &small), TRAFO_INVALID_ARGUMENT,
        "need a tokenizer");
  options.tokenizer = tokenizer;
  const trafo_string_view none = {"no.such.*", 9}, ffn = {"*.ffn.*", 7};
  options.layers = &none;
  options.layers_count = 1;
  FAILS(trafo_model_factorize(model, &options, NULL, &small), TRAFO_NOT_FOUND, "no.such.*");
  options.layers = &ffn;
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_model_factorize(model, &options, cancel, &small), TRAFO_CANCELLED, "cancelled");
  trafo_cancel_free(cancel);
  CHECK(small == NULL);
  OK(trafo_model_factorize(model, &options, NULL, &small));
  trafo_parameter_info info;
  CHECK(first_that_ends(small, ".ffn.up.weight", &info) == NULL);
  CHECK(first_that_ends(small, ".attention.qkv.weight", &info) != NULL);
  CHECK(first_that_ends(small, ".ffn.up.weight.v", &info) != NULL && info.rows == 2);
  CHECK(first_that_ends(small, ".ffn.up.weight.u", &info) != NULL && info.columns == 2);
  CHECK(info.signal_to_noise > 0);

  // Its file makes others of its form.
  const char* path = "c_api_low_rank.safetensors";
  OK(trafo_model_save(small, path, strlen(path)));
  trafo_model_config config;
  config.struct_size = sizeof config;
  OK(trafo_model_get_config(model, &config, sizeof config));
  trafo_model* like = NULL;
  FAILS(trafo_model_new_like(context, &config, 1, "no such file", 12, &like), TRAFO_NOT_FOUND,
        "no such file");
  FAILS(trafo_model_load_weights(model, tokenizer, path, strlen(path)), TRAFO_INVALID_ARGUMENT,
        "is not for this model");
  OK(trafo_model_new_like(context, &config, 1, path, strlen(path), &like));
  OK(trafo_model_load_weights(like, tokenizer, path, strlen(path)));
  size_t bytes = 0, same = 0;
  float *values = all_values(small, &bytes), *copied = all_values(like, &same);
  CHECK(bytes == same && memcmp(values, copied, bytes) == 0);
  free(values);
  free(copied);
  trafo_model_free(like);
  config.decoder_layers = config.encoder_layers = 1;
  config.ffn_width = 1;
  FAILS(trafo_model_new_like(context, &config, 1, path, strlen(path), &like),
        TRAFO_INVALID_ARGUMENT, "has no factors of rank 2");
  remove(path);
  trafo_model_free(small);
  trafo_model_free(model);
}

void test_freezing(void) {
  static char lines[kPairs][32];
  trafo_string_view views[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    snprintf(lines[i], sizeof lines[i], "%c%c %c", 'a' + i % 7, 'a' + i % 5, 'h' + i % 3);
    views[i] = view(lines[i]);
  }
  trafo_context* context = new_context(2);
  trafo_tokenizer* tokenizer = NULL;
  trafo_corpus* corpus = NULL;
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 30;
  options.soft_limit = 1;
  OK(trafo_tokenizer_train(views, kPairs, &options, NULL, &tokenizer));
  OK(trafo_corpus_new(views, views, kPairs, &corpus));
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  trafo_model* model = new_model(context, vocabulary);
  test_infos(model);
  test_refusals(model);
  test_frozen_training(model, tokenizer, corpus);
  test_adapters(context, tokenizer, corpus, vocabulary);
  test_pruning(context, tokenizer, corpus, vocabulary);
  test_sparsity(context, tokenizer, corpus, vocabulary);
  test_low_rank(context, tokenizer, corpus, vocabulary);
  test_teachers(context, tokenizer, corpus, vocabulary);
  test_preferences(context, tokenizer, corpus, vocabulary);
  trafo_model_free(model);
  trafo_corpus_free(corpus);
  trafo_tokenizer_free(tokenizer);
  trafo_context_free(context);
}
