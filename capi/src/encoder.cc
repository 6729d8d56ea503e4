// Encoders: vectors and labels of texts, and their heads.
#include <initializer_list>
#include <optional>
#include <vector>

#include "capi/src/model_input.h"
#include "capi/src/options.h"
#include "engine/decode/translator.h"
#include "engine/models/encoder_head.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

// The outputs get the tensors of work(translator).
template <class Work>
void tensors_of(const Call& call, trafo_model* model, const trafo_tokenizer* tokenizer, Input input,
                int32_t recorded, std::initializer_list<trafo_tensor**> outputs, Work&& work) {
  const ModelObject& m = call.handle(model, "model");
  call.use(m.context);
  const std::optional<Tokenizer> subwords = vocabulary_for(call, *m.model, tokenizer, input);
  std::optional<NoGrad> no_grad;
  record_if_trainable(m, call.flag(recorded, "recorded"), no_grad);
  NewTensors results(m.context, work(Translator(*m.context, *m.model, subwords)));
  results.hand_over(outputs);
}

std::vector<Tensor> both(const PackedLabels& labels) {
  return {labels.logits, labels.cu_seqlens};
}

}  // namespace

trafo_error* trafo_model_embed(trafo_model* model, const trafo_tokenizer* tokenizer,
                               const trafo_string_view* texts, size_t count, int32_t pooling,
                               int32_t normalize, int32_t recorded, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    tensors_of(call, model, tokenizer, Input::text, recorded, {out},
               [&](const Translator& translator) {
                 return std::vector{translator.embed(views_argument(call, texts, count, "texts"),
                                                     static_cast<Pooling>(pooling),
                                                     call.flag(normalize, "normalize"))};
               });
  });
}

trafo_error* trafo_model_embed_ids(trafo_model* model, const trafo_ids_view* rows, size_t count,
                                   int32_t pooling, int32_t normalize, int32_t recorded,
                                   trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    tensors_of(call, model, nullptr, Input::ids, recorded, {out},
               [&](const Translator& translator) {
                 return std::vector{translator.embed_ids(ids_argument(call, rows, count, "rows"),
                                                         static_cast<Pooling>(pooling),
                                                         call.flag(normalize, "normalize"))};
               });
  });
}

trafo_error* trafo_model_classify(trafo_model* model, const trafo_tokenizer* tokenizer,
                                  const trafo_string_view* texts, const trafo_string_view* second,
                                  size_t count, int32_t recorded, trafo_tensor** out_logits,
                                  trafo_tensor** out_cu_seqlens) {
  return api(__func__, [&](const Call& call) {
    call.out(out_logits, "out_logits");
    call.out(out_cu_seqlens, "out_cu_seqlens");
    tensors_of(
        call, model, tokenizer, Input::text, recorded, {out_logits, out_cu_seqlens},
        [&](const Translator& translator) {
          const auto lines = views_argument(call, texts, count, "texts");
          if (second == nullptr) return both(translator.classify(lines));
          return both(translator.classify(lines, views_argument(call, second, count, "second")));
        });
  });
}

trafo_error* trafo_model_classify_ids(trafo_model* model, const trafo_ids_view* rows,
                                      const trafo_ids_view* types, size_t count, int32_t recorded,
                                      trafo_tensor** out_logits, trafo_tensor** out_cu_seqlens) {
  return api(__func__, [&](const Call& call) {
    call.out(out_logits, "out_logits");
    call.out(out_cu_seqlens, "out_cu_seqlens");
    tensors_of(
        call, model, nullptr, Input::ids, recorded, {out_logits, out_cu_seqlens},
        [&](const Translator& translator) {
          const auto ids = ids_argument(call, rows, count, "rows");
          if (types == nullptr) return both(translator.classify_ids(ids));
          return both(translator.classify_ids(ids, ids_argument(call, types, count, "types")));
        });
  });
}

trafo_error* trafo_model_get_label(const trafo_model* model, int64_t index,
                                   trafo_string_view* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const std::vector<std::string>& labels = call.handle(model, "model").model->labels();
    require(index >= 0 && index < std::ssize(labels), ErrorCode::not_found, call.function(),
            "there is no label ", index, ", the model has ", labels.size());
    const std::string& name = labels[static_cast<size_t>(index)];
    *out = {name.data(), name.size()};
  });
}

trafo_error* trafo_model_with_head(const trafo_model* model, int32_t head,
                                   const trafo_string_view* labels, size_t count, uint64_t seed,
                                   trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    *out = new_handle<trafo_model>(
        m.context,
        std::shared_ptr<Model>(with_head(*m.context, *m.model, static_cast<EncoderHead>(head),
                                         lines_argument(call, labels, count, "labels"), seed)));
  });
}
