// Sequences of calls of the C ABI: every byte of the input is a choice, of a function or of an
// argument. Handles are live, freed, of another kind or NULL; numbers small, odd or enormous.
// Preconditions that the ABI cannot check are met: pointers lead to as many bytes as is said.
#include <cmath>
#include <cstring>
#include <iterator>

#include "capi/include/trafo.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace trafo::fuzz {
namespace {

constexpr size_t kSlots = 6, kCalls = 64;

class Caller {
 public:
  explicit Caller(Bytes input) : choices_(input) {}
  ~Caller() {
    for (auto* each : translations_.all) trafo_translations_free(each);
    for (auto* each : trainers_.all) trafo_trainer_free(each);
    for (auto* each : optimizers_.all) trafo_adamw_free(each);
    for (auto* each : models_.all) trafo_model_free(each);
    for (auto* each : corpora_.all) trafo_corpus_free(each);
    for (auto* each : tokenizers_.all) trafo_tokenizer_free(each);
    for (auto* each : tensors_.all) trafo_tensor_free(each);
    for (auto* each : contexts_.all) trafo_context_free(each);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void run() {
    trafo_context* first = nullptr;
    take(trafo_context_new(nullptr, &first));
    contexts_.add(first);
    take(trafo_context_set_threads(first, 1));
    for (size_t call = 0; call < kCalls && !choices_.empty(); ++call) one();
  }

 private:
  template <class T>
  struct Pool {
    std::vector<T*> all;
    void add(T* handle) {
      if (handle) all.push_back(handle);
    }
  };

  // The error is good: a known code, a message without control characters; then it goes.
  bool take(trafo_error* error) {
    if (!error) return true;
    const int32_t code = trafo_error_code(error);
    const std::string_view message = trafo_error_message(error);
    if (code <= TRAFO_OK || code == TRAFO_INTERNAL || code > TRAFO_PEER_LOST)
      finding(std::string(message));
    expect(!message.empty() && trafo_error_origin(error)[0] != '\0', "an error without a message");
    for (const char c : message)
      expect(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f,
             "a control character in a message");
    trafo_error_free(error);
    return false;
  }

  unsigned byte() { return choices_.byte(); }

  template <class T>
  T* pick(Pool<T>& pool) {
    const unsigned choice = byte();
    if (choice >= 0xfd) return nullptr;
    if (choice >= 0xfb) {  // a handle of another kind
      if constexpr (std::is_same_v<T, trafo_context>)
        return tensors_.all.empty() ? nullptr : reinterpret_cast<T*>(tensors_.all[0]);
      else
        return contexts_.all.empty() ? nullptr : reinterpret_cast<T*>(contexts_.all[0]);
    }
    if (pool.all.empty()) return nullptr;
    return pool.all[choice % pool.all.size()];  // perhaps freed: the pool remembers it
  }

  template <class T>
  void keep(Pool<T>& pool, T* handle, void (*release)(T*)) {
    if (!handle) return;
    pool.add(handle);
    if (pool.all.size() <= kSlots) return;
    release(pool.all.front());
    pool.all.erase(pool.all.begin());
  }
  void keep(trafo_tensor* handle) { keep(tensors_, handle, trafo_tensor_free); }

  int64_t number() {
    static constexpr int64_t kNumbers[] = {
        0, 1, 2, 3, 4, 7, 8, 16, -1, -2, 255, 1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    return kNumbers[byte() % std::size(kNumbers)];
  }
  int32_t integer() { return static_cast<int32_t>(number()); }
  int64_t small() { return static_cast<int64_t>(byte() % 5) - (byte() % 16 == 0 ? 2 : 0); }
  double real() {
    static constexpr double kReals[] = {0, 1, -1, 0.5, 1e-6, 1e300, -1e300, INFINITY, NAN, 3};
    return kReals[byte() % std::size(kReals)];
  }

  void new_tensor() {
    int64_t shape[9];
    const int32_t rank = static_cast<int32_t>(byte() % 10) - (byte() % 32 == 0 ? 2 : 0);
    int64_t elements = 1;
    for (int64_t& size : shape) size = byte() % 8 == 0 ? number() : small();
    for (int32_t i = 0; i < rank && i < 9; ++i)
      if (__builtin_mul_overflow(elements, shape[i], &elements)) elements = 0;
    const int32_t dtype = static_cast<int32_t>(byte() % 6) - 1;
    std::vector<unsigned char> data(4096, static_cast<unsigned char>(byte()));
    for (size_t i = 0; i + 4 <= data.size(); i += 4) {
      const float value = static_cast<float>(i % 7) / 4;
      const int32_t id = static_cast<int32_t>(i / 4 % 3);
      std::memcpy(data.data() + i, dtype == TRAFO_INT32 ? static_cast<const void*>(&id) : &value,
                  4);
    }
    const size_t width = dtype == TRAFO_FLOAT64 ? 8 : dtype == TRAFO_BFLOAT16 ? 2 : 4;
    size_t bytes = static_cast<size_t>(std::max<int64_t>(0, elements)) * width;
    if (byte() % 16 == 0) bytes = static_cast<size_t>(number());
    if (bytes > data.size() && bytes < size_t{1} << 50) bytes = data.size();
    trafo_tensor* out = nullptr;
    take(trafo_tensor_new(pick(contexts_), dtype, shape, rank, data.data(), bytes, &out));
    keep(out);
  }

  void op();
  void tensor_call();
  void text_call();
  void model_call();
  void one() {
    switch (byte() % 8) {
      case 0:
      case 1:
        return new_tensor();
      case 2:
      case 3:
      case 4:
        return op();
      case 5:
        return tensor_call();
      case 6:
        return text_call();
      default:
        return model_call();
    }
  }

  Parts choices_;
  Pool<trafo_context> contexts_;
  Pool<trafo_tensor> tensors_;
  Pool<trafo_tokenizer> tokenizers_;
  Pool<trafo_corpus> corpora_;
  Pool<trafo_model> models_;
  Pool<trafo_trainer> trainers_;
  Pool<trafo_adamw> optimizers_;
  Pool<trafo_translations> translations_;
};

void Caller::op() {
  using Unary = trafo_error* (*)(trafo_context*, const trafo_tensor*, trafo_tensor**);
  using Binary =
      trafo_error* (*)(trafo_context*, const trafo_tensor*, const trafo_tensor*, trafo_tensor**);
  using Along =
      trafo_error* (*)(trafo_context*, const trafo_tensor*, int32_t, int32_t, trafo_tensor**);
  static constexpr Unary kUnary[] = {
      trafo_op_exp, trafo_op_log,  trafo_op_sqrt,   trafo_op_tanh, trafo_op_sigmoid,
      trafo_op_sum, trafo_op_mean, trafo_op_swiglu, trafo_op_abs,  trafo_op_gelu_erf};
  static constexpr Binary kBinary[] = {trafo_op_add,    trafo_op_subtract, trafo_op_multiply,
                                       trafo_op_divide, trafo_op_maximum,  trafo_op_pow};
  static constexpr Along kAlong[] = {trafo_op_sum_dim,   trafo_op_mean_dim, trafo_op_max_dim,
                                     trafo_op_transpose, trafo_op_argmax,   trafo_op_argmin};
  trafo_tensor *out = nullptr, *second = nullptr;
  trafo_context* context = pick(contexts_);
  const trafo_tensor* x = pick(tensors_);
  const int64_t shape[] = {small(), small(), byte() % 4 == 0 ? number() : -1};
  const int32_t dims[] = {integer(), integer(), integer()};
  switch (byte() % 31) {
    case 0:
      take(kUnary[byte() % std::size(kUnary)](context, x, &out));
      break;
    case 1:
      take(kBinary[byte() % std::size(kBinary)](context, x, pick(tensors_), &out));
      break;
    case 2:
      take(kAlong[byte() % std::size(kAlong)](context, x, integer(), integer(), &out));
      break;
    case 3:
      take(trafo_op_scale(context, x, real(), &out));
      break;
    case 4:
      take(trafo_op_reshape(context, x, shape, static_cast<int32_t>(byte() % 4), &out));
      break;
    case 5:
      take(trafo_op_slice(context, x, integer(), number(), number(), &out));
      break;
    case 6: {
      const trafo_tensor* parts[] = {x, pick(tensors_), pick(tensors_)};
      take(trafo_op_concat(context, parts, byte() % 4, integer(), &out));
      break;
    }
    case 7:
      take(trafo_op_cast(context, x, integer(), &out));
      break;
    case 8:
      take(trafo_op_matmul(context, x, pick(tensors_), integer(), integer(), &out));
      break;
    case 9:
      take(trafo_op_linear(context, x, pick(tensors_), pick(tensors_), &out));
      break;
    case 10: {
      trafo_dropout dropout{static_cast<float>(real()), byte(), byte(), byte() % 8 == 0, 1};
      take(trafo_op_dropout(context, x, byte() % 8 == 0 ? nullptr : &dropout, &out));
      break;
    }
    case 11: {
      trafo_embedding_options options;
      take(trafo_embedding_options_init(&options, sizeof options));
      options.scale = real();
      options.padding_id = integer() % 4;
      options.positions = pick(tensors_);
      options.position_table = pick(tensors_);
      take(trafo_op_embedding(context, x, pick(tensors_), byte() % 4 == 0 ? nullptr : &options,
                              &out));
      break;
    }
    case 12:
      take(trafo_op_layer_norm(context, x, pick(tensors_), pick(tensors_), real(), &out));
      break;
    case 13:
      take(trafo_op_rms_norm(context, x, pick(tensors_), real(), &out));
      break;
    case 14:
      take(trafo_op_rotary(context, x, pick(tensors_), number(), number(), number(), real(), &out));
      break;
    case 15:
      take(trafo_op_softmax(context, x, real(), integer(), pick(tensors_), &out));
      break;
    case 16: {
      trafo_attention_options options;
      take(trafo_attention_options_init(&options, sizeof options));
      if (byte() % 4 == 0) options.mask = pick(tensors_);
      take(trafo_op_attention(context, x, pick(tensors_), pick(tensors_), pick(tensors_),
                              pick(tensors_), byte() % 2 == 0 ? nullptr : &options, &out));
      break;
    }
    case 17:
      take(trafo_op_activation(context, x, integer(), &out));
      break;
    case 18: {
      trafo_cross_entropy_options options;
      take(trafo_cross_entropy_options_init(&options, sizeof options));
      if (byte() % 2 == 0) options.class_weights = pick(tensors_);
      if (byte() % 2 == 0)
        take(trafo_op_soft_cross_entropy(context, x, pick(tensors_), &options, &out));
      else
        take(trafo_op_cross_entropy(context, x, pick(tensors_), &options, &out, &second));
      break;
    }
    case 19:
      take(trafo_op_clamp(context, x, real(), real(), &out));
      break;
    case 20:
      take(trafo_op_compare(context, x, pick(tensors_), integer(), &out));
      break;
    case 21:
      take(trafo_op_compare_number(context, x, real(), integer(), &out));
      break;
    case 22:
      take(trafo_op_where(context, x, pick(tensors_), pick(tensors_), &out));
      break;
    case 23:
      take(trafo_op_masked_fill(context, x, pick(tensors_), real(), &out));
      break;
    case 24:
      take(trafo_op_tril(context, x, number(), &out));
      break;
    case 25:
      take(trafo_op_sum_dims(context, x, dims, byte() % 4, integer(), &out));
      break;
    case 26:
      take(trafo_op_top_k(context, x, number(), integer(), &out, &second));
      break;
    case 27:
      take(trafo_op_permute(context, x, dims, byte() % 4, &out));
      break;
    case 28:
      take(trafo_op_expand(context, x, shape, static_cast<int32_t>(byte() % 4), &out));
      break;
    case 29: {
      const int32_t dim = integer();
      take(trafo_op_cumsum(context, x, dim, &out));
      keep(out);
      take(trafo_op_gather(context, x, dim, pick(tensors_), &out));
      keep(out);
      take(trafo_op_scatter_add(context, x, dim, pick(tensors_), pick(tensors_), &out));
      keep(out);
      take(trafo_op_scatter(context, x, dim, pick(tensors_), pick(tensors_), &out));
      keep(out);
      take(trafo_op_segment_mean(context, x, pick(tensors_), &out));
      break;
    }
    default:
      take(trafo_op_linear_cross_entropy(context, x, pick(tensors_), pick(tensors_), pick(tensors_),
                                         nullptr, number(), &out, &second));
  }
  keep(out);
  keep(second);
}

void Caller::tensor_call() {
  unsigned char room[4096] = {};
  int64_t shape[8];
  int32_t integer_out = 0;
  double real_out = 0;
  trafo_tensor* out = nullptr;
  trafo_tensor* x = pick(tensors_);
  switch (byte() % 14) {
    case 0:
      return trafo_tensor_free(x);
    case 1:
      take(trafo_tensor_clone(x, &out));
      break;
    case 2:
      take(trafo_tensor_detach(x, &out));
      break;
    case 3:
      take(trafo_tensor_get_dtype(x, &integer_out));
      break;
    case 4:
      take(trafo_tensor_get_shape(x, shape, static_cast<int32_t>(byte() % 10) - 1, &integer_out));
      break;
    case 5:
      take(trafo_tensor_read(x, room, byte() * size_t{16}));
      break;
    case 6:
      take(trafo_tensor_write(x, room, byte() * size_t{16}));
      break;
    case 7:
      take(trafo_tensor_set_requires_grad(x, static_cast<int32_t>(byte() % 3)));
      break;
    case 8:
      take(trafo_tensor_get_grad(x, &out));
      break;
    case 9:
      take(trafo_tensor_zero_grad(x));
      break;
    case 10:
      take(trafo_backward(pick(contexts_), x, pick(tensors_)));
      break;
    case 11:
      take(trafo_context_set_recording(pick(contexts_), integer(), &integer_out));
      break;
    case 12: {
      trafo_tensor* parameters[] = {x, pick(tensors_)};
      trafo_adamw* optimizer = nullptr;
      take(trafo_adamw_new(pick(contexts_), parameters, byte() % 3, nullptr, &optimizer));
      keep(optimizers_, optimizer, trafo_adamw_free);
      break;
    }
    default:
      take(trafo_adamw_step(pick(optimizers_), real(), &real_out));
  }
  keep(out);
}

void Caller::text_call() {
  static constexpr trafo_string_view kLines[] = {{"alpha beta gamma", 16},
                                                 {"beta gamma delta", 16},
                                                 {"gamma alpha", 11},
                                                 {"\xff", 1},
                                                 {"", 0},
                                                 {nullptr, 0},
                                                 {nullptr, 3},
                                                 {"a\0b", 3}};
  trafo_string_view lines[4], others[4];
  for (trafo_string_view& line : lines) line = kLines[byte() % (byte() % 4 == 0 ? 8 : 3)];
  for (trafo_string_view& line : others) line = kLines[byte() % (byte() % 4 == 0 ? 8 : 3)];
  const size_t count = byte() % 5;
  trafo_tokenizer* tokenizer = nullptr;
  trafo_corpus *corpus = nullptr, *more = nullptr;
  int64_t wide = 0;
  char* text = nullptr;
  size_t length = 0;
  int32_t* ids = nullptr;
  switch (byte() % 11) {
    case 0: {
      trafo_tokenizer_options options;
      take(trafo_tokenizer_options_init(&options, sizeof options));
      options.vocabulary = byte() % 4 == 0 ? integer() : 30;
      options.soft_limit = 1;
      take(trafo_tokenizer_train(lines, count, &options, nullptr, &tokenizer));
      break;
    }
    case 1:
      take(trafo_tokenizer_load_buffer(reinterpret_cast<const uint8_t*>(choices_.rest().data()),
                                       std::min<size_t>(choices_.rest().size(), byte()),
                                       &tokenizer));
      break;
    case 2:
      take(
          trafo_tokenizer_encode(pick(tokenizers_), lines[0].data, lines[0].length, &ids, &length));
      break;
    case 3: {
      int32_t some[] = {integer(), integer(), 1};
      take(trafo_tokenizer_decode(pick(tokenizers_), some, byte() % 4, &text, &length));
      break;
    }
    case 4:
      take(trafo_tokenizer_get_token(pick(tokenizers_), integer(), &text, &length));
      break;
    case 5:
      take(trafo_corpus_new(lines, others, count, &corpus));
      break;
    case 6: {
      trafo_corpus_info info;
      take(trafo_corpus_get_info(pick(corpora_), &info));
      break;
    }
    case 7: {
      trafo_string_view source, target;
      take(trafo_corpus_get_pair(pick(corpora_), number(), &source, &target));
      break;
    }
    case 8: {
      const trafo_corpus* mixed[] = {pick(corpora_), pick(corpora_)};
      const double weights[] = {real(), real()};
      take(trafo_corpus_mix(mixed, byte() % 2 == 0 ? nullptr : weights, byte() % 3, &corpus));
      break;
    }
    case 9:
      take(trafo_corpus_hold_out(pick(corpora_), number(), &corpus, &more));
      break;
    default:
      if (byte() % 2 == 0)
        trafo_corpus_free(pick(corpora_));
      else
        trafo_tokenizer_free(pick(tokenizers_));
      take(trafo_tokenizer_get_vocabulary(pick(tokenizers_), &wide));
      take(trafo_tokenizer_get_source_vocabulary(pick(tokenizers_), &wide));
  }
  trafo_string_free(text);
  trafo_ids_free(ids);
  keep(tokenizers_, tokenizer, trafo_tokenizer_free);
  keep(corpora_, corpus, trafo_corpus_free);
  keep(corpora_, more, trafo_corpus_free);
}

void Caller::model_call() {
  static constexpr trafo_string_view kLines[] = {{"alpha beta", 10}, {"", 0}};
  switch (byte() % 9) {
    case 0: {
      trafo_model_config config;
      take(trafo_model_config_init(&config, sizeof config));
      trafo_tokenizer* tokenizer = pick(tokenizers_);
      int64_t vocabulary = 0;
      take(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
      config.vocabulary = vocabulary;
      config.encoder_layers = config.decoder_layers = 1;
      config.width = config.ffn_width = 8;
      config.heads = 2;
      config.max_positions = 32;
      // One setting at a time is odd; none of them makes a valid model that is large.
      int64_t* fields[] = {&config.width, &config.heads, &config.encoder_layers,
                           &config.max_positions};
      if (byte() % 4 == 0) *fields[byte() % 4] = small();
      if (byte() % 8 == 0) config.architecture = integer();
      if (byte() % 8 == 0) config.dropout = real();
      trafo_model* model = nullptr;
      take(trafo_model_new(pick(contexts_), &config, 1, &model));
      return keep(models_, model, trafo_model_free);
    }
    case 1: {
      trafo_trainer_options options;
      take(trafo_trainer_options_init(&options, sizeof options));
      options.max_length = 16;
      options.batch_tokens = 64;
      if (byte() % 4 == 0) options.max_length = small();
      if (byte() % 4 == 0) options.learning_rate = real();
      if (byte() % 4 == 0) options.early_stopping = integer();
      trafo_trainer* trainer = nullptr;
      take(trafo_trainer_new(pick(models_), pick(tokenizers_), pick(corpora_), pick(corpora_),
                             &options, nullptr, 0, nullptr, &trainer));
      return keep(trainers_, trainer, trafo_trainer_free);
    }
    case 2: {
      trafo_step_result result;
      take(trafo_trainer_step(pick(trainers_), nullptr, &result));
      return;
    }
    case 3: {
      trafo_metric_value values[TRAFO_METRIC_COUNT];
      int64_t count = 0;
      take(trafo_trainer_validate(pick(trainers_), nullptr, values, TRAFO_METRIC_COUNT, &count));
      return;
    }
    case 4: {
      trafo_translate_options options;
      take(trafo_translate_options_init(&options, sizeof options));
      options.max_length = 4;
      options.beam = static_cast<int32_t>(small());
      if (byte() % 4 == 0) options.n_best = integer();
      if (byte() % 4 == 0) options.length_penalty = real();
      if (byte() % 4 == 0) options.sampling = integer();
      trafo_translations* out = nullptr;
      take(trafo_translate(pick(models_), pick(tokenizers_), kLines, byte() % 3, &options, nullptr,
                           &out));
      return keep(translations_, out, trafo_translations_free);
    }
    case 5: {
      double scores[2];
      int64_t tokens[2];
      take(trafo_score(pick(models_), pick(tokenizers_), kLines, kLines, byte() % 3, nullptr,
                       scores, tokens));
      return;
    }
    case 6:
      return trafo_model_free(pick(models_));
    case 7:
      return trafo_trainer_free(pick(trainers_));
    default: {
      trafo_context* context = nullptr;
      if (byte() % 2 == 0) return trafo_context_free(pick(contexts_));
      take(trafo_context_new(nullptr, &context));
      keep(contexts_, context, trafo_context_free);
    }
  }
}

}  // namespace

void run_c_api(Bytes input) {
  Caller(input).run();
}

std::vector<Seed> c_api_seeds() {
  std::vector<Seed> seeds;
  // Bytes of a fixed generator: sequences are found by the fuzzer, these only begin.
  uint32_t state = 1;
  for (int i = 0; i < 8; ++i) {
    std::string bytes;
    for (int k = 0; k < 400; ++k) {
      state = state * 1664525u + 1013904223u;
      bytes += static_cast<char>(state >> 24 & 0x7f);
    }
    seeds.push_back({"sequence-" + std::to_string(i), bytes});
  }
  return seeds;
}

}  // namespace trafo::fuzz
