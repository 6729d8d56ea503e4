// Token ids in place of text: every call gives the bits that it gives for the text, and needs no
// tokenizer.
#include "capi_check.h"

enum { kLines = 3, kSteps = 3, kLongest = 32, kPositions = 64 };

typedef struct Fixture {
  trafo_context* context;
  trafo_tokenizer* tokenizer;
  trafo_special_tokens special;
  trafo_model* model;
  int64_t vocabulary;
  trafo_string_view source[kLines], target[kLines];
  int32_t ids[2][kLines][kLongest];
  trafo_ids_view rows[2][kLines];  // each ends with eos
} Fixture;

static trafo_model* new_model(const Fixture* f, int32_t architecture, uint64_t seed) {
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  config.architecture = architecture;
  config.vocabulary = f->vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 16;
  config.ffn_width = 32;
  config.heads = 2;
  config.max_positions = kPositions;
  OK(trafo_model_new(f->context, &config, seed, &model));
  return model;
}

static void encode(Fixture* f, int side, int line, trafo_string_view text) {
  int32_t* ids = NULL;
  size_t count = 0;
  OK(trafo_tokenizer_encode(f->tokenizer, text.data, text.length, &ids, &count));
  CHECK(count < kLongest);
  memcpy(f->ids[side][line], ids, count * sizeof *ids);
  f->ids[side][line][count] = f->special.eos;
  f->rows[side][line] = (trafo_ids_view){f->ids[side][line], count + 1};
  trafo_ids_free(ids);
}

static void check_same(const trafo_translations* a, const trafo_translations* b, int has_text) {
  for (size_t line = 0; line < kLines; ++line) {
    size_t counts[2];
    OK(trafo_translations_get_count(a, line, &counts[0]));
    OK(trafo_translations_get_count(b, line, &counts[1]));
    CHECK(counts[0] == counts[1] && counts[0] > 0);
    for (size_t rank = 0; rank < counts[0]; ++rank) {
      trafo_string_view text[2];
      double score[2];
      const int32_t* tokens[2];
      const double* words[2];
      size_t lengths[2], word_counts[2];
      const trafo_translations* both[2] = {a, b};
      for (int i = 0; i < 2; ++i) {
        OK(trafo_translations_get(both[i], line, rank, &text[i], &score[i]));
        OK(trafo_translations_get_tokens(both[i], line, rank, &tokens[i], &lengths[i]));
        OK(trafo_translations_get_word_scores(both[i], line, rank, &words[i], &word_counts[i]));
      }
      CHECK(score[0] == score[1] && lengths[0] == lengths[1] && word_counts[0] == word_counts[1]);
      CHECK(!lengths[0] || memcmp(tokens[0], tokens[1], lengths[0] * sizeof(int32_t)) == 0);
      CHECK(!word_counts[0] || memcmp(words[0], words[1], word_counts[0] * sizeof(double)) == 0);
      if (has_text)
        CHECK(text[0].length == text[1].length &&
              memcmp(text[0].data, text[1].data, text[0].length) == 0);
      else
        CHECK(text[1].length == 0);
    }
    int64_t had[2], used[2];
    OK(trafo_translations_get_source(a, line, &had[0], &used[0]));
    OK(trafo_translations_get_source(b, line, &had[1], &used[1]));
    CHECK(had[0] == had[1] && used[0] == used[1]);
  }
}

static trafo_translate_options search(void) {
  trafo_translate_options options;
  OK(trafo_translate_options_init(&options, sizeof options));
  options.beam = 3;
  options.n_best = 2;
  options.word_scores = 1;
  options.max_length = 8;
  return options;
}

