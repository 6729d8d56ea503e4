// Generation: pieces are the text of translate's tokens, and wrong calls change nothing.
#include "capi_check.h"

enum { kMost = 64 };

typedef struct Sequence {
  char text[512];
  size_t length;
  int32_t tokens[kMost];
  int64_t count, cached, drafted, accepted;
  int32_t finish;
} Sequence;

static trafo_generation_piece next_piece(trafo_generator* generator, const trafo_cancel* cancel) {
  trafo_generation_piece piece;
  OK(trafo_generator_next(generator, cancel, &piece, sizeof piece));
  return piece;
}

// Reads to the end; sequence i is in out[i - first].
static void read_all(trafo_generator* generator, int64_t first, Sequence* out, int64_t count) {
  memset(out, 0, (size_t)count * sizeof *out);
  for (trafo_generation_piece piece; (piece = next_piece(generator, NULL)).sequence >= 0;) {
    CHECK(piece.sequence >= first && piece.sequence < first + count);
    Sequence* one = &out[piece.sequence - first];
    memcpy(one->text + one->length, piece.text.data, piece.text.length);
    one->length += piece.text.length;
    if (piece.token >= 0) one->tokens[one->count++] = piece.token;
    CHECK(piece.generated_tokens == one->count);
    one->cached = piece.cached_tokens;
    one->drafted = piece.drafted_tokens;
    one->accepted = piece.accepted_tokens;
    one->finish = piece.finish;
    CHECK(isnan(piece.log_probability));
  }
}

static trafo_model* language_model(trafo_context* context, int64_t vocabulary, int32_t kind,
                                   uint64_t seed) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  config.architecture = kind;
  config.vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = kMost;
  OK(trafo_model_new(context, &config, seed, &model));
  return model;
}

static void test_texts(trafo_model* model, trafo_tokenizer* tokenizer) {
  const trafo_string_view prompts[] = {view("ein roter hut"), view("zwei")};
  trafo_translate_options decoding;
  OK(trafo_translate_options_init(&decoding, sizeof decoding));
  decoding.max_length = 20;
  decoding.sampling = 1;
  decoding.n_best = 2;
  decoding.end_source = TRAFO_FRAME_OFF;
  trafo_translations* translations = NULL;
  OK(trafo_translate(model, tokenizer, prompts, 2, &decoding, NULL, &translations));
  trafo_generator* generator = NULL;
  OK(trafo_generator_new(model, tokenizer, 2, &generator));
  CHECK(next_piece(generator, NULL).sequence == -1);
  int64_t first = -1;
  OK(trafo_generator_start(generator, prompts, 2, &decoding, NULL, &first));
  CHECK(first == 0);
  Sequence found[4];
  read_all(generator, first, found, 4);
  for (size_t i = 0; i < 4; ++i) {
    trafo_string_view text;
    const int32_t* tokens = NULL;
    size_t count = 0;
    OK(trafo_translations_get(translations, i / 2, i % 2, &text, NULL));
    OK(trafo_translations_get_tokens(translations, i / 2, i % 2, &tokens, &count));
    CHECK(found[i].length == text.length && memcmp(found[i].text, text.data, text.length) == 0);
    CHECK((size_t)found[i].count == count + (found[i].finish == TRAFO_FINISH_END));
    CHECK(memcmp(found[i].tokens, tokens, count * sizeof *tokens) == 0);
  }
  trafo_translations_free(translations);
  // The same once more: a cache has its beginning. Of three of four, that is one token less than
  // the prompt.
  OK(trafo_generator_start(generator, prompts, 2, &decoding, NULL, &first));
  CHECK(first == 4);
  Sequence again[4];
  read_all(generator, first, again, 4);
  for (int i = 0; i < 4; ++i) {
    CHECK(again[i].length == found[i].length &&
          memcmp(again[i].text, found[i].text, found[i].length) == 0);
    CHECK(again[i].cached >= 0);
  }
  CHECK(again[2].cached > 0);
  trafo_generator_free(generator);
}

