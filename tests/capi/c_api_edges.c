// Cases that no other file here covers: a device of the tests, and the rarer refusals.
#define _XOPEN_SOURCE 700
#include <sys/stat.h>

#include "capi_check.h"
#include "dlpack_layout.h"

typedef struct DLManagedTensorVersioned managed_tensor;

enum { kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

static int given_back;
static void give_back(managed_tensor* managed) {
  (void)managed;
  ++given_back;
}

static managed_tensor memory_of(int32_t device, void* data, int64_t* shape) {
  const managed_tensor managed = {.major = 1,
                                  .deleter = give_back,
                                  .data = data,
                                  .device_type = device,
                                  .ndim = 1,
                                  .code = 2,
                                  .bits = 32,
                                  .lanes = 1,
                                  .shape = shape};
  return managed;
}

// Memory of a device, shared and copied; the stand-in's is the host's.
static void test_dlpack_of_device(trafo_context* context) {
  float values[] = {1, 2, 3};
  int64_t shape[] = {3}, backwards[] = {-1};
  managed_tensor managed = memory_of(kCuda, values, shape);
  trafo_tensor *tensor = NULL, *twice = NULL;
  OK(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &tensor));
  values[2] = 30;
  OK(trafo_op_scale(context, tensor, 2, &twice));
  VALUES(twice, 3, 2, 4, 60);
  managed_tensor* out = NULL;
  OK(trafo_tensor_to_dlpack(tensor, &out));
  CHECK(out->device_type == kCuda && out->device_id == 0 && out->data == values);
  out->deleter(out);
  trafo_tensor_free(tensor);
  CHECK(given_back == 1);

  managed = memory_of(kCudaManaged, values, shape);
  OK(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_ALWAYS, &tensor));
  CHECK(given_back == 2);
  values[0] = 9;
  VALUES(tensor, 3, 1, 2, 30);
  managed.strides = backwards;
  managed.data = values + 2;
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_ALWAYS, &tensor), TRAFO_UNSUPPORTED,
        "negative");
  managed = memory_of(kCuda, values, shape);
  managed.device_id = 1;
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_ALWAYS, &tensor), TRAFO_UNSUPPORTED,
        "device 1");
  managed = memory_of(kCudaHost, values, shape);
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &tensor), TRAFO_UNSUPPORTED,
        "the host's");
  OK(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_IF_NEEDED, &tensor));
  VALUES(tensor, 3, 9, 2, 30);
  CHECK(given_back == 3);
}

// The CUDA plugin of tests/reliability, which computes on the CPU.
static void test_stand_in(void) {
  setenv("TRAFO_CUDA_LIBRARY", TRAFO_FAULT_PLUGIN, 1);
  int32_t count = 0, device = -1, index = -1;
  char* why = NULL;
  OK(trafo_device_count(TRAFO_DEVICE_CUDA, &count, &why));
  CHECK(count >= 1 && why && why[0] == '\0');
  trafo_string_free(why);
  trafo_device_info info;
  OK(trafo_device_get_info(TRAFO_DEVICE_CUDA, 0, &info, sizeof info));
  CHECK(info.memory_bytes > 0 && info.name[0] != '\0');
  FAILS(trafo_device_get_info(TRAFO_DEVICE_CUDA, count, &info, sizeof info), TRAFO_UNSUPPORTED,
        "the last one is number");
  trafo_context_options options;
  trafo_context* context = NULL;
  OK(trafo_context_options_init(&options, sizeof options));
  options.device = TRAFO_DEVICE_AUTO;
  options.threads = 1;
  OK(trafo_context_new(&options, &context));
  OK(trafo_context_get_device(context, &device, &index));
  CHECK(device == TRAFO_DEVICE_CUDA && index == 0);
  test_dlpack_of_device(context);
  trafo_context_free(context);
  unsetenv("TRAFO_CUDA_LIBRARY");
}

