/* For ort.html: export_onnx MODEL LINES OUT writes the model as ONNX to OUT/onnx, and to
 * OUT/ids.json the token ids of the lines and of their greedy translations. */
#include "../../examples/c/guide.h"

static void write_ids(FILE* out, const int32_t* ids, size_t count, int first, int end) {
  fputs(first ? "[" : ",\n[", out);
  for (size_t i = 0; i < count; ++i) fprintf(out, i ? ",%d" : "%d", (int)ids[i]);
  if (end >= 0) fprintf(out, count ? ",%d" : "%d", end);
  fputc(']', out);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  char path[1024], line[1024];
  trafo_context* context = NULL;
  trafo_model* model = NULL;
  trafo_tokenizer* tokenizer = NULL;
  trafo_special_tokens special;
  must(trafo_context_new(NULL, &context));
  snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
  must(trafo_model_load(context, path, strlen(path), &model));
  snprintf(path, sizeof path, "%s/spm.model", argv[1]);
  must(trafo_tokenizer_load(path, strlen(path), &tokenizer));
  must(trafo_tokenizer_get_special(tokenizer, &special));
  snprintf(path, sizeof path, "%s/onnx", argv[3]);
  must(trafo_model_export(model, tokenizer, TRAFO_EXPORT_ONNX, TRAFO_EXPORT_WEIGHTS_FLOAT32, path,
                          strlen(path), NULL, NULL));

  snprintf(path, sizeof path, "%s/ids.json", argv[3]);
  FILE* const out = fopen(path, "wb");
  FILE* const in = fopen(argv[2], "rb");
  if (!out || !in) return 1;
  trafo_translate_options options;
  must(trafo_translate_options_init(&options, sizeof options));
  options.beam = 1;
  fprintf(out, "{\"eos\": %d, \"sources\": [", (int)special.eos);
  for (int pass = 0; pass < 2; ++pass) {
    rewind(in);
    for (int row = 0; fgets(line, sizeof line, in); ++row) {
      line[strcspn(line, "\n")] = 0;
      const trafo_string_view source = text(line);
      if (pass == 0) {
        int32_t* ids = NULL;
        size_t count = 0;
        must(trafo_tokenizer_encode(tokenizer, source.data, source.length, &ids, &count));
        write_ids(out, ids, count, row == 0, special.eos);
        trafo_ids_free(ids);
        continue;
      }
      trafo_translations* translations = NULL;
      const int32_t* ids = NULL;
      size_t count = 0;
      must(trafo_translate(model, tokenizer, &source, 1, &options, NULL, &translations));
      must(trafo_translations_get_tokens(translations, 0, 0, &ids, &count));
      write_ids(out, ids, count, row == 0, -1);
      trafo_translations_free(translations);
    }
    fputs(pass == 0 ? "], \"greedy\": [" : "]}\n", out);
  }
  fclose(in);
  return fclose(out) == 0 ? 0 : 1;
}