static void test_translation(Fixture* f, int is_lm) {
  const trafo_translate_options options = search();
  trafo_translations *text = NULL, *ids = NULL;
  OK(trafo_translate(f->model, f->tokenizer, f->source, kLines, &options, NULL, &text));
  for (int with_tokenizer = 0; with_tokenizer < 2; ++with_tokenizer) {
    OK(trafo_translate_ids(f->model, with_tokenizer ? f->tokenizer : NULL, f->rows[0], NULL, kLines,
                           &options, NULL, &ids));
    check_same(text, ids, with_tokenizer);
    trafo_translations_free(ids);
  }
  trafo_translations_free(text);

  // Beginnings of the translations, without their end.
  trafo_ids_view begun[kLines];
  for (int i = 0; i < kLines; ++i)
    begun[i] = (trafo_ids_view){f->ids[1][i], f->rows[1][i].count - 1};
  OK(trafo_translate_with_prefixes(f->model, f->tokenizer, f->source, f->target, kLines, &options,
                                   NULL, &text));
  OK(trafo_translate_ids(f->model, NULL, f->rows[0], begun, kLines, &options, NULL, &ids));
  check_same(text, ids, 0);
  trafo_translations_free(text);
  trafo_translations_free(ids);

  // Continued texts have no end.
  trafo_translate_options open = options;
  open.end_source = 0;
  if (is_lm) {
    for (int i = 0; i < kLines; ++i)
      begun[i] = (trafo_ids_view){f->ids[0][i], f->rows[0][i].count - 1};
    OK(trafo_translate(f->model, f->tokenizer, f->source, kLines, &open, NULL, &text));
    OK(trafo_translate_ids(f->model, NULL, begun, NULL, kLines, &open, NULL, &ids));
    check_same(text, ids, 0);
    trafo_translations_free(text);
    trafo_translations_free(ids);
  }
  ids = NULL;
  FAILS(trafo_translate_ids(f->model, NULL, begun, NULL, kLines, &options, NULL, &ids),
        TRAFO_INVALID_ARGUMENT, "sentence 1 must end with eos");
  const int32_t beyond[] = {5, (int32_t)f->vocabulary, 2};
  const trafo_ids_view wrong = {beyond, 3};
  FAILS(trafo_translate_ids(f->model, NULL, &wrong, NULL, 1, &options, NULL, &ids),
        TRAFO_INVALID_ARGUMENT, "sentence 1 has token");
  trafo_translate_options distinct = options;
  distinct.distinct = 1;
  FAILS(trafo_translate_ids(f->model, NULL, f->rows[0], NULL, kLines, &distinct, NULL, &ids),
        TRAFO_INVALID_ARGUMENT, "distinct");
  CHECK(ids == NULL);
}

static void test_scores(Fixture* f, int is_lm) {
  const trafo_translate_options options = search();
  trafo_translations *text = NULL, *ids = NULL;
  OK(trafo_force_decode(f->model, f->tokenizer, f->source, f->target, kLines, &options, NULL,
                        &text));
  for (int with_tokenizer = 0; with_tokenizer < 2; ++with_tokenizer) {
    OK(trafo_force_decode_ids(f->model, with_tokenizer ? f->tokenizer : NULL, f->rows[0],
                              f->rows[1], kLines, &options, NULL, &ids));
    check_same(text, ids, with_tokenizer);
    trafo_translations_free(ids);
  }
  trafo_translations_free(text);
  const trafo_ids_view none[kLines] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
  ids = NULL;
  if (!is_lm) {
    FAILS(trafo_force_decode_ids(f->model, NULL, none, f->rows[1], kLines, &options, NULL, &ids),
          TRAFO_INVALID_ARGUMENT, "the source of pair 1 is empty");
    return;
  }
  // The empty source of a decoder-lm is plain text, whose scores have the end as a token.
  OK(trafo_score_text(f->model, f->tokenizer, f->target, kLines, &options, NULL, &text));
  OK(trafo_force_decode_ids(f->model, NULL, none, f->rows[1], kLines, &options, NULL, &ids));
  for (size_t i = 0; i < kLines; ++i) {
    double score[2];
    trafo_string_view line;
    OK(trafo_translations_get(text, i, 0, &line, &score[0]));
    OK(trafo_translations_get(ids, i, 0, &line, &score[1]));
    CHECK(score[0] == score[1]);
  }
  trafo_translations_free(text);
  trafo_translations_free(ids);
  ids = NULL;
  FAILS(trafo_force_decode_ids(f->model, NULL, f->rows[0], none, kLines, &options, NULL, &ids),
        TRAFO_INVALID_ARGUMENT, "the target of pair 1 is empty");
}