static void test_options_of_generation(trafo_model* model, trafo_tokenizer* tokenizer) {
  trafo_generator* generator = NULL;
  OK(trafo_generator_new(model, tokenizer, 0, &generator));
  const trafo_string_view prompt = view("drei");
  trafo_translate_options decoding;
  trafo_generation_options more;
  OK(trafo_translate_options_init(&decoding, sizeof decoding));
  OK(trafo_generation_options_init(&more, sizeof more));
  CHECK(more.alternatives == 0 && more.stop_count == 0);
  decoding.word_scores = 1;
  decoding.max_length = 3;
  more.alternatives = 2;
  int64_t first = 0;
  OK(trafo_generator_start(generator, &prompt, 1, &decoding, &more, &first));
  trafo_generation_piece piece = next_piece(generator, NULL);
  const int32_t* tokens = NULL;
  const double* scores = NULL;
  size_t count = 0;
  OK(trafo_generator_get_alternatives(generator, &tokens, &scores, &count));
  CHECK(count == 2 && tokens[0] == piece.token && scores[0] >= scores[1]);
  NEAR(scores[0], piece.log_probability, 1e-5);
  OK(trafo_generator_end(generator, first));
  OK(trafo_generator_get_alternatives(generator, &tokens, &scores, &count));
  CHECK(count == 0 && tokens == NULL);
  CHECK(next_piece(generator, NULL).sequence == -1);
  // The most probable token is banned, or made improbable, or ends the sequence.
  const int32_t best = piece.token;
  const trafo_token_bias bias = {best, 0, -100};
  for (int form = 0; form < 3; ++form) {
    OK(trafo_generation_options_init(&more, sizeof more));
    more.banned_tokens = more.stop_tokens = &best;
    more.logit_bias = &bias;
    more.banned_token_count = form == 0;
    more.logit_bias_count = form == 1;
    more.stop_token_count = form == 2;
    OK(trafo_generator_start(generator, &prompt, 1, &decoding, &more, &first));
    piece = next_piece(generator, NULL);
    CHECK((piece.token == best) == (form == 2));
    CHECK((piece.finish == TRAFO_FINISH_STOP && piece.finished) == (form == 2));
    OK(trafo_generator_end(generator, first));
  }
  // Only a value of the schema comes, and then the end.
  OK(trafo_generation_options_init(&more, sizeof more));
  more.json_schema = view("{\"enum\": [true, null]}");
  decoding.max_length = 20;
  OK(trafo_generator_start(generator, &prompt, 1, &decoding, &more, &first));
  char text[8] = "";
  do {
    piece = next_piece(generator, NULL);
    strncat(text, piece.text.data, piece.text.length);
  } while (!piece.finished);
  const char* value = text + (text[0] == ' ');
  CHECK(strcmp(value, "true") == 0 || strcmp(value, "null") == 0);
  trafo_cancel* cancel = NULL;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_generator_start(generator, &prompt, 1, &decoding, NULL, &first));
  OK(trafo_cancel_set(cancel));
  FAILS(trafo_generator_next(generator, cancel, &piece, sizeof piece), TRAFO_CANCELLED,
        "cancelled");
  CHECK(next_piece(generator, NULL).sequence == first);
  trafo_cancel_free(cancel);
  trafo_generator_free(generator);
}

// A draft model changes no token, whether it is the model itself or another one.
static void test_drafts(trafo_context* context, trafo_model* model, trafo_tokenizer* tokenizer,
                        int64_t vocabulary) {
  const char* path = work_path("draft.safetensors");
  const trafo_string_view prompts[] = {view("ein roter hut"), view("zwei")};
  trafo_translate_options decoding;
  trafo_generation_options more;
  OK(trafo_translate_options_init(&decoding, sizeof decoding));
  OK(trafo_generation_options_init(&more, sizeof more));
  decoding.max_length = 20;
  decoding.sampling = 1;
  decoding.n_best = 2;
  trafo_generator* generator = NULL;
  OK(trafo_generator_new(model, tokenizer, 0, &generator));
  int64_t first = -1;
  OK(trafo_generator_start(generator, prompts, 2, &decoding, NULL, &first));
  Sequence expected[4], found[4];
  read_all(generator, first, expected, 4);
  more.draft_tokens = 3;
  FAILS(trafo_generator_start(generator, prompts, 2, &decoding, &more, &first),
        TRAFO_INVALID_ARGUMENT, "draft_tokens is 3, and the generator has no draft model");
  for (int itself = 0; itself < 2; ++itself) {
    trafo_model* draft = itself ? model : language_model(context, vocabulary, TRAFO_DECODER_LM, 9);
    OK(trafo_model_save(draft, path, strlen(path)));
    if (!itself) trafo_model_free(draft);
    OK(trafo_generator_load_draft(generator, path, strlen(path)));
    OK(trafo_generator_start(generator, prompts, 2, &decoding, &more, &first));
    read_all(generator, first, found, 4);
    int64_t drafted = 0;
    for (int i = 0; i < 4; ++i) {
      CHECK(found[i].count == expected[i].count && found[i].length == expected[i].length);
      CHECK(memcmp(found[i].tokens, expected[i].tokens,
                   (size_t)expected[i].count * sizeof *expected[i].tokens) == 0);
      CHECK(found[i].accepted <= found[i].drafted);
      drafted += found[i].drafted;
      CHECK(!itself || found[i].accepted == found[i].drafted);
    }
    CHECK(drafted > 0);
  }
  FAILS(trafo_generator_load_draft(generator, "missing", 7), TRAFO_NOT_FOUND, "missing");
  trafo_model* other = language_model(context, vocabulary, TRAFO_ENCODER_DECODER, 3);
  OK(trafo_model_save(other, path, strlen(path)));
  trafo_model_free(other);
  FAILS(trafo_generator_load_draft(generator, path, strlen(path)), TRAFO_UNSUPPORTED,
        "a draft model is a decoder-lm");
  trafo_generator_free(generator);
}

