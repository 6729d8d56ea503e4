// Hidden states and logits of a model as tensors, with gradients that reach its parameters.
#include "capi_check.h"

enum { kLines = 3 };

typedef struct Fixture {
  trafo_context* context;
  trafo_tokenizer* tokenizer;
  trafo_model* model;
  trafo_string_view source[kLines], target[kLines];
} Fixture;

static trafo_model* new_model(trafo_context* context, int32_t architecture, int64_t vocabulary) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_model_config_preset(&config, "tiny", 4));
  config.architecture = architecture;
  config.vocabulary = vocabulary;
  config.encoder_layers = 1;
  config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = 40;
  OK(trafo_model_new(context, &config, 3, &model));
  return model;
}

// Sum of the losses of all targets by logits, without the sources of a decoder-lm.
static trafo_tensor* loss_of(Fixture* f, trafo_tensor** out_labels) {
  trafo_tensor *logits = NULL, *loss = NULL;
  OK(trafo_model_logits(f->model, f->tokenizer, f->source, f->target, kLines, 1, &logits,
                        out_labels));
  trafo_cross_entropy_options options;
  OK(trafo_cross_entropy_options_init(&options, sizeof options));
  options.reduction = TRAFO_REDUCE_SUM;
  OK(trafo_op_cross_entropy(f->context, logits, *out_labels, &options, &loss, NULL));
  trafo_tensor_free(logits);
  return loss;
}

static double item(const trafo_tensor* tensor) {
  float value = 0;
  OK(trafo_tensor_read(tensor, &value, sizeof value));
  return (double)value;
}

// The loss is the one that trafo_score gives, and its gradient is the slope of the loss.
static void test_logits(Fixture* f) {
  double scores[kLines], sum = 0;
  OK(trafo_score(f->model, f->tokenizer, f->source, f->target, kLines, NULL, scores, NULL));
  for (int i = 0; i < kLines; ++i) sum -= scores[i];
  trafo_tensor *labels = NULL, *parameter = NULL, *gradient = NULL;
  trafo_tensor* loss = loss_of(f, &labels);
  NEAR(item(loss), sum, 1e-4 * sum);
  OK(trafo_backward(f->context, loss, NULL));
  trafo_tensor_free(loss);
  trafo_tensor_free(labels);

  OK(trafo_model_get_parameter(f->model, 0, NULL, &parameter));
  OK(trafo_tensor_get_grad(parameter, &gradient));
  CHECK(gradient != NULL);
  trafo_parameter_info info;
  OK(trafo_model_get_parameter_info(f->model, 0, &info, sizeof info));
  const size_t bytes = (size_t)info.elements * sizeof(float);
  float *values = malloc(bytes), *slopes = malloc(bytes);
  OK(trafo_tensor_read(parameter, values, bytes));
  OK(trafo_tensor_read(gradient, slopes, bytes));
  size_t steepest = 0;
  for (size_t i = 1; i < (size_t)info.elements; ++i)
    if (fabsf(slopes[i]) > fabsf(slopes[steepest])) steepest = i;
  const float value = values[steepest], step = 0.01f;
  double losses[2];
  for (int side = 0; side < 2; ++side) {
    values[steepest] = side ? value + step : value - step;
    OK(trafo_tensor_write(parameter, values, bytes));
    loss = loss_of(f, &labels);
    losses[side] = item(loss);
    trafo_tensor_free(loss);
    trafo_tensor_free(labels);
  }
  const double slope = (double)slopes[steepest];
  CHECK(fabs(slope) > 1e-2);
  NEAR((losses[1] - losses[0]) / (2 * (double)step), slope, 0.03 * fabs(slope));
  values[steepest] = value;
  OK(trafo_tensor_write(parameter, values, bytes));
  free(values);
  free(slopes);
  trafo_tensor_free(gradient);
  trafo_tensor_free(parameter);
}