static void check_same_tensors(trafo_tensor* a, trafo_tensor* b) {
  int64_t shape[2][2] = {{1, 1}, {1, 1}};
  int32_t rank[2];
  OK(trafo_tensor_get_shape(a, shape[0], 2, &rank[0]));
  OK(trafo_tensor_get_shape(b, shape[1], 2, &rank[1]));
  CHECK(rank[0] == rank[1] && shape[0][0] == shape[1][0] && shape[0][1] == shape[1][1]);
  const size_t bytes = (size_t)(shape[0][0] * shape[0][1]) * sizeof(float);  // int32 as well
  void *first = malloc(bytes), *second = malloc(bytes);
  OK(trafo_tensor_read(a, first, bytes));
  OK(trafo_tensor_read(b, second, bytes));
  CHECK(memcmp(first, second, bytes) == 0);
  free(first);
  free(second);
  trafo_tensor_free(a);
  trafo_tensor_free(b);
}

static void test_states(Fixture* f) {
  trafo_tensor *a[2] = {NULL, NULL}, *b[2] = {NULL, NULL};
  OK(trafo_model_hidden_states(f->model, f->tokenizer, f->source, kLines, 0, &a[0], &a[1]));
  OK(trafo_model_hidden_states_ids(f->model, f->rows[0], kLines, 0, &b[0], &b[1]));
  check_same_tensors(a[0], b[0]);
  check_same_tensors(a[1], b[1]);
  OK(trafo_model_logits(f->model, f->tokenizer, f->source, f->target, kLines, 0, &a[0], &a[1]));
  OK(trafo_model_logits_ids(f->model, NULL, f->rows[0], f->rows[1], kLines, 0, &b[0], &b[1]));
  check_same_tensors(a[0], b[0]);
  check_same_tensors(a[1], b[1]);
  const trafo_ids_view none = {NULL, 0};
  FAILS(trafo_model_hidden_states_ids(f->model, &none, 1, 0, &b[0], &b[1]), TRAFO_INVALID_ARGUMENT,
        "line 1 has no tokens");
}

typedef struct Source {
  const Fixture* fixture;
  int32_t ids[2][kLines][kLongest], lengths[2][kLines];
  int plain;  // no sources
} Source;

static int32_t give(void* user_data, int64_t index, trafo_batch* out) {
  Source* from = user_data;
  (void)index;
  for (int side = 0; side < 2; ++side)
    for (int i = 0; i < kLines; ++i) {
      const trafo_ids_view row = from->fixture->rows[side][i];
      memcpy(from->ids[side][i], row.ids, row.count * sizeof *row.ids);
      from->lengths[side][i] = (int32_t)row.count;
    }
  out->sentences = kLines;
  out->target = from->ids[1][0];
  out->target_width = kLongest;
  out->target_lengths = from->lengths[1];
  if (from->plain) return 0;
  out->source = from->ids[0][0];
  out->source_width = kLongest;
  out->source_lengths = from->lengths[0];
  return 0;
}

enum Data { kText, kIds, kBatches, kData };

// The steps on text, on a corpus of its ids and on batches of them are the same. `plain`: only the
// targets, as plain text.
static void test_ids_training(Fixture* f, int32_t architecture, int plain) {
  trafo_step_result steps[kData][kSteps];
  Source from = {.fixture = f, .plain = plain};
  for (int data = 0; data < kData; ++data) {
    trafo_model* model = new_model(f, architecture, 1);
    trafo_corpus* corpus = NULL;
    trafo_trainer* trainer = NULL;
    trafo_trainer_options options;
    OK(trafo_trainer_options_init(&options, sizeof options));
    options.batch_tokens = 200;
    options.max_length = kPositions;
    if (data == kText && plain) {
      const char* path = work_path("plain.txt");
      char text[200] = "";
      for (int i = 0; i < kLines; ++i) {
        strcat(text, f->target[i].data);
        strcat(text, "\n");
      }
      write_file(path, text, strlen(text));
      const trafo_string_view file = view(path);
      trafo_corpus_options reading;
      OK(trafo_corpus_options_init(&reading, sizeof reading));
      reading.monolingual = 1;
      OK(trafo_corpus_open(&file, 1, &reading, NULL, &corpus));
    } else if (data == kText) {
      OK(trafo_corpus_new(f->source, f->target, kLines, &corpus));
    } else if (data == kIds) {
      OK(trafo_corpus_new_ids(plain ? NULL : f->rows[0], f->rows[1], kLines, &corpus));
    }
    if (data != kText) {
      FAILS(trafo_trainer_new(model, NULL, corpus, NULL, &options, NULL, 0, NULL, &trainer),
            TRAFO_INVALID_ARGUMENT, "special tokens");
      OK(trafo_model_set_special_tokens(model, &f->special, NULL, 0));
    }
    OK(trafo_trainer_new(model, data == kText ? f->tokenizer : NULL, corpus, NULL, &options, NULL,
                         0, NULL, &trainer));
    if (data == kBatches) {
      FAILS(trafo_trainer_step(trainer, NULL, &steps[data][0]), TRAFO_INVALID_ARGUMENT,
            "there is no training corpus");
      OK(trafo_trainer_set_batches(trainer, give, &from, NULL));
    }
    for (int i = 0; i < kSteps; ++i) OK(trafo_trainer_step(trainer, NULL, &steps[data][i]));
    for (int i = 0; i < kSteps; ++i) {
      CHECK(steps[data][i].loss == steps[0][i].loss &&
            steps[data][i].grad_norm == steps[0][i].grad_norm &&
            steps[data][i].labels == steps[0][i].labels);
    }
    trafo_trainer_free(trainer);
    trafo_corpus_free(corpus);
    trafo_model_free(model);
  }
}

