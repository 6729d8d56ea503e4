#include "engine/models/added_tokens.h"

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_add_tokens(const trafo_model* model, const trafo_tokenizer* tokenizer,
                                    const trafo_string_view* tokens, size_t count, int32_t special,
                                    const char* like, size_t like_length, trafo_model** out_model,
                                    trafo_tokenizer** out_tokenizer) {
  return api(__func__, [&](const Call& call) {
    if (out_tokenizer) *out_tokenizer = nullptr;
    call.out(out_model, "out_model");
    call.out(out_tokenizer, "out_tokenizer");
    const ModelObject& m = call.handle(model, "model");
    const Tokenizer& subwords = vocabulary_of(*m.model, call.handle(tokenizer, "tokenizer"));
    call.use(m.context);
    ModelWithTokens result =
        add_tokens(*m.context, *m.model, subwords, lines_argument(call, tokens, count, "tokens"),
                   call.flag(special, "special"), call.text(like, like_length, "like"));
    OwnedHandle<trafo_tokenizer> owned(new_handle<trafo_tokenizer>(std::move(result.tokenizer)));
    *out_model =
        new_handle<trafo_model>(m.context, std::shared_ptr<Model>(std::move(result.model)));
    *out_tokenizer = owned.release();
  });
}
