// Option structs of other releases: smaller, larger, larger with something set.
#define _XOPEN_SOURCE 700
#include "capi_check.h"

typedef struct newer_options {
  trafo_context_options known;
  int64_t unknown;
} newer_options;

static int all_zero(const void* memory, size_t bytes) {
  const unsigned char* byte = memory;
  for (size_t i = 0; i < bytes; ++i)
    if (byte[i] != 0) return 0;
  return 1;
}

// A machine with a GPU and the plugin takes part, one without must say what it lacks.
static void test_devices(void) {
  trafo_device_info info;
  int32_t cpus = 0, gpus = -1, device = -1, index = -1;
  char* why = NULL;
  OK(trafo_device_count(TRAFO_DEVICE_CPU, &cpus, &why));
  CHECK(cpus == 1 && strcmp(why, "") == 0);
  trafo_string_free(why);
  OK(trafo_device_get_info(TRAFO_DEVICE_CPU, 0, &info, sizeof info));
  CHECK(strcmp(info.name, "CPU") == 0 && info.memory_bytes > 0 && info.compute_major == 0);
  CHECK(info.struct_size == sizeof info);
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CPU, 1, &info, sizeof info), TRAFO_UNSUPPORTED,
        "no device 1");
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CPU, 0, &info, 0), TRAFO_INVALID_ARGUMENT,
        "struct_size 0");
  memset(&info, 1, sizeof info);
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CPU, 1, &info, sizeof info), TRAFO_UNSUPPORTED, "");
  CHECK(all_zero(&info, sizeof info));
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CPU, 1, NULL, sizeof info), TRAFO_INVALID_ARGUMENT,
        "out is NULL");
  FAILS(trafo_device_count(TRAFO_DEVICE_AUTO, &cpus, NULL), TRAFO_INVALID_ARGUMENT, "got 2");

  OK(trafo_device_count(TRAFO_DEVICE_CUDA, &gpus, &why));
  CHECK((gpus > 0) == (strcmp(why, "") == 0));
  trafo_string_free(why);
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CUDA, gpus, &info, sizeof info), TRAFO_UNSUPPORTED,
        "no device");
  if (gpus > 0) {
    OK(trafo_device_get_info(TRAFO_DEVICE_CUDA, 0, &info, sizeof info));
    CHECK(info.name[0] != 0 && info.memory_bytes > 0 && info.compute_major > 0);
  }

  trafo_context* context = NULL;
  trafo_context_options options;
  OK(trafo_context_options_init(&options, sizeof options));
  options.device = TRAFO_DEVICE_AUTO;
  options.device_index = 1;
  FAILS(trafo_context_new(&options, &context), TRAFO_INVALID_ARGUMENT, "TRAFO_DEVICE_AUTO");
  options.device_index = 0;
  OK(trafo_context_new(&options, &context));
  OK(trafo_context_get_device(context, &device, &index));
  CHECK(device == (gpus > 0 ? TRAFO_DEVICE_CUDA : TRAFO_DEVICE_CPU) && index == 0);
  FAILS(trafo_context_get_device(context, &device, NULL), TRAFO_INVALID_ARGUMENT, "out_index");
  trafo_context_free(context);

  // A plugin that is not there: AUTO goes on without, CUDA says where it was looked for.
  setenv("TRAFO_CUDA_LIBRARY", "/nonexistent/libtrafo_cuda.so", 1);
  OK(trafo_device_count(TRAFO_DEVICE_CUDA, &gpus, &why));
  CHECK(gpus == 0 && strstr(why, "/nonexistent/libtrafo_cuda.so"));
  trafo_string_free(why);
  OK(trafo_context_new(&options, &context));
  OK(trafo_context_get_device(context, &device, &index));
  CHECK(device == TRAFO_DEVICE_CPU && index == 0);
  trafo_context_free(context);
  options.device = TRAFO_DEVICE_CUDA;
  FAILS(trafo_context_new(&options, &context), TRAFO_UNSUPPORTED, "/nonexistent/libtrafo_cuda.so");
  unsetenv("TRAFO_CUDA_LIBRARY");
}

// As int8 with its usual vocabulary, the preset for students takes at most 2.5 MB.
static void test_student_preset(void) {
  const char* path = work_path("student");
  trafo_context* context = new_context(1);
  trafo_model_config config;
  trafo_model *model = NULL, *int8 = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "student-tiny", 12));
  CHECK(config.vocabulary == 8000 && config.encoder_layers == 6 && config.decoder_layers == 2);
  OK(trafo_model_new(context, &config, 1, &model));
  OK(trafo_model_save(model, path, strlen(path)));
  trafo_model_free(model);
  OK(trafo_model_load_int8(context, path, strlen(path), &int8));
  OK(trafo_model_save(int8, path, strlen(path)));
  trafo_model_free(int8);
  trafo_context_free(context);
  size_t bytes = 0;
  free(read_file(path, &bytes));
  CHECK(bytes > 2000000 && bytes <= 2500000);
}