static void test_corpora(Fixture* f) {
  trafo_corpus *text = NULL, *ids = NULL, *mixed = NULL, *rest = NULL, *held = NULL;
  OK(trafo_corpus_new(f->source, f->target, kLines, &text));
  trafo_ids_view target[kLines] = {f->rows[1][0], {NULL, 0}, f->rows[1][2]};
  OK(trafo_corpus_new_ids(f->rows[0], target, kLines, &ids));
  trafo_corpus_info info;
  OK(trafo_corpus_get_info(ids, &info));
  CHECK(info.lines == kLines && info.pairs == 2 && info.dropped_empty == 1);
  int64_t line = 0;
  OK(trafo_corpus_get_line(ids, 1, &line));
  CHECK(line == 2);
  OK(trafo_corpus_hold_out(ids, 1, &rest, &held));
  trafo_corpus_free(rest);
  trafo_corpus_free(held);
  trafo_string_view a, b;
  FAILS(trafo_corpus_get_pair(ids, 0, &a, &b), TRAFO_INVALID_ARGUMENT, "no text");
  const trafo_corpus* both[] = {text, ids};
  const double weights[] = {1, 1};
  FAILS(trafo_corpus_mix(both, weights, 2, &mixed), TRAFO_INVALID_ARGUMENT, "cannot be mixed");
  trafo_tokenizer* tokenizer = NULL;
  FAILS(trafo_corpus_train_tokenizer(ids, NULL, NULL, &tokenizer), TRAFO_INVALID_ARGUMENT,
        "token ids");
  trafo_model* model = new_model(f, TRAFO_ENCODER_DECODER, 1);
  trafo_trainer* trainer = NULL;
  FAILS(trafo_trainer_new(model, NULL, text, NULL, NULL, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "tokenizer is NULL");
  OK(trafo_model_set_special_tokens(model, &f->special, NULL, 0));
  trafo_trainer_options options;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.max_length = kLongest;
  options.source_alpha = 0.1;
  FAILS(trafo_trainer_new(model, NULL, ids, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "sampled from text");
  options.source_alpha = 0;
  options.batch_fit = 1;
  FAILS(trafo_trainer_new(model, NULL, NULL, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "batch_fit needs a training corpus");
  options.batch_fit = 0;
  // An id that the model does not have, negative ones, and sources that an encoder lacks.
  const int32_t beyond[] = {5, (int32_t)f->vocabulary, 2}, negative[] = {5, -1, 2};
  const trafo_ids_view large = {beyond, 3}, bad = {negative, 3};
  trafo_corpus* other = NULL;
  OK(trafo_corpus_new_ids(&large, &large, 1, &other));
  FAILS(trafo_trainer_new(model, NULL, other, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "pair 1 has the id");
  trafo_corpus_free(other);
  FAILS(trafo_corpus_new_ids(&bad, &large, 1, &other), TRAFO_INVALID_ARGUMENT,
        "the source of pair 1 has the id -1");
  OK(trafo_corpus_new_ids(NULL, f->rows[1], kLines, &other));
  FAILS(trafo_trainer_new(model, NULL, other, NULL, &options, NULL, 0, NULL, &trainer),
        TRAFO_INVALID_ARGUMENT, "an encoder-decoder needs pairs");
  trafo_corpus_free(other);
  CHECK(trainer == NULL && mixed == NULL && tokenizer == NULL);
  trafo_model_free(model);
  trafo_corpus_free(text);
  trafo_corpus_free(ids);
}

// A model keeps its special tokens in its file.
static void test_special_tokens(Fixture* f) {
  trafo_model *model = new_model(f, TRAFO_DECODER_LM, 1), *again = NULL;
  trafo_special_tokens tokens;
  const int32_t* ends = NULL;
  size_t count = 9;
  trafo_translations* found = NULL;
  FAILS(trafo_model_get_special_tokens(model, &tokens, &ends, &count), TRAFO_NOT_FOUND,
        "does not know");
  FAILS(trafo_translate_ids(model, NULL, f->rows[0], NULL, kLines, NULL, NULL, &found),
        TRAFO_INVALID_ARGUMENT, "special tokens");
  const trafo_special_tokens own = {.unk = -1, .bos = 3, .eos = 5, .pad = -1};
  const int32_t further[] = {7, 9}, beyond[] = {(int32_t)f->vocabulary};
  OK(trafo_model_set_special_tokens(model, &own, further, 2));
  const char* path = work_path("special.safetensors");
  OK(trafo_model_save(model, path, strlen(path)));
  OK(trafo_model_load(f->context, path, strlen(path), &again));
  OK(trafo_model_get_special_tokens(again, &tokens, &ends, &count));
  CHECK(memcmp(&tokens, &own, sizeof own) == 0 && count == 2 && ends[0] == 7 && ends[1] == 9);
  OK(trafo_model_get_special_tokens(again, &tokens, NULL, NULL));
  // A source that ends with the model's eos is whole.
  const int32_t ids[] = {6, 5};
  const trafo_ids_view row = {ids, 2};
  OK(trafo_translate_ids(again, NULL, &row, NULL, 1, NULL, NULL, &found));
  trafo_translations_free(found);
  trafo_special_tokens bad = own;
  bad.eos = -1;
  FAILS(trafo_model_set_special_tokens(again, &bad, NULL, 0), TRAFO_INVALID_ARGUMENT, "eos is -1");
  FAILS(trafo_model_set_special_tokens(again, &own, beyond, 1), TRAFO_INVALID_ARGUMENT,
        "further_ends is");
  OK(trafo_model_get_special_tokens(again, &tokens, NULL, &count));
  CHECK(tokens.eos == 5 && count == 2);  // as before
  trafo_model_free(model);
  trafo_model_free(again);
}

void test_ids(void) {
  static Fixture f;
  f.context = new_context(2);
  // Each longer than the last, so that their order in a batch is known.
  static const char* const kSource[kLines] = {"drei", "ein roter hut", "zwei blaue tische im haus"};
  static const char* const kTarget[kLines] = {"three", "a red hat", "two blue tables in the house"};
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
  OK(trafo_tokenizer_get_vocabulary(f.tokenizer, &f.vocabulary));
  OK(trafo_tokenizer_get_special(f.tokenizer, &f.special));
  for (int i = 0; i < kLines; ++i) {
    encode(&f, 0, i, f.source[i]);
    encode(&f, 1, i, f.target[i]);
  }
  for (int is_lm = 0; is_lm < 2; ++is_lm) {
    const int32_t architecture = is_lm ? TRAFO_DECODER_LM : TRAFO_ENCODER_DECODER;
    f.model = new_model(&f, architecture, 3);
    OK(trafo_model_set_special_tokens(f.model, &f.special, NULL, 0));
    test_translation(&f, is_lm);
    test_scores(&f, is_lm);
    test_states(&f);
    test_ids_training(&f, architecture, 0);
    trafo_model_free(f.model);
  }
  test_ids_training(&f, TRAFO_DECODER_LM, 1);
  test_corpora(&f);
  test_special_tokens(&f);
  trafo_tokenizer_free(f.tokenizer);
  trafo_context_free(f.context);
}