static void test_strides_and_leaves(trafo_context* context) {
  const float values[] = {1, 2, 3, 4};
  const int64_t square[] = {2, 2};
  trafo_tensor *x = floats(context, values, 2, square), *turned = NULL, *wide = NULL, *y = NULL;
  OK(trafo_op_transpose(context, x, 0, 1, &turned));
  FAILS(trafo_tensor_write(turned, values, sizeof values), TRAFO_INVALID_ARGUMENT, "strided");
  FAILS(trafo_tensor_write(x, NULL, sizeof values), TRAFO_INVALID_ARGUMENT, "data is NULL");
  FAILS(trafo_tensor_write(x, values, 4), TRAFO_SHAPE_MISMATCH, "16 bytes");
  trafo_tensor* empty = NULL;
  const int64_t none[] = {0};
  OK(trafo_tensor_new(context, TRAFO_FLOAT32, none, 1, NULL, 0, &empty));
  OK(trafo_tensor_write(empty, NULL, 0));
  trafo_tensor_free(empty);

  trafo_adamw *optimizer = NULL, *later = NULL;
  OK(trafo_tensor_set_requires_grad(turned, 1));
  FAILS(trafo_adamw_new(context, &turned, 1, NULL, &optimizer), TRAFO_INVALID_ARGUMENT, "strided");
  OK(trafo_tensor_set_requires_grad(x, 1));
  OK(trafo_op_multiply(context, x, x, &y));
  FAILS(trafo_tensor_write(y, values, sizeof values), TRAFO_INVALID_ARGUMENT, "result of an op");
  FAILS(trafo_adamw_new(context, &y, 1, NULL, &optimizer), TRAFO_INVALID_ARGUMENT, "leaf");
  const double doubles[] = {1, 2};
  const int64_t two[] = {2};
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, two, 1, doubles, sizeof doubles, &wide));
  OK(trafo_tensor_set_requires_grad(wide, 1));
  trafo_tensor* mixed[] = {x, wide};
  FAILS(trafo_adamw_new(context, mixed, 2, NULL, &optimizer), TRAFO_INVALID_ARGUMENT, "dtype");
  OK(trafo_adamw_new(context, &x, 1, NULL, &optimizer));
  OK(trafo_adamw_new(context, &x, 1, NULL, &later));
  FAILS(trafo_adamw_step(optimizer, 0.1, NULL), TRAFO_INVALID_ARGUMENT, "another optimizer");
  trafo_adamw_free(optimizer);
  trafo_adamw_free(later);
  trafo_tensor_free(y);
  trafo_tensor_free(wide);
  trafo_tensor_free(turned);
  trafo_tensor_free(x);
}

static trafo_tokenizer* make_tokenizer(const trafo_string_view* lines, size_t count, int32_t bpe) {
  trafo_tokenizer_options options;
  trafo_tokenizer* tokenizer = NULL;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 24;
  options.soft_limit = 1;
  options.bpe = bpe;
  OK(trafo_tokenizer_train(lines, count, &options, NULL, &tokenizer));
  return tokenizer;
}

static void test_shortlists(trafo_context* context) {
  const trafo_string_view lines[] = {view("ab cd ab"), view("cd ab cd"), view("b d b d")};
  trafo_tokenizer *tokenizer = make_tokenizer(lines, 3, 0), *other = make_tokenizer(lines, 3, 1);
  trafo_shortlist *list = NULL, *foreign = NULL;
  OK(trafo_shortlist_learn(tokenizer, lines, lines, 3, 4, NULL, &list));
  OK(trafo_shortlist_learn(other, lines, lines, 3, 4, NULL, &foreign));
  trafo_model_config config;
  trafo_model* model = NULL;
  OK(trafo_model_config_init(&config, sizeof config));
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  config.encoder_layers = config.decoder_layers = 1;
  config.width = config.ffn_width = 8;
  config.heads = 2;
  config.max_positions = 32;
  OK(trafo_model_new(context, &config, 1, &model));
  trafo_translate_options options;
  trafo_translations* out = NULL;
  OK(trafo_translate_options_init(&options, sizeof options));
  options.shortlist = list;
  OK(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out));
  trafo_translations_free(out);
  options.shortlist_first = -1;
  FAILS(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out), TRAFO_INVALID_ARGUMENT,
        "at least 0");
  options.shortlist_first = 0;
  options.shortlist_best = -1;
  FAILS(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out), TRAFO_INVALID_ARGUMENT,
        "at least 0");
  options.shortlist_best = 0;
  FAILS(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out), TRAFO_INVALID_ARGUMENT,
        "both 0");
  options.shortlist_best = 4;
  OK(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out));
  trafo_translations_free(out);
  options.shortlist = foreign;
  FAILS(trafo_translate(model, tokenizer, lines, 1, &options, NULL, &out), TRAFO_INVALID_ARGUMENT,
        "another tokenizer");
  trafo_model_free(model);
  trafo_shortlist_free(list);
  trafo_shortlist_free(foreign);
  trafo_tokenizer_free(tokenizer);
  trafo_tokenizer_free(other);
}

