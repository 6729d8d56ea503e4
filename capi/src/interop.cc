#include "engine/formats/interop.h"

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"
#include "engine/core/cancel_scope.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_export(const trafo_model* model, const trafo_tokenizer* tokenizer,
                                int32_t format, int32_t weights, const char* directory,
                                size_t directory_length, const trafo_cancel* cancel,
                                double* out_difference) {
  return api(__func__, [&](const Call& call) {
    if (out_difference) *out_difference = 0;
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const std::optional<Tokenizer> subwords = optional_vocabulary_of(call, *m.model, tokenizer);
    if (!is_known(static_cast<ExportFormat>(format)))
      call.refuse_argument(
          "format", " must be one of TRAFO_EXPORT_HF_MARIAN (0) and the others, got ", format);
    if (!is_known(static_cast<ExportWeights>(weights)))
      call.refuse_argument(
          "weights", " must be one of TRAFO_EXPORT_WEIGHTS_BY_FORMAT (0) and the others, got ",
          weights);
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    const double difference =
        export_model(*m.context, *m.model, subwords, static_cast<ExportFormat>(format),
                     path_argument(call, directory, directory_length, "directory"),
                     static_cast<ExportWeights>(weights));
    if (out_difference) *out_difference = difference;
  });
}

trafo_error* trafo_model_import(trafo_context* context, const char* directory,
                                size_t directory_length, const trafo_cancel* cancel,
                                trafo_model** out_model, trafo_tokenizer** out_tokenizer,
                                char** out_note) {
  return api(__func__, [&](const Call& call) {
    if (out_note) *out_note = nullptr;
    if (out_tokenizer) *out_tokenizer = nullptr;
    call.out(out_model, "out_model");
    call.out(out_tokenizer, "out_tokenizer");
    Context& c = call.context(context);
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    ImportedModel imported =
        import_model(c, path_argument(call, directory, directory_length, "directory"));
    OwnedHandle<trafo_model> model(
        new_handle<trafo_model>(call.owner(), std::shared_ptr<Model>(std::move(imported.model))));
    OwnedHandle<trafo_tokenizer> tokenizer;
    if (imported.tokenizer)
      tokenizer.reset(new_handle<trafo_tokenizer>(std::move(*imported.tokenizer)));
    if (out_note) *out_note = copy_string(imported.note);
    *out_tokenizer = tokenizer.release();
    *out_model = model.release();
  });
}