// The states of a line do not depend on the lines beside it.
static void test_states(Fixture* f) {
  trafo_tensor *states = NULL, *bounds = NULL, *mean = NULL, *alone = NULL, *ends = NULL,
               *one = NULL;
  OK(trafo_model_hidden_states(f->model, f->tokenizer, f->source, kLines, 1, &states, &bounds));
  int32_t rows[kLines + 1];
  OK(trafo_tensor_read(bounds, rows, sizeof rows));
  int64_t shape[2];
  int32_t rank = 0;
  OK(trafo_tensor_get_shape(states, shape, 2, &rank));
  CHECK(rows[0] == 0 && shape[0] == rows[kLines] && shape[1] == 16);
  OK(trafo_op_segment_mean(f->context, states, bounds, &mean));
  float means[kLines][16], single[16];
  OK(trafo_tensor_read(mean, means, sizeof means));
  for (int line = 0; line < kLines; ++line) {
    CHECK(rows[line + 1] > rows[line] + 1);
    OK(trafo_model_hidden_states(f->model, f->tokenizer, &f->source[line], 1, 1, &alone, &ends));
    OK(trafo_op_segment_mean(f->context, alone, ends, &one));
    OK(trafo_tensor_read(one, single, sizeof single));
    for (int i = 0; i < 16; ++i) NEAR(means[line][i], single[i], 1e-5);
    trafo_tensor_free(alone);
    trafo_tensor_free(ends);
    trafo_tensor_free(one);
  }
  trafo_tensor_free(mean);
  trafo_tensor_free(bounds);
  trafo_tensor_free(states);
}

static void test_errors(Fixture* f, int is_lm) {
  trafo_tensor *a = NULL, *b = NULL;
  FAILS(trafo_model_hidden_states(f->model, f->tokenizer, f->source, 0, 1, &a, &b),
        TRAFO_INVALID_ARGUMENT, "there are no lines");
  FAILS(trafo_model_logits(f->model, f->tokenizer, f->source, f->target, 0, 1, &a, &b),
        TRAFO_INVALID_ARGUMENT, "there are no lines");
  const trafo_string_view lines[2] = {f->source[0], view("a\xff")};
  FAILS(trafo_model_hidden_states(f->model, f->tokenizer, lines, 2, 1, &a, &b),
        TRAFO_INVALID_ARGUMENT, "line 2");
  char text[400];
  for (size_t i = 0; i < sizeof text; ++i) text[i] = i % 2 ? ' ' : 'a';
  const trafo_string_view longer = {text, sizeof text};
  FAILS(trafo_model_hidden_states(f->model, f->tokenizer, &longer, 1, 1, &a, &b),
        TRAFO_INVALID_ARGUMENT, "takes at most 40");
  FAILS(trafo_model_logits(f->model, f->tokenizer, &longer, f->target, 1, 1, &a, &b),
        TRAFO_INVALID_ARGUMENT, is_lm ? "pair 1" : "the source of pair 1");
  CHECK(a == NULL && b == NULL);
  // A line without text has its end alone.
  const trafo_string_view empty = view("");
  OK(trafo_model_hidden_states(f->model, f->tokenizer, &empty, 1, 1, &a, &b));
  int64_t shape[2];
  int32_t rank = 0;
  OK(trafo_tensor_get_shape(a, shape, 2, &rank));
  CHECK(shape[0] == 1 && shape[1] == 16);
  trafo_tensor_free(a);
  trafo_tensor_free(b);
}

// Weights for inference stay as they are: nothing is recorded.
static void test_inference(Fixture* f) {
  trafo_tensor *states = NULL, *bounds = NULL;
  OK(trafo_model_prepare_inference(f->model));
  OK(trafo_model_hidden_states(f->model, f->tokenizer, f->source, kLines, 1, &states, &bounds));
  FAILS(trafo_backward(f->context, states, states), TRAFO_INVALID_ARGUMENT, "grad");
  trafo_tensor_free(states);
  trafo_tensor_free(bounds);
}

void test_states_and_logits(void) {
  Fixture f = {.context = new_context(2)};
  static const char* const kSource[kLines] = {"ein roter hut", "zwei blaue tische im haus", "drei"};
  static const char* const kTarget[kLines] = {"a red hat", "two blue tables in the house", "three"};
  trafo_corpus* corpus = NULL;
  for (int i = 0; i < kLines; ++i) {
    f.source[i] = view(kSource[i]);
    f.target[i] = view(kTarget[i]);
  }
  OK(trafo_corpus_new(f.source, f.target, kLines, &corpus));
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 60;
  options.soft_limit = 1;
  OK(trafo_corpus_train_tokenizer(corpus, &options, NULL, &f.tokenizer));
  trafo_corpus_free(corpus);
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(f.tokenizer, &vocabulary));
  for (int is_lm = 0; is_lm < 2; ++is_lm) {
    f.model = new_model(f.context, is_lm ? TRAFO_DECODER_LM : TRAFO_ENCODER_DECODER, vocabulary);
    test_logits(&f);
    test_states(&f);
    test_errors(&f, is_lm);
    test_inference(&f);
    trafo_model_free(f.model);
  }
  trafo_tokenizer_free(f.tokenizer);
  trafo_context_free(f.context);
}