static void test_wrong_calls(trafo_model* model, trafo_tokenizer* tokenizer) {
  trafo_generator* generator = NULL;
  OK(trafo_generator_new(model, tokenizer, 0, &generator));
  const trafo_string_view prompt = view("drei"), bad = {"\xff", 1};
  trafo_translate_options decoding;
  trafo_generation_options more;
  OK(trafo_translate_options_init(&decoding, sizeof decoding));
  OK(trafo_generation_options_init(&more, sizeof more));
  int64_t first = 0;
  FAILS(trafo_generator_start(generator, &bad, 1, NULL, NULL, &first), TRAFO_INVALID_ARGUMENT,
        "prompt 1: ");
  decoding.alignment = 1;
  FAILS(trafo_generator_start(generator, &prompt, 1, &decoding, NULL, &first),
        TRAFO_INVALID_ARGUMENT, "alignment is for models with an encoder");
  trafo_token_bias bias = {5, 1, 0};
  more.logit_bias = &bias;
  more.logit_bias_count = 1;
  FAILS(trafo_generator_start(generator, &prompt, 1, NULL, &more, &first), TRAFO_INVALID_ARGUMENT,
        "reserved is 1");
  bias = (trafo_token_bias){5, 0, INFINITY};
  FAILS(trafo_generator_start(generator, &prompt, 1, NULL, &more, &first), TRAFO_INVALID_ARGUMENT,
        "logit_bias of token 5 is inf");
  more.logit_bias_count = 0;
  more.json_schema = view("{\"minimum\": 3}");
  FAILS(trafo_generator_start(generator, &prompt, 1, NULL, &more, &first), TRAFO_INVALID_ARGUMENT,
        "json_schema: #/minimum: this key is not supported");
  more.json_schema = view("");
  more.stop = &(const trafo_string_view){"", 0};
  more.stop_count = 1;
  FAILS(trafo_generator_start(generator, &prompt, 1, NULL, &more, &first), TRAFO_INVALID_ARGUMENT,
        "stop has an empty text");
  const trafo_ids_view empty = {NULL, 0};
  FAILS(trafo_generator_start_ids(generator, &empty, 1, NULL, NULL, &first), TRAFO_INVALID_ARGUMENT,
        "prompt 1 has no tokens");
  FAILS(trafo_generator_end(generator, 0), TRAFO_INVALID_ARGUMENT, "sequence is 0, there are 0");
  CHECK(next_piece(generator, NULL).sequence == -1);
  trafo_generator_free(generator);
  FAILS(trafo_generator_end(generator, 0), TRAFO_INVALID_ARGUMENT, "not a live trafo_generator");
}

void test_generation(void) {
  trafo_context* context = new_context(2);
  trafo_tokenizer_options options;
  trafo_tokenizer* tokenizer = NULL;
  const trafo_string_view lines[] = {view("drei"), view("ein roter hut"),
                                     view("zwei blaue tische im haus")};
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 60;
  options.soft_limit = 1;
  OK(trafo_tokenizer_train(lines, 3, &options, NULL, &tokenizer));
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  trafo_model* encoder = language_model(context, vocabulary, TRAFO_ENCODER_DECODER, 3);
  trafo_model* model = language_model(context, vocabulary, TRAFO_DECODER_LM, 3);
  trafo_generator* generator = NULL;
  FAILS(trafo_generator_new(model, tokenizer, 0, &generator), TRAFO_INVALID_ARGUMENT,
        "model must be prepared with trafo_model_prepare_inference");
  OK(trafo_model_prepare_inference(encoder));
  OK(trafo_model_prepare_inference(model));
  FAILS(trafo_generator_new(encoder, tokenizer, 0, &generator), TRAFO_UNSUPPORTED, "encoder");
  FAILS(trafo_generator_new(model, tokenizer, -1, &generator), TRAFO_INVALID_ARGUMENT,
        "kept_sequences must be at least 0");
  FAILS(trafo_generator_new(model, NULL, 0, &generator), TRAFO_INVALID_ARGUMENT, "special tokens");
  trafo_model_free(encoder);
  test_texts(model, tokenizer);
  test_options_of_generation(model, tokenizer);
  test_drafts(context, model, tokenizer, vocabulary);
  test_wrong_calls(model, tokenizer);
  // It outlives what it was made of.
  OK(trafo_generator_new(model, tokenizer, 0, &generator));
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
  trafo_context_free(context);
  int64_t first = 0;
  OK(trafo_generator_start(generator, lines, 1, NULL, NULL, &first));
  CHECK(next_piece(generator, NULL).sequence == first);
  trafo_generator_free(generator);
}
