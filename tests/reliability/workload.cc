#include "tests/reliability/workload.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace trafo::testing {
namespace {

// Lengths of many kinds, so that an epoch has batches of several shapes.
const char* const kSource[] = {"der hund schläft",
                               "die katze jagt eine maus im garten",
                               "ein vogel",
                               "das kind liest ein buch über den mond und die sterne",
                               "wir gehen",
                               "der alte mann trinkt kaffee am fenster",
                               "die sonne scheint heute",
                               "morgen regnet es vielleicht in den bergen",
                               "sie singt",
                               "der zug kommt zu spät an",
                               "ein kleines haus steht am fluss",
                               "niemand weiss es"};
const char* const kTarget[] = {"the dog sleeps",
                               "the cat chases a mouse in the garden",
                               "a bird",
                               "the child reads a book about the moon and the stars",
                               "we go",
                               "the old man drinks coffee at the window",
                               "the sun shines today",
                               "tomorrow it may rain in the mountains",
                               "she sings",
                               "the train arrives late",
                               "a small house stands by the river",
                               "nobody knows"};

template <size_t count>
std::vector<trafo_string_view> views(const char* const (&lines)[count]) {
  std::vector<trafo_string_view> all;
  for (const char* line : lines) all.push_back({line, std::char_traits<char>::length(line)});
  return all;
}

}  // namespace

void must(trafo_error* error) {
  if (!error) return;
  std::fprintf(stderr, "failed: %s [%s]\n", trafo_error_message(error), trafo_error_origin(error));
  std::exit(3);
}

const std::vector<trafo_string_view>& source_lines() {
  static const std::vector<trafo_string_view> lines = views(kSource);
  return lines;
}
const std::vector<trafo_string_view>& target_lines() {
  static const std::vector<trafo_string_view> lines = views(kTarget);
  return lines;
}

Workload::Workload(WorkloadOptions wanted) : options(std::move(wanted)) {
  source_lines();
  target_lines();
}

trafo_error* Workload::make_context() {
  trafo_context_options settings;
  must(trafo_context_options_init(&settings, sizeof settings));
  settings.device = options.device;
  settings.threads = options.device == TRAFO_DEVICE_CPU ? options.threads : 0;
  // The stand-in accelerator has no graphs, and a graph takes its memory before it is recorded.
  if (options.device != TRAFO_DEVICE_CPU && std::getenv("TRAFO_TEST_DEVICE") == nullptr)
    settings.graphs = 0;
  return trafo_context_new(&settings, &context);
}

trafo_error* Workload::make_corpus() {
  return trafo_corpus_new(source_lines().data(), target_lines().data(), options.pairs, &corpus);
}

trafo_error* Workload::make_tokenizer() {
  trafo_tokenizer_options settings;
  must(trafo_tokenizer_options_init(&settings, sizeof settings));
  settings.vocabulary = 48;
  settings.soft_limit = 1;
  return trafo_corpus_train_tokenizer(corpus, &settings, nullptr, &tokenizer);
}

trafo_error* Workload::make_model() {
  trafo_model_config config;
  must(trafo_model_config_init(&config, sizeof config));
  if (trafo_error* error = trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary))
    return error;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = options.width;
  config.ffn_width = 2 * options.width;
  config.heads = 2;
  config.max_positions = 96;
  return trafo_model_new(context, &config, options.seed, &model);
}

trafo_error* Workload::make_trainer() {
  trafo_trainer_options settings;
  must(trafo_trainer_options_init(&settings, sizeof settings));
  settings.autotune_gemm = 0;  // two runs that time kernels may choose different ones
  settings.seed = options.seed;
  settings.batch_tokens = 96;
  settings.max_length = 96;
  settings.warmup = 10;
  settings.gradient_accumulation = options.gradient_accumulation;
  settings.ema_alpha = options.smoothing;
  settings.valid_freq.value = settings.save_freq.value = settings.log_freq.value = 0;
  settings.valid_metrics = TRAFO_METRIC_CE | TRAFO_METRIC_BLEU;
  settings.keep_last = 2;
  return trafo_trainer_new(model, tokenizer, corpus, corpus, &settings,
                           options.run_directory.data(), options.run_directory.size(), nullptr,
                           &trainer);
}

void Workload::make_all() {
  must(make_context());
  must(make_corpus());
  must(make_tokenizer());
  must(make_model());
  must(make_trainer());
}

trafo_error* Workload::translate(int32_t beam, trafo_translations** out) {
  trafo_translate_options settings;
  must(trafo_translate_options_init(&settings, sizeof settings));
  settings.beam = beam;
  settings.max_length = 12;
  settings.batch_tokens = 64;
  return trafo_translate(model, tokenizer, source_lines().data(), 4, &settings, nullptr, out);
}

std::string Workload::text_of(const trafo_translations* translations) {
  std::string all;
  for (size_t line = 0; line < 4; ++line) {
    trafo_string_view text{};
    double score = 0;
    must(trafo_translations_get(translations, line, 0, &text, &score));
    all.append(text.data, text.length).append(reinterpret_cast<const char*>(&score), sizeof score);
  }
  return all;
}

void Workload::free_trainer() {
  trafo_trainer_free(std::exchange(trainer, nullptr));
}

void Workload::free_all() {
  free_trainer();
  trafo_model_free(std::exchange(model, nullptr));
  trafo_tokenizer_free(std::exchange(tokenizer, nullptr));
  trafo_corpus_free(std::exchange(corpus, nullptr));
  trafo_context_free(std::exchange(context, nullptr));
}

std::string Workload::weights() const {
  std::string bytes;
  int64_t tensors = 0, elements = 0;
  must(trafo_model_get_parameter_count(model, &tensors, &elements));
  for (int64_t i = 0; i < tensors; ++i) {
    trafo_tensor* tensor = nullptr;
    must(trafo_model_get_parameter(model, i, nullptr, &tensor));
    int64_t shape[8], count = 1;
    int32_t rank = 0;
    must(trafo_tensor_get_shape(tensor, shape, 8, &rank));
    for (int32_t d = 0; d < rank; ++d) count *= shape[d];
    const size_t at = bytes.size(), size = static_cast<size_t>(count) * sizeof(float);
    bytes.resize(at + size);
    must(trafo_tensor_read(tensor, bytes.data() + at, size));
    trafo_tensor_free(tensor);
  }
  return bytes;
}

trafo_memory_stats Workload::memory() const {
  trafo_memory_stats stats{};
  must(trafo_context_memory_stats(context, &stats));
  return stats;
}

}  // namespace trafo::testing
