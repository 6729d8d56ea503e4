// Every function of the C ABI with every kind of wrong argument, one at a time: it has to return an
// error, or a success that its comment allows, and the process has to live.
//
// For each parameter of a function the good arguments are replaced by
//   handle in:   NULL, a freed handle, a handle of another kind
//   pointer:     NULL
//   integer:     minimum, -1, 0, 12345 (an unknown enum), maximum
//   double:      NaN, -1, 0, infinity
// Wrong handles must be refused; NULL must be refused unless the parameter is listed as optional.
// A crash ends the test binary, which is the failure.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trafo.h"

namespace {

int passed = 0, failed = 0;
std::set<std::string> covered;

void check(bool right, const std::string& what) {
  ++(right ? passed : failed);
  if (!right) std::printf("failed: %s\n", what.c_str());
}

void must(trafo_error* error) {
  if (!error) return;
  std::printf("set-up failed: %s [%s]\n", trafo_error_message(error), trafo_error_origin(error));
  std::exit(1);
}

// Handles of each kind that are no more, and one of a kind that no call but its own takes.
trafo_cancel* other_kind;
trafo_corpus* another_kind;
template <class T>
T* freed = nullptr;

template <class T>
constexpr bool is_handle = std::is_same_v<T, trafo_context> || std::is_same_v<T, trafo_tensor> ||
                           std::is_same_v<T, trafo_cancel> || std::is_same_v<T, trafo_adamw> ||
                           std::is_same_v<T, trafo_tokenizer> || std::is_same_v<T, trafo_corpus> ||
                           std::is_same_v<T, trafo_model> || std::is_same_v<T, trafo_trainer> ||
                           std::is_same_v<T, trafo_translations>;

template <class T>
T* wrong_kind() {
  if constexpr (std::is_same_v<T, trafo_cancel>)
    return reinterpret_cast<T*>(another_kind);
  else
    return reinterpret_cast<T*>(other_kind);
}

// What a success has handed out goes again.
void release(trafo_context** p) {
  trafo_context_free(*p);
}
void release(trafo_tensor** p) {
  trafo_tensor_free(*p);
}
void release(trafo_cancel** p) {
  trafo_cancel_free(*p);
}
void release(trafo_adamw** p) {
  trafo_adamw_free(*p);
}
void release(trafo_tokenizer** p) {
  trafo_tokenizer_free(*p);
}
void release(trafo_corpus** p) {
  trafo_corpus_free(*p);
}
void release(trafo_model** p) {
  trafo_model_free(*p);
}
void release(trafo_trainer** p) {
  trafo_trainer_free(*p);
}
void release(trafo_translations** p) {
  trafo_translations_free(*p);
}
void release(char** p) {
  trafo_string_free(*p);
}
void release(int32_t** p) {
  trafo_ids_free(*p);
}

template <class T>
void reset_output(T& argument, bool give_back) {
  if constexpr (requires { release(argument); }) {
    if (!argument) return;
    if (give_back) release(argument);
    *argument = nullptr;
  }
}

// `optional`: positions (from 0) of pointers that may be NULL.
template <class... Args>
class Misuse {
 public:
  Misuse(const char* name, trafo_error* (*function)(Args...), std::set<size_t> optional,
         std::type_identity_t<Args>... good)
      : name_(name), function_(function), optional_(std::move(optional)), good_(good...) {
    covered.insert(name);
    each(std::index_sequence_for<Args...>{});
  }

 private:
  template <size_t... I>
  void each(std::index_sequence<I...>) {
    (replace<I>(), ...);
  }