// Vocabularies of both kinds, in a directory that says which one it has.
static void test_kinds_of_tokenizers(trafo_context* context) {
  trafo_tokenizer_options options;
  OK(trafo_tokenizer_options_init(&options, sizeof options));
  CHECK(options.kind.length == 13 && memcmp(options.kind.data, "sentencepiece", 13) == 0);
  trafo_tokenizer *bytes = NULL, *again = NULL, *none = NULL;
  options.kind = view("word");
  FAILS(trafo_tokenizer_train(NULL, 0, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "kind must be sentencepiece, byte or byte-bpe, got 'word'");
  options.kind = view("byte");
  OK(trafo_tokenizer_train(NULL, 0, &options, NULL, &bytes));
  options.bpe = 1;
  FAILS(trafo_tokenizer_train(NULL, 0, &options, NULL, &none), TRAFO_INVALID_ARGUMENT,
        "bpe is not for a byte vocabulary");
  trafo_special_tokens special;
  OK(trafo_tokenizer_get_special(bytes, &special));
  CHECK(special.pad == 0 && special.eos == 1 && special.unk == 2 && special.bos == -1);

  const char* folder = work_path("vocabularies");
  CHECK(mkdir(folder, 0700) == 0);
  char* path = NULL;
  FAILS(
      trafo_find_vocabulary(folder, strlen(folder), &path), TRAFO_NOT_FOUND,
      "there is no vocabulary (vocab.spm, vocab.byte, vocab.marian, tokenizer.json or vocab.txt)");
  OK(trafo_tokenizer_save(bytes, folder, strlen(folder)));
  OK(trafo_find_vocabulary(folder, strlen(folder), &path));
  CHECK(strcmp(path + strlen(folder), "/vocab.byte") == 0);
  trafo_string_free(path);
  OK(trafo_tokenizer_load(folder, strlen(folder), &again));
  const char *kind = NULL, *file = NULL;
  OK(trafo_tokenizer_get_kind(again, &kind, &file));
  CHECK(strcmp(kind, "byte") == 0 && strcmp(file, "vocab.byte") == 0);
  int32_t* ids = NULL;
  size_t count = 0;
  OK(trafo_tokenizer_encode(again, "Li", 2, &ids, &count));
  CHECK(count == 2 && ids[0] == 79 && ids[1] == 108);
  trafo_ids_free(ids);
  OK(trafo_tokenizer_encode_target(again, "Li", 2, &ids, &count));  // one model for both sides
  CHECK(count == 2 && ids[0] == 79 && ids[1] == 108);
  trafo_ids_free(ids);

  const trafo_string_view lines[] = {view("alpha beta"), view("beta gamma"), view("alpha gamma")};
  trafo_tokenizer* subwords = make_tokenizer(lines, 3, 0);
  OK(trafo_tokenizer_get_kind(subwords, &kind, NULL));
  CHECK(strcmp(kind, "sentencepiece") == 0);
  OK(trafo_tokenizer_save(subwords, folder, strlen(folder)));
  FAILS(trafo_tokenizer_load(folder, strlen(folder), &none), TRAFO_INVALID_ARGUMENT,
        "has two vocabularies");

  // Formats and scores that are SentencePiece's say so.
  trafo_model_config config;
  OK(trafo_model_config_init(&config, sizeof config));
  config.vocabulary = 259;
  config.width = config.ffn_width = 16;
  config.heads = 2;
  config.encoder_layers = config.decoder_layers = 1;
  trafo_model* model = NULL;
  OK(trafo_model_new(context, &config, 1, &model));
  const char* target = work_path("marian");
  FAILS(trafo_model_export(model, bytes, TRAFO_EXPORT_HF_MARIAN, 0, target, strlen(target), NULL,
                           NULL),
        TRAFO_UNSUPPORTED, "hf-marian cannot express a byte vocabulary");
  trafo_evaluation_options evaluation;
  OK(trafo_evaluation_options_init(&evaluation, sizeof evaluation));
  evaluation.tokenize = TRAFO_TOKENIZE_FLORES200;
  evaluation.tokenizer = bytes;
  trafo_evaluation result;
  FAILS(trafo_evaluate(lines, lines, 3, 1, NULL, &evaluation, NULL, &result, sizeof result),
        TRAFO_INVALID_ARGUMENT, "takes a SentencePiece model");
  trafo_model_free(model);
  trafo_tokenizer_free(subwords);
  trafo_tokenizer_free(again);
  trafo_tokenizer_free(bytes);
}

// The subwords of a tokenizer as members of a JSON object that `ids` begins, with ids from *next.
static void add_subwords(const trafo_tokenizer* tokenizer, char* ids, size_t room, int* next) {
  int64_t vocabulary = 0;
  OK(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  for (int32_t id = 4; id < vocabulary; ++id) {
    char *name = NULL, member[80];
    size_t length = 0;
    OK(trafo_tokenizer_get_token(tokenizer, id, &name, &length));
    snprintf(member, sizeof member, "\"%s\": ", name);
    if (strstr(ids, member) == NULL)
      snprintf(ids + strlen(ids), room - strlen(ids), "%s%d, ", member, (*next)++);
    trafo_string_free(name);
  }
}

// A vocabulary of the kind marian has a SentencePiece model for each side.
static void test_target_side(void) {
  const trafo_string_view lines[2][2] = {{view("eins zwei drei"), view("zwei drei eins")},
                                         {view("one two three"), view("two three one")}};
  trafo_tokenizer* of_side[2];
  uint8_t* models[2];
  size_t sizes[2];
  char ids[8000] = "{\"</s>\": 0, \"<unk>\": 1, ";
  int next = 2;
  for (int side = 0; side < 2; ++side) {
    const char* path = work_path(side ? "target.spm" : "source.spm");
    of_side[side] = make_tokenizer(lines[side], 2, 0);
    add_subwords(of_side[side], ids, sizeof ids, &next);
    OK(trafo_tokenizer_save(of_side[side], path, strlen(path)));
    models[side] = read_file(path, &sizes[side]);
  }
  snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "\"<pad>\": %d}", next++);
  char header[200];
  snprintf(header, sizeof header,
           "{\"tokenizer\": \"marian\", \"parts\": {\"tokens\":%d,\"start\":%d,\"ends\":[0],"
           "\"bytes\":[%zu,%zu,%zu,0]}}\n",
           next, next - 1, strlen(ids), sizes[0], sizes[1]);
  const char* path = work_path("sides.marian");
  FILE* out = fopen(path, "wb");
  CHECK(out && fputs(header, out) >= 0 && fputs(ids, out) >= 0);
  for (int side = 0; out && side < 2; ++side)
    CHECK(fwrite(models[side], 1, sizes[side], out) == sizes[side]);
  if (out) fclose(out);
  trafo_tokenizer* both = NULL;
  OK(trafo_tokenizer_load(path, strlen(path), &both));
  for (int text_side = 0; text_side < 2; ++text_side) {
    const trafo_string_view text = lines[text_side][0];
    size_t counts[2], expected[2];
    for (int side = 0; side < 2; ++side) {
      int32_t *cut = NULL, *known = NULL;
      OK((side ? trafo_tokenizer_encode_target : trafo_tokenizer_encode)(
          both, text.data, text.length, &cut, &counts[side]));
      OK(trafo_tokenizer_encode(of_side[side], text.data, text.length, &known, &expected[side]));
      CHECK(counts[side] == expected[side]);
      for (size_t i = 0; i < counts[side]; ++i) {
        char *subword = NULL, *of_model = NULL;
        size_t length = 0;
        if (known[i] == TRAFO_TOKEN_UNK) continue;  // vocab.json may know it from the other side
        OK(trafo_tokenizer_get_token(both, cut[i], &subword, &length));
        OK(trafo_tokenizer_get_token(of_side[side], known[i], &of_model, &length));
        CHECK(strcmp(subword, of_model) == 0);
        trafo_string_free(subword);
        trafo_string_free(of_model);
      }
      trafo_ids_free(cut);
      trafo_ids_free(known);
    }
    CHECK(counts[0] != counts[1]);
  }
  trafo_tokenizer_free(both);
  for (int side = 0; side < 2; ++side) {
    trafo_tokenizer_free(of_side[side]);
    free(models[side]);
  }
}

void test_edges(void) {
  trafo_context* context = new_context(1);
  test_strides_and_leaves(context);
  test_shortlists(context);
  test_kinds_of_tokenizers(context);
  test_target_side();
  trafo_context_free(context);
  test_stand_in();
}
