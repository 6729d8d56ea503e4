// Every function of the C ABI with every kind of wrong argument, one at a time: it has to return an
// error, or a success that its comment allows, and the process has to live.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "misuse.h"

namespace {

using namespace misuse;

int32_t copies(void*, trafo_context* context, const trafo_tensor* const* inputs, size_t input_count,
               trafo_tensor** outputs, size_t output_count) {
  if (input_count != 1) return 1;
  for (size_t i = 0; i < output_count; ++i)
    if (trafo_error* error = trafo_op_scale(context, inputs[0], 2, &outputs[i])) {
      trafo_error_free(error);
      for (size_t j = 0; j < i; ++j) trafo_tensor_free(outputs[j]);
      return 1;
    }
  return 0;
}

int32_t ignore_event(void*, const trafo_event*) {
  return 0;
}

double same_rate(void*, int64_t, double scheduled) {
  return scheduled;
}
int32_t give_words(void*, int64_t, trafo_string_view* source, trafo_string_view* target) {
  *source = *target = {"alpha beta", 10};
  return 0;
}
int32_t take_bytes(void*, const uint8_t*, size_t) {
  return 0;
}
int32_t no_bytes(void*, uint8_t*, size_t, size_t* count) {
  *count = 0;
  return 0;
}

constexpr trafo_string_view kWords[] = {
    {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};

struct World {
  trafo_context* context = nullptr;
  trafo_tensor *matrix = nullptr, *row = nullptr, *ids = nullptr, *seams = nullptr,
               *doubles = nullptr;
  trafo_tokenizer* tokenizer = nullptr;
  trafo_corpus* corpus = nullptr;
  trafo_model_config config;
  trafo_model* model = nullptr;

  World() {
    must(trafo_context_new(nullptr, &context));
    const int64_t square[] = {2, 2}, two[] = {2}, three[] = {3};
    const float values[] = {1, 2, 3, 4};
    const double wide[] = {1, 2};
    const int32_t integers[] = {0, 1, 2};
    must(trafo_tensor_new(context, TRAFO_FLOAT32, square, 2, values, 16, &matrix));
    must(trafo_tensor_new(context, TRAFO_FLOAT32, two, 1, values, 8, &row));
    must(trafo_tensor_new(context, TRAFO_INT32, two, 1, integers, 8, &ids));
    must(trafo_tensor_new(context, TRAFO_INT32, three, 1, integers, 12, &seams));
    must(trafo_tensor_new(context, TRAFO_FLOAT64, two, 1, wide, 16, &doubles));
    auto options = defaults(trafo_tokenizer_options_init);
    options.vocabulary = 30;
    options.soft_limit = 1;
    must(trafo_tokenizer_train(kWords, 3, &options, &tokenizer));
    must(trafo_corpus_new(kWords, kWords, 3, &corpus));
    config = defaults(trafo_model_config_init);
    must(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
    config.encoder_layers = config.decoder_layers = 1;
    config.width = config.ffn_width = 16;
    config.heads = 2;
    config.max_positions = 32;
    must(trafo_model_new(context, &config, 1, &model));
  }
  ~World() {
    for (trafo_tensor* tensor : {matrix, row, ids, seams, doubles}) trafo_tensor_free(tensor);
    trafo_model_free(model);
    trafo_corpus_free(corpus);
    trafo_tokenizer_free(tokenizer);
    trafo_context_free(context);
  }
};

// Outputs of the good calls.
trafo_tensor *out, *out2;
trafo_tensor* outputs[1];
int32_t integer;
int64_t number, numbers[8];
size_t size;
double real, reals[3];
char* text;
trafo_string_view view, view2;

void misuse_context(World& w) {
  auto options = defaults(trafo_context_options_init);
  trafo_context* context = nullptr;
  trafo_cancel* cancel = nullptr;
  trafo_memory_stats stats;
  MISUSE_INIT(trafo_context_options_init, options);
  MISUSE(trafo_context_new, {0}, &options, &context);
  int32_t index;
  MISUSE(trafo_context_get_device, {}, w.context, &integer, &index);
  trafo_device_info device;
  MISUSE(trafo_device_count, {2}, TRAFO_DEVICE_CPU, &integer, &text);
  MISUSE(trafo_device_get_info, {}, TRAFO_DEVICE_CPU, 0, &device, sizeof device);
  MISUSE(trafo_context_set_threads, {}, w.context, 2);
  MISUSE(trafo_context_memory_stats, {}, w.context, &stats);
  MISUSE(trafo_context_trim_memory, {}, w.context);
  // Without a profile it refuses whatever it is given, so there is one; an empty path writes none.
  MISUSE(trafo_context_profile_start, {}, w.context, 0);
  must(trafo_context_profile_start(w.context, 0));
  MISUSE(trafo_context_profile_write, {1, 3}, w.context, "", 0, &text);
  MISUSE(trafo_context_set_recording, {2}, w.context, 1, &integer);
  must(trafo_context_set_recording(w.context, 1, nullptr));
  MISUSE(trafo_cancel_new, {}, &cancel);
  must(trafo_cancel_new(&cancel));
  MISUSE(trafo_cancel_set, {}, cancel);
  MISUSE(trafo_cancel_reset, {}, cancel);
  MISUSE(trafo_cancel_is_set, {}, cancel, &integer);
  trafo_cancel_free(cancel);
}

void misuse_tensors(World& w) {
  const int64_t shape[8] = {2, 1, 1, 1, 1, 1, 1, 1};
  float values[4] = {1, 2, 3, 4};
  MISUSE(trafo_tensor_new, {}, w.context, TRAFO_FLOAT32, shape, 1, values, 8, &out);
  MISUSE(trafo_tensor_clone, {}, w.row, &out);
  MISUSE(trafo_tensor_detach, {}, w.row, &out);
  MISUSE(trafo_tensor_get_dtype, {}, w.row, &integer);
  MISUSE(trafo_tensor_get_shape, {}, w.row, numbers, 8, &integer);
  MISUSE(trafo_tensor_read, {}, w.row, values, 8);
  MISUSE(trafo_tensor_write, {}, w.row, values, 8);
  MISUSE(trafo_tensor_set_requires_grad, {}, w.doubles, 1);
  must(trafo_tensor_set_requires_grad(w.doubles, 1));
  MISUSE(trafo_tensor_get_grad, {}, w.doubles, &out);
  MISUSE(trafo_tensor_zero_grad, {}, w.doubles);
  trafo_tensor* sum = nullptr;
  must(trafo_op_sum(w.context, w.doubles, &sum));
  MISUSE(trafo_backward, {2}, w.context, sum, nullptr);
  trafo_tensor_free(sum);
  const trafo_tensor* inputs[] = {w.doubles};
  MISUSE(trafo_checkpoint, {2, 3}, w.context, copies, nullptr, nullptr, inputs, 1, outputs, 1);
  trafo_gradcheck_result result;
  MISUSE(trafo_gradcheck, {2, 10}, w.context, copies, nullptr, inputs, 1, 1, 1e-6, 1e-5, 1e-3,
         &result, &text);
  auto options = defaults(trafo_adamw_options_init);
  trafo_adamw* optimizer = nullptr;
  trafo_tensor* parameters[] = {w.doubles};
  MISUSE_INIT(trafo_adamw_options_init, options);
  MISUSE(trafo_adamw_new, {3}, w.context, parameters, 1, &options, &optimizer);
  must(trafo_adamw_new(w.context, parameters, 1, &options, &optimizer));
  MISUSE(trafo_adamw_step, {2}, optimizer, 0.1, &real);
  trafo_adamw_free(optimizer);
}

void misuse_exchange(World& w) {
  float values[] = {1, 2};
  int64_t shape[] = {2};
  DLManagedTensorVersioned given{}, *lent = nullptr;
  given.major = 1;
  given.data = values;
  given.device_type = 1;
  given.ndim = 1;
  given.code = 2;
  given.bits = 32;
  given.lanes = 1;
  given.shape = shape;
  MISUSE(trafo_tensor_from_dlpack, {}, w.context, &given, TRAFO_COPY_IF_NEEDED, &out);
  MISUSE(trafo_tensor_to_dlpack, {}, w.row, &lent);
}

void misuse_callbacks(World& w) {
  auto options = defaults(trafo_trainer_options_init);
  options.max_length = 16;
  trafo_trainer* trainer = nullptr;
  trafo_corpus* corpus = nullptr;
  trafo_model* model = nullptr;
  must(trafo_trainer_new(w.model, w.tokenizer, w.corpus, nullptr, &options, nullptr, 0, &trainer));
  MISUSE(trafo_trainer_set_rate, {1, 2, 3}, trainer, same_rate, nullptr, nullptr);
  MISUSE(trafo_corpus_from_function, {3, 4}, 3, 1, give_words, nullptr, nullptr, &corpus);
  MISUSE(trafo_model_write, {2}, w.model, take_bytes, nullptr);
  MISUSE(trafo_model_read, {2}, w.context, no_bytes, nullptr, TRAFO_FLOAT32, &model);
  MISUSE(trafo_tokenizer_write, {2}, w.tokenizer, take_bytes, nullptr);
  MISUSE(trafo_trainer_write, {2}, trainer, take_bytes, nullptr);
  MISUSE(trafo_trainer_read, {2}, trainer, no_bytes, nullptr);
  trafo_trainer_free(trainer);
}

void misuse_ops(World& w) {
  trafo_context* c = w.context;
  const trafo_tensor *m = w.matrix, *r = w.row;
  const trafo_dropout dropout = {0.5f, 1, 2, 0, 3};
#define UNARY(name) MISUSE(trafo_op_##name, {}, c, m, &out)
  UNARY(exp), UNARY(log), UNARY(sqrt), UNARY(tanh), UNARY(sigmoid), UNARY(sum), UNARY(mean);
#define BINARY(name) MISUSE(trafo_op_##name, {}, c, m, r, &out)
  BINARY(add), BINARY(subtract), BINARY(multiply), BINARY(divide);
#define REDUCE(name) MISUSE(trafo_op_##name, {}, c, m, 0, 0, &out)
  REDUCE(sum_dim), REDUCE(mean_dim), REDUCE(max_dim);
  const int64_t shape[8] = {4, 1, 1, 1, 1, 1, 1, 1};
  const trafo_tensor* parts[] = {m};
  MISUSE(trafo_op_scale, {}, c, m, 2.0, &out);
  MISUSE(trafo_op_reshape, {}, c, m, shape, 1, &out);
  MISUSE(trafo_op_transpose, {}, c, m, 0, 1, &out);
  MISUSE(trafo_op_slice, {}, c, m, 0, 0, 1, &out);
  MISUSE(trafo_op_concat, {}, c, parts, 1, 0, &out);
  MISUSE(trafo_op_cast, {}, c, m, TRAFO_FLOAT64, &out);
  MISUSE(trafo_op_matmul, {}, c, m, m, 0, 0, &out);
  MISUSE(trafo_op_linear, {3}, c, m, m, r, &out);
  MISUSE(trafo_op_dropout, {2}, c, m, &dropout, &out);
  MISUSE(trafo_op_embedding, {6}, c, w.ids, m, 1.0, w.ids, m, &dropout, &out);
  MISUSE(trafo_sinusoidal_positions, {}, c, 2, 2, TRAFO_FLOAT32, &out);
  MISUSE(trafo_op_layer_norm, {}, c, m, r, r, 1e-5, &out);
  MISUSE(trafo_op_rms_norm, {}, c, m, r, 1e-5, &out);
  MISUSE(trafo_op_residual_rms_norm, {5}, c, m, m, r, 1e-5, &dropout, &out, &out2);
  MISUSE(trafo_op_rotary, {}, c, m, w.ids, 1, 0, 2, 10000.0, &out);
  MISUSE(trafo_op_swiglu, {}, c, m, &out);
  MISUSE(trafo_op_softmax, {4}, c, m, 1.0, 0, nullptr, &out);
  auto attention = defaults(trafo_attention_options_init);
  attention.head_dim = 2;
  MISUSE_INIT(trafo_attention_options_init, attention);
  MISUSE(trafo_op_attention, {}, c, m, m, m, w.seams, w.seams, &attention, &out);
  MISUSE(trafo_op_activation, {}, c, m, TRAFO_GELU, &out);
  MISUSE(trafo_op_bias_act_dropout, {2, 4}, c, m, r, TRAFO_RELU, &dropout, &out);
  MISUSE(trafo_op_bias_dropout_residual, {2, 4}, c, m, r, m, &dropout, &out);
  MISUSE(trafo_op_bias_dropout_residual_norm, {2, 7}, c, m, r, m, r, r, 1e-5, &dropout, &out,
         &out2);
  auto loss = defaults(trafo_cross_entropy_options_init);
  MISUSE_INIT(trafo_cross_entropy_options_init, loss);
  MISUSE(trafo_op_cross_entropy, {3, 5}, c, m, w.ids, &loss, &out, &out2);
  MISUSE(trafo_op_linear_cross_entropy, {3, 5, 8}, c, m, m, r, w.ids, &loss, 0, &out, &out2);
}

void misuse_text(World& w) {
  auto options = defaults(trafo_tokenizer_options_init);
  options.vocabulary = 30;
  options.soft_limit = 1;
  trafo_tokenizer* tokenizer = nullptr;
  trafo_corpus* corpus = nullptr;
  int32_t* ids = nullptr;
  const int32_t some[] = {4, 5};
  const std::string path = "/tmp/trafo-misuse-" + std::to_string(getpid());
  MISUSE_INIT(trafo_tokenizer_options_init, options);
  MISUSE(trafo_tokenizer_train, {2}, kWords, 3, &options, &tokenizer);
  MISUSE(trafo_tokenizer_save, {}, w.tokenizer, path.data(), path.size());
  MISUSE(trafo_tokenizer_load, {}, path.data(), path.size(), &tokenizer);
  std::remove(path.c_str());
  const uint8_t bytes[] = {1, 2, 3, 4};
  MISUSE(trafo_tokenizer_load_buffer, {}, bytes, sizeof bytes, &tokenizer);
  MISUSE(trafo_tokenizer_get_vocabulary, {}, w.tokenizer, &number);
  MISUSE(trafo_tokenizer_encode, {}, w.tokenizer, "alpha", 5, &ids, &size);
  MISUSE(trafo_tokenizer_decode, {}, w.tokenizer, some, 2, &text, &size);
  MISUSE(trafo_tokenizer_piece, {}, w.tokenizer, 5, &text, &size);
  std::ofstream(path) << "a\tb\n";
  MISUSE(trafo_corpus_load, {}, path.data(), path.size(), path.data(), path.size(), &corpus);
  MISUSE(trafo_corpus_load_tsv, {}, path.data(), path.size(), &corpus);
  const trafo_string_view paths[] = {{path.data(), path.size()}};
  auto reading = defaults(trafo_corpus_options_init);
  MISUSE_INIT(trafo_corpus_options_init, reading);
  MISUSE(trafo_corpus_open, {2}, paths, 1, &reading, &corpus);
  std::remove(path.c_str());
  const trafo_corpus* corpora[] = {w.corpus};
  const double weights[] = {2};
  MISUSE(trafo_corpus_mix, {}, corpora, weights, 1, &corpus);
  trafo_corpus* held = nullptr;
  MISUSE(trafo_corpus_hold_out, {}, w.corpus, 1, &corpus, &held);
  MISUSE(trafo_corpus_new, {}, kWords, kWords, 3, &corpus);
  trafo_corpus_info info;
  MISUSE(trafo_corpus_get_info, {}, w.corpus, &info);
  MISUSE(trafo_corpus_get_pair, {}, w.corpus, 1, &view, &view2);
  MISUSE(trafo_corpus_train_tokenizer, {1}, w.corpus, &options, &tokenizer);
  MISUSE(trafo_bleu, {5}, kWords, kWords, 3, 0, &real, &text);
  MISUSE(trafo_chrf, {4}, kWords, kWords, 3, &real, &text);
}

void misuse_models(World& w) {
  trafo_model_config config = w.config;
  trafo_model* model = nullptr;
  const char* name = nullptr;
  const std::string path = "/tmp/trafo-misuse-" + std::to_string(getpid());
  MISUSE_INIT(trafo_model_config_init, config);
  MISUSE(trafo_model_config_preset, {}, &config, "tiny", 4);
  MISUSE(trafo_model_new, {}, w.context, &w.config, 1, &model);
  MISUSE(trafo_model_save, {}, w.model, path.data(), path.size());
  MISUSE(trafo_model_load, {}, w.context, path.data(), path.size(), &model);
  must(trafo_model_save(w.model, path.data(), path.size()));
  MISUSE(trafo_model_load_as, {}, w.context, path.data(), path.size(), TRAFO_FLOAT32, &model);
  std::remove(path.c_str());
  trafo_tokenizer* tokenizer = nullptr;
  char* note = nullptr;
  MISUSE(trafo_model_export, {5}, w.model, w.tokenizer, TRAFO_EXPORT_CTRANSLATE2, path.data(),
         path.size(), &real);
  std::filesystem::remove_all(path);
  MISUSE(trafo_model_import, {5}, w.context, path.data(), path.size(), &model, &tokenizer, &note);
  must(trafo_model_save(w.model, path.data(), path.size()));
  MISUSE(trafo_model_load_weights, {1}, w.model, w.tokenizer, path.data(), path.size());
  const trafo_string_view models[] = {{path.data(), path.size()}, {path.data(), path.size()}};
  MISUSE(trafo_average_models, {}, models, 2, path.data(), path.size());
  std::filesystem::remove_all(path);
  MISUSE(trafo_model_get_config, {}, w.model, &config, sizeof config);
  MISUSE(trafo_model_get_parameter_count, {}, w.model, &number, numbers);
  Misuse<trafo_model*, int64_t, const char**, trafo_tensor**>(
      "trafo_model_get_parameter", trafo_model_get_parameter, {2, 3}, w.model, 0, &name, &out);

  auto translate = defaults(trafo_translate_options_init);
  trafo_translations* translations = nullptr;
  MISUSE_INIT(trafo_translate_options_init, translate);
  MISUSE(trafo_translate, {4, 5}, w.model, w.tokenizer, kWords, 3, &translate, nullptr,
         &translations);
  must(trafo_translate(w.model, w.tokenizer, kWords, 3, nullptr, nullptr, &translations));
  MISUSE(trafo_translations_get, {4}, translations, 0, 0, &view, &real);
  MISUSE(trafo_translations_get_count, {}, translations, 0, &size);
  MISUSE(trafo_translations_get_truncated, {}, translations, &size);
  MISUSE(trafo_translations_get_source, {2, 3}, translations, 0, numbers, numbers);
  trafo_translations_free(translations);
  const std::string list_path = "/tmp/trafo-misuse-list-" + std::to_string(getpid());
  trafo_shortlist* list = nullptr;
  MISUSE(trafo_shortlist_learn, {}, w.tokenizer, kWords, kWords, 3, 2, &list);
  must(trafo_shortlist_learn(w.tokenizer, kWords, kWords, 3, 2, &list));
  MISUSE(trafo_shortlist_save, {}, list, list_path.data(), list_path.size());
  must(trafo_shortlist_save(list, list_path.data(), list_path.size()));
  trafo_shortlist_free(list);
  MISUSE(trafo_shortlist_load, {}, w.tokenizer, list_path.data(), list_path.size(), &list);
  std::filesystem::remove(list_path);
  MISUSE(trafo_score, {6}, w.model, w.tokenizer, kWords, kWords, 3, reals, numbers);

  auto options = defaults(trafo_trainer_options_init);
  options.after_updates = 3;
  options.max_length = 16;
  trafo_trainer* trainer = nullptr;
  trafo_memory_plan plan;
  MISUSE_INIT(trafo_trainer_options_init, options);
  MISUSE(trafo_plan_training, {1}, &w.config, &options, 2, 8, 8, &plan, sizeof plan);
  MISUSE(trafo_trainer_new, {3, 4, 5}, w.model, w.tokenizer, w.corpus, w.corpus, &options, nullptr,
         0, &trainer);
  must(trafo_trainer_new(w.model, w.tokenizer, w.corpus, w.corpus, &options, nullptr, 0, &trainer));
  trafo_step_result step;
  MISUSE(trafo_trainer_step, {}, trainer, &step);
  MISUSE(trafo_trainer_run, {2, 3, 4}, trainer, 1, nullptr, ignore_event, nullptr, &integer);
  MISUSE(trafo_trainer_validate, {1, 2, 3}, trainer, &reals[0], &reals[1], &reals[2]);
  MISUSE(trafo_trainer_save, {}, trainer);
  MISUSE(trafo_trainer_get_plan, {}, trainer, &plan, sizeof plan);
  trafo_trainer_free(trainer);
  MISUSE(trafo_model_freeze, {}, w.model);
}

// The functions that return no error object.
void misuse_rest() {
  for (const char* name : {"trafo_version", "trafo_abi_version", "trafo_error_code_name"})
    covered.insert(name);
  check(trafo_version()[0] && trafo_abi_version() == TRAFO_ABI_VERSION, "versions");
  for (int32_t code : {INT32_MIN, -1, 12345, INT32_MAX})
    check(std::strcmp(trafo_error_code_name(code), "UNKNOWN") == 0, "trafo_error_code_name");
  trafo_error* error = trafo_cancel_new(nullptr);
  trafo_error_free(error);
  for (const trafo_error* each : {error, reinterpret_cast<trafo_error*>(other_kind)}) {
    check(trafo_error_code(each) == TRAFO_INVALID_ARGUMENT, "trafo_error_code");
    check(trafo_error_message(each)[0] != '\0', "trafo_error_message");
    check(trafo_error_origin(each)[0] == '\0', "trafo_error_origin");
  }
  trafo_error_free(reinterpret_cast<trafo_error*>(other_kind));
  for (const char* name : {"trafo_error_code", "trafo_error_message", "trafo_error_origin"})
    covered.insert(name);
  MISUSE_FREE(trafo_error_free);
  MISUSE_FREE(trafo_string_free);
  MISUSE_FREE(trafo_ids_free);
  MISUSE_FREE(trafo_context_free);
  MISUSE_FREE(trafo_tensor_free);
  MISUSE_FREE(trafo_cancel_free);
  MISUSE_FREE(trafo_adamw_free);
  MISUSE_FREE(trafo_tokenizer_free);
  MISUSE_FREE(trafo_corpus_free);
  MISUSE_FREE(trafo_model_free);
  MISUSE_FREE(trafo_trainer_free);
  MISUSE_FREE(trafo_translations_free);
  MISUSE_FREE(trafo_shortlist_free);
}

// To the library a freed handle is an address that is not registered. These addresses are never
// handed out again by an allocator, as those of truly freed handles are (c_api_test has such).
void make_freed() {
  alignas(64) static unsigned char ended[10][64];
  freed<trafo_context> = reinterpret_cast<trafo_context*>(ended[0]);
  freed<trafo_tensor> = reinterpret_cast<trafo_tensor*>(ended[1]);
  freed<trafo_cancel> = reinterpret_cast<trafo_cancel*>(ended[2]);
  freed<trafo_adamw> = reinterpret_cast<trafo_adamw*>(ended[3]);
  freed<trafo_tokenizer> = reinterpret_cast<trafo_tokenizer*>(ended[4]);
  freed<trafo_corpus> = reinterpret_cast<trafo_corpus*>(ended[5]);
  freed<trafo_model> = reinterpret_cast<trafo_model*>(ended[6]);
  freed<trafo_trainer> = reinterpret_cast<trafo_trainer*>(ended[7]);
  freed<trafo_translations> = reinterpret_cast<trafo_translations*>(ended[8]);
  freed<trafo_shortlist> = reinterpret_cast<trafo_shortlist*>(ended[9]);
}

void check_complete() {
  std::ifstream list(TRAFO_SYMBOLS);
  std::string name;
  size_t listed = 0;
  while (std::getline(list, name)) {
    ++listed;
    check(covered.count(name) == 1, name + " is not in this test");
  }
  check(listed == covered.size(), "this test has functions that are not in symbols.txt");
}

}  // namespace

int main() {
  make_freed();
  must(trafo_cancel_new(&other_kind));
  {
    World world;
    another_kind = world.corpus;
    misuse_context(world);
    misuse_tensors(world);
    misuse_exchange(world);
    misuse_callbacks(world);
    misuse_ops(world);
    misuse_text(world);
    misuse_models(world);
  }
  must(trafo_corpus_new(kWords, kWords, 3, &another_kind));
  misuse_rest();
  trafo_corpus_free(another_kind);
  trafo_cancel_free(other_kind);
  check_complete();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