  template <size_t I>
  void replace() {
    using T = std::tuple_element_t<I, std::tuple<Args...>>;
    if constexpr (std::is_pointer_v<T>) {
      using Pointee = std::remove_const_t<std::remove_pointer_t<T>>;
      attempt<I>(nullptr, "NULL", optional_.count(I) == 0);
      if constexpr (is_handle<Pointee>) {
        attempt<I>(freed<Pointee>, "a freed handle", true);
        attempt<I>(wrong_kind<Pointee>(), "a handle of another kind", true);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      for (T value : {T(NAN), T(-1), T(0), T(INFINITY)}) attempt<I>(value, "a double", false);
    } else {
      using Limits = std::numeric_limits<T>;
      const T largest = static_cast<T>(std::numeric_limits<std::make_signed_t<T>>::max());
      for (T value : {Limits::min(), T(-1), T(0), T(12345), largest})
        // An array's length is only wrong where no array is that long.
        if (!(sizeof(T) == 8 && std::is_unsigned_v<T> && value == T(12345)))
          attempt<I>(value, std::to_string(value), false);
    }
  }

  template <size_t I, class Value>
  void attempt(Value value, const std::string& description, bool refused) {
    std::apply([](auto&... each) { (reset_output(each, false), ...); }, good_);
    auto arguments = good_;
    std::get<I>(arguments) = value;
    trafo_error* error = std::apply(function_, arguments);
    const std::string what =
        std::string(name_) + ", argument " + std::to_string(I) + " = " + description;
    if (error) {
      const int32_t code = trafo_error_code(error);
      check(code > 0 && code < TRAFO_INTERNAL,
            what + ": code " + trafo_error_code_name(code) + ": " + trafo_error_message(error));
      check(trafo_error_message(error)[0] && trafo_error_origin(error)[0], what + ": no message");
      trafo_error_free(error);
    } else {
      check(!refused, what + ": was accepted");
    }
    std::apply([](auto&... each) { (reset_output(each, true), ...); }, arguments);
  }

  const char* name_;
  trafo_error* (*function_)(Args...);
  std::set<size_t> optional_;
  std::tuple<Args...> good_;
};

#define MISUSE(function, ...) Misuse(#function, function, __VA_ARGS__)

template <class T>
void misuse_free(const char* name, void (*function)(T*)) {
  covered.insert(name);
  function(nullptr);
  if constexpr (is_handle<T>) {
    function(freed<T>);
    function(wrong_kind<T>());
  }
  check(true, name);
}
#define MISUSE_FREE(function) misuse_free(#function, function)

template <class Options>
Options defaults(trafo_error* (*init)(Options*, size_t)) {
  Options options;
  must(init(&options, sizeof options));
  return options;
}
#define MISUSE_INIT(function, options) MISUSE(function, {}, &options, sizeof options)

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
  std::remove(path.c_str());
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
  trafo_translations_free(translations);
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
  trafo_trainer_free(trainer);
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
  MISUSE_FREE(trafo_buffer_free);
  MISUSE_FREE(trafo_context_free);
  MISUSE_FREE(trafo_tensor_free);
  MISUSE_FREE(trafo_cancel_free);
  MISUSE_FREE(trafo_adamw_free);
  MISUSE_FREE(trafo_tokenizer_free);
  MISUSE_FREE(trafo_corpus_free);
  MISUSE_FREE(trafo_model_free);
  MISUSE_FREE(trafo_trainer_free);
  MISUSE_FREE(trafo_translations_free);
}

// To the library a freed handle is an address that is not registered. These addresses are never
// handed out again by an allocator, as those of truly freed handles are (c_api_test has such).
void make_freed() {
  alignas(64) static unsigned char ended[9][64];
  freed<trafo_context> = reinterpret_cast<trafo_context*>(ended[0]);
  freed<trafo_tensor> = reinterpret_cast<trafo_tensor*>(ended[1]);
  freed<trafo_cancel> = reinterpret_cast<trafo_cancel*>(ended[2]);
  freed<trafo_adamw> = reinterpret_cast<trafo_adamw*>(ended[3]);
  freed<trafo_tokenizer> = reinterpret_cast<trafo_tokenizer*>(ended[4]);
  freed<trafo_corpus> = reinterpret_cast<trafo_corpus*>(ended[5]);
  freed<trafo_model> = reinterpret_cast<trafo_model*>(ended[6]);
  freed<trafo_trainer> = reinterpret_cast<trafo_trainer*>(ended[7]);
  freed<trafo_translations> = reinterpret_cast<trafo_translations*>(ended[8]);
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