// Layers that share their parameters: a list that ends with 0.
static void test_tied_layers(void) {
  const char* path = work_path("tied");
  trafo_context* context = new_context(1);
  trafo_model_config config, kept;
  trafo_model *model = NULL, *loaded = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  CHECK(all_zero(config.decoder_tied_layers, sizeof config.decoder_tied_layers));
  config.vocabulary = 20;
  config.width = config.ffn_width = 16;
  config.heads = 2;
  config.encoder_layers = 2;
  config.decoder_layers = 4;
  int64_t parameters = 0, elements = 0, fewer = 0;
  OK(trafo_model_new(context, &config, 1, &model));
  OK(trafo_model_get_parameter_count(model, &parameters, &elements));
  trafo_model_free(model);
  const uint8_t decoder[] = {1, 1, 3, 3};
  memcpy(config.decoder_tied_layers, decoder, sizeof decoder);
  config.encoder_tied_layers[0] = config.encoder_tied_layers[1] = 2;
  OK(trafo_model_new(context, &config, 1, &model));
  OK(trafo_model_get_parameter_count(model, &parameters, &fewer));
  CHECK(fewer < elements * 3 / 4);
  OK(trafo_model_save(model, path, strlen(path)));
  OK(trafo_model_load(context, path, strlen(path), &loaded));
  OK(trafo_model_get_config(loaded, &kept, sizeof kept));
  CHECK(memcmp(kept.decoder_tied_layers, config.decoder_tied_layers,
               sizeof kept.decoder_tied_layers) == 0);
  CHECK(memcmp(kept.encoder_tied_layers, config.encoder_tied_layers,
               sizeof kept.encoder_tied_layers) == 0);
  trafo_model_free(loaded);
  trafo_model_free(model);
  model = NULL;
  config.decoder_tied_layers[1] = 5;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT,
        "decoder_tied_layers has the layer 5, the layers are 1 to 4");
  config.decoder_tied_layers[1] = 0;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT,
        "decoder_tied_layers has a layer behind the 0 that ends the list");
  memset(config.decoder_tied_layers, 0, sizeof config.decoder_tied_layers);
  config.encoder_tied_layers[2] = 1;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT,
        "encoder_tied_layers has 3 numbers, it needs one for each of the 2 layers");
  CHECK(model == NULL);
  trafo_context_free(context);
}

void test_options(void) {
  test_student_preset();
  test_tied_layers();
  test_devices();

  trafo_context* context = NULL;
  newer_options newer;
  OK(trafo_context_options_init(&newer.known, sizeof newer));
  CHECK(newer.known.struct_size == sizeof newer && newer.unknown == 0);
  OK(trafo_context_new(&newer.known, &context));
  trafo_context_free(context);
  newer.unknown = 1;
  FAILS(trafo_context_new(&newer.known, &context), TRAFO_INVALID_ARGUMENT,
        "newer than this library");
  CHECK(context == NULL);

  // An older client's struct ends after its second member; what follows is not read.
  trafo_context_options* older = malloc(sizeof(size_t) + sizeof(int32_t));
  OK(trafo_context_options_init(older, sizeof(size_t) + sizeof(int32_t)));
  int32_t device = -1;
  memcpy(&device, (const char*)older + sizeof(size_t), sizeof device);
  CHECK(device == TRAFO_DEVICE_CPU);
  OK(trafo_context_new(older, &context));
  free(older);

  trafo_context_options options;
  trafo_context* none = NULL;
  FAILS(trafo_context_options_init(&options, 0), TRAFO_INVALID_ARGUMENT, "struct_size 0");
  FAILS(trafo_context_options_init(NULL, sizeof options), TRAFO_INVALID_ARGUMENT, "NULL");
  OK(trafo_context_options_init(&options, sizeof options));
  options.struct_size = 0;
  FAILS(trafo_context_new(&options, &none), TRAFO_INVALID_ARGUMENT, "_init");
  options.struct_size = sizeof options;
  options.device = 7;
  FAILS(trafo_context_new(&options, &none), TRAFO_INVALID_ARGUMENT, "device is unknown: 7");
  options.device = TRAFO_DEVICE_CPU;
  options.threads = -1;
  FAILS(trafo_context_new(&options, &none), TRAFO_INVALID_ARGUMENT, "threads");
  options.threads = 1;
  const int32_t wrong[] = {TRAFO_FLOAT64, TRAFO_INT32, -1, 77};
  for (int i = 0; i < 4; ++i) {
    options.matmul_precision = wrong[i];
    FAILS(trafo_context_new(&options, &none), TRAFO_INVALID_ARGUMENT, "matmul_precision");
  }
  options.matmul_precision = TRAFO_BFLOAT16;
  trafo_error* lacking = trafo_context_new(&options, &none);  // or null
  if (lacking) {
    CHECK(trafo_error_code(lacking) == TRAFO_UNSUPPORTED);
    CHECK(strstr(trafo_error_message(lacking), "AVX512-BF16") != NULL);
  }
  trafo_error_free(lacking);
  trafo_context_free(none);

  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  CHECK(config.width == 512 && config.encoder_layers == 6 && config.heads == 8 &&
        config.pre_norm == 1);
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT, "vocabulary");
  config.attention_dropout = 0.5;
  OK(trafo_model_config_preset(&config, "tiny", 4));
  CHECK(config.attention_dropout == 0 &&
        config.vocabulary == 8000);  // nothing of the earlier value stays
  CHECK(config.width == 128 && config.ffn_width == 256 && config.heads == 4);
  CHECK(config.norm == TRAFO_NORM_LAYER && config.positions == TRAFO_POSITIONS_STANDARD &&
        config.ffn == TRAFO_FFN_PLAIN && config.biases == 1);
  OK(trafo_model_config_preset(&config, "llama", 5));
  CHECK(config.architecture == TRAFO_DECODER_LM && config.norm == TRAFO_NORM_RMS &&
        config.positions == TRAFO_POSITIONS_ROTARY && config.ffn == TRAFO_FFN_SWIGLU &&
        config.biases == 0 && config.activation == TRAFO_SILU && config.rope_theta == 10000);
  config.vocabulary = 20;
  config.decoder_layers = 1;
  config.kv_heads = 3;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT, "kv_heads");
  config.kv_heads = 2;
  OK(trafo_model_new(context, &config, 1, &model));
  OK(trafo_model_get_config(model, &config, sizeof config));
  CHECK(config.kv_heads == 2 && config.norm == TRAFO_NORM_RMS && config.biases == 0);
  trafo_model_free(model);
  OK(trafo_model_config_preset(&config, "tiny", 4));
  FAILS(trafo_model_config_preset(&config, "huge", 4), TRAFO_NOT_FOUND, "iwslt");
  CHECK(config.width == 128);
  config.vocabulary = 100;
  config.heads = 3;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT, "heads");
  config.heads = 4;
  config.depth_scaled_init = 2;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT, "depth_scaled_init");
  config.depth_scaled_init = 1;
  OK(trafo_model_new(context, &config, 1, &model));
  trafo_model_config kept;
  OK(trafo_model_get_config(model, &kept, sizeof kept));
  CHECK(kept.depth_scaled_init == 1);
  trafo_model_free(model);
  config.depth_scaled_init = 0;
  config.architecture = 5;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT,
        "architecture must be 0 (encoder-decoder), 1 (decoder-lm) or 2 (encoder), got 5");
  config.architecture = TRAFO_ENCODER_DECODER;
  config.width = INT64_MAX;
  FAILS(trafo_model_new(context, &config, 1, &model), TRAFO_INVALID_ARGUMENT, "width");

  trafo_translate_options translate;
  trafo_trainer_options trainer;
  trafo_tokenizer_options tokenizer;
  OK(trafo_translate_options_init(&translate, sizeof translate));
  CHECK(translate.beam == 5 && translate.n_best == 1 && translate.truncate == 1);
  OK(trafo_trainer_options_init(&trainer, sizeof trainer));
  CHECK(trainer.learning_rate == 2e-3 && trainer.batch_tokens == 4096 &&
        trainer.valid_metrics == 7 && trainer.optimizer_states == TRAFO_OPTIMIZER_STATES_FLOAT32 &&
        trainer.communication_dtype == TRAFO_COMMUNICATION_FLOAT32 && trainer.autotune_gemm == 1 &&
        trainer.reserved == 0);
  trainer.warmup = 7;
  OK(trafo_trainer_options_preset(&trainer, "base", 4));
  CHECK(trainer.struct_size == sizeof trainer && trainer.learning_rate == 7e-4 &&
        trainer.warmup == 4000 && trainer.ema_alpha == 1e-4 && trainer.early_stopping == 10 &&
        trainer.label_smoothing == 0.1);
  FAILS(trafo_trainer_options_preset(&trainer, "huge", 4), TRAFO_NOT_FOUND, "iwslt");
  FAILS(trafo_trainer_options_preset(NULL, "base", 4), TRAFO_INVALID_ARGUMENT, "options is NULL");
  CHECK(trainer.warmup == 4000);
  trainer.struct_size = 3;
  FAILS(trafo_trainer_options_preset(&trainer, "base", 4), TRAFO_INVALID_ARGUMENT, "struct_size");
  OK(trafo_trainer_options_init(&trainer, sizeof trainer));
  trafo_memory_plan wide, narrow;
  config.width = 128;
  OK(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &wide, sizeof wide));
  trainer.optimizer_states = TRAFO_OPTIMIZER_STATES_8BIT;
  OK(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow));
  CHECK(narrow.optimizer_bytes * 3 < wide.optimizer_bytes);
  const int64_t saved = wide.optimizer_bytes - narrow.optimizer_bytes;
  CHECK(wide.total_bytes - narrow.total_bytes > saved / 2);  // blocks of memory are rounded up
  trainer.optimizer_states = 2;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "optimizer_states must be");
  trainer.optimizer_states = TRAFO_OPTIMIZER_STATES_FLOAT32;
  trainer.communication_dtype = -1;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "communication_dtype must be 0 (fp32) or 1 (bf16), got -1");
  trainer.communication_dtype = TRAFO_COMMUNICATION_FLOAT32;
  trainer.autotune_gemm = 1;
  OK(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow));
  CHECK(narrow.total_bytes == wide.total_bytes);
  const int32_t no_switches[] = {2, -1};
  for (int i = 0; i < 2; ++i) {
    trainer.autotune_gemm = no_switches[i];
    FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
          TRAFO_INVALID_ARGUMENT, "autotune_gemm must be 0 or 1, got");
  }
  trainer.autotune_gemm = 0;
  const trafo_string_view frozen[] = {{"encoder.*", 9}, {"no.such", 7}};
  OK(trafo_plan_training(&config, &trainer, frozen, 1, 2, 8, 8, &narrow, sizeof narrow));
  CHECK(narrow.gradients_bytes < wide.gradients_bytes);
  CHECK(narrow.optimizer_bytes < wide.optimizer_bytes);
  FAILS(trafo_plan_training(&config, &trainer, frozen, 2, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_NOT_FOUND, "no.such");
  // Two ranks have a lane and half of the moments each. Of four lanes, the sum of one waits.
  trafo_memory_plan rank, other;
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 2, 1, 2, 8, 8, &rank, sizeof rank));
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 1, 2, 1, 2, 8, 8, &other,
                                 sizeof other));
  CHECK(rank.weights_bytes == wide.weights_bytes && rank.gradients_bytes == wide.gradients_bytes);
  CHECK(rank.optimizer_bytes < wide.optimizer_bytes * 2 / 3);
  CHECK(other.optimizer_bytes < wide.optimizer_bytes * 2 / 3);
  // With bfloat16, the lane that is sent has a copy, and what is received is half as large.
  trainer.communication_dtype = TRAFO_COMMUNICATION_BFLOAT16;
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 2, 1, 2, 8, 8, &other,
                                 sizeof other));
  CHECK(other.total_bytes < rank.total_bytes + wide.gradients_bytes / 8);
  trainer.communication_dtype = TRAFO_COMMUNICATION_FLOAT32;
  trainer.lanes = 4;
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 2, 1, 2, 8, 8, &other,
                                 sizeof other));
  CHECK(other.total_bytes > rank.total_bytes + wide.gradients_bytes / 2);
  FAILS(
      trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 5, 1, 2, 8, 8, &rank, sizeof rank),
      TRAFO_INVALID_ARGUMENT, "lanes is 4 and the group has 5 ranks");
  FAILS(
      trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 2, 2, 1, 2, 8, 8, &rank, sizeof rank),
      TRAFO_INVALID_ARGUMENT, "the rank must be 0 to 1, got 2");
  CHECK(all_zero(&rank, sizeof rank));
  trainer.lanes = 1;
  // In two levels less is received at a time. Beside the backward pass, what is received does not
  // share the memory of the step.
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 4, 1, 2, 8, 8, &rank, sizeof rank));
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 4, 2, 2, 8, 8, &other,
                                 sizeof other));
  CHECK(other.optimizer_bytes == rank.optimizer_bytes);
  CHECK(other.total_bytes < rank.total_bytes - wide.gradients_bytes / 8);
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 4, 1, 128, 4096, 4096, &rank,
                                 sizeof rank));
  OK(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 4, 4, 128, 4096, 4096, &other,
                                 sizeof other));
  CHECK(other.total_bytes > rank.total_bytes + wide.gradients_bytes / 2);
  const int32_t no_hosts[] = {3, 0, -1};
  for (int i = 0; i < 3; ++i)
    FAILS(trafo_plan_training_of_rank(&config, &trainer, NULL, 0, 0, 4, no_hosts[i], 2, 8, 8,
                                      &other, sizeof other),
          TRAFO_INVALID_ARGUMENT, "hosts must be at least 1 and divide the 4 ranks, got");
  trafo_model_config teacher = config;
  teacher.width = 256;
  OK(trafo_plan_distillation(&config, &teacher, &trainer, NULL, 0, 0, 1, 1, 2, 8, 8, &narrow,
                             sizeof narrow));
  CHECK(wide.teacher_bytes == 0 && narrow.teacher_bytes > 0);
  CHECK(narrow.weights_bytes == wide.weights_bytes);
  CHECK(narrow.total_bytes >= wide.total_bytes + narrow.teacher_bytes);
  OK(trafo_plan_distillation(&config, &teacher, &trainer, NULL, 0, 1, 2, 1, 2, 8, 8, &other,
                             sizeof other));
  CHECK(other.teacher_bytes == narrow.teacher_bytes);
  CHECK(other.optimizer_bytes < narrow.optimizer_bytes * 2 / 3);
  FAILS(trafo_plan_distillation(&config, &teacher, &trainer, NULL, 0, 2, 2, 1, 2, 8, 8, &other,
                                sizeof other),
        TRAFO_INVALID_ARGUMENT, "the rank must be 0 to 1, got 2");
  FAILS(trafo_plan_distillation(&config, NULL, &trainer, NULL, 0, 0, 1, 1, 2, 8, 8, &narrow,
                                sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "teacher is NULL");
  teacher.vocabulary += 1;
  FAILS(trafo_plan_distillation(&config, &teacher, &trainer, NULL, 0, 0, 1, 1, 2, 8, 8, &narrow,
                                sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "the teacher has the architecture");
  CHECK(trainer.teacher_weight == 0.5 && trainer.teacher_temperature == 1);
  CHECK(trainer.ema_alpha == 0);
  trainer.ema_alpha = 1e-4;
  OK(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow));
  CHECK(narrow.optimizer_bytes * 2 == wide.optimizer_bytes * 3);  // a mean beside two moments
  trainer.ema_alpha = 1;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "ema_alpha must be");
  trainer.ema_alpha = 0;
  CHECK(trainer.layer_drop == 0);
  trainer.layer_drop = 0.5;  // the plan covers a pass that runs every layer
  trafo_memory_plan dropping;
  OK(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &dropping, sizeof dropping));
  CHECK(dropping.total_bytes == wide.total_bytes);
  const double no_probabilities[] = {1, -0.5, NAN};
  for (int i = 0; i < 3; ++i) {
    trainer.layer_drop = no_probabilities[i];
    FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
          TRAFO_INVALID_ARGUMENT, "layer_drop must be");
  }
  trainer.layer_drop = 0;
  CHECK(trainer.early_stopping_on == TRAFO_STOPPING_FIRST && trainer.average_last == 0);
  trainer.early_stopping_on = 3;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "early_stopping_on must be");
  trainer.early_stopping_on = TRAFO_STOPPING_ALL;
  trainer.average_last = -1;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "average_last must be");
  trainer.average_last = 0;
  trainer.reserved = 1;
  FAILS(trafo_plan_training(&config, &trainer, NULL, 0, 2, 8, 8, &narrow, sizeof narrow),
        TRAFO_INVALID_ARGUMENT, "reserved");
  CHECK(all_zero(&narrow, sizeof narrow));
  memset(&narrow, 1, sizeof narrow);
  FAILS(trafo_trainer_get_plan(NULL, &narrow, sizeof narrow), TRAFO_INVALID_ARGUMENT, "trainer");
  CHECK(all_zero(&narrow, sizeof narrow));
  FAILS(trafo_model_get_config(NULL, &kept, sizeof kept), TRAFO_INVALID_ARGUMENT, "model");
  CHECK(all_zero(&kept, sizeof kept));
  OK(trafo_tokenizer_options_init(&tokenizer, sizeof tokenizer));
  CHECK(tokenizer.vocabulary == 8000 && tokenizer.character_coverage == 1);
  trafo_context_free(context);
}
