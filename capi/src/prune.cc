#include "engine/compress/prune.h"

#include <algorithm>
#include <memory>

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"
#include "engine/models/upload.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr int64_t kLongestPair = 256;  // tokens a side

trafo_prune_options prune_defaults() {
  const PruneOptions options;
  trafo_prune_options result{};
  result.struct_size = sizeof result;
  result.encoder_ffn_share = options.encoder_ffn_share;
  result.decoder_ffn_share = options.decoder_ffn_share;
  result.encoder_head_share = options.encoder_head_share;
  result.decoder_head_share = options.decoder_head_share;
  result.encoder_layers = options.encoder_layers;
  result.decoder_layers = options.decoder_layers;
  return result;
}

PruneOptions from_c(const trafo_prune_options& options) {
  return {.encoder_ffn_share = options.encoder_ffn_share,
          .decoder_ffn_share = options.decoder_ffn_share,
          .encoder_head_share = options.encoder_head_share,
          .decoder_head_share = options.decoder_head_share,
          .encoder_layers = options.encoder_layers,
          .decoder_layers = options.decoder_layers};
}

}  // namespace

trafo_error* trafo_prune_options_init(trafo_prune_options* options, size_t struct_size) {
  return api(__func__,
             [&](const Call& call) { init_options(call, options, struct_size, prune_defaults()); });
}

trafo_error* trafo_model_prune(const trafo_model* model, const trafo_tokenizer* tokenizer,
                               const trafo_corpus* calibration, const trafo_prune_options* options,
                               const trafo_cancel* cancel, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);  // to read the corpus
    const ModelSpec& spec = m.model->spec();
    const Tokenizer& subwords = vocabulary_of(*m.model, call.handle(tokenizer, "tokenizer"));
    if (subwords.vocab_size() != spec.vocabulary)
      call.refuse("the tokenizer has ", subwords.vocab_size(), " tokens, the model's vocabulary ",
                  spec.vocabulary);
    const TextCorpus& text = call.handle(calibration, "calibration").corpus;
    if (text.monolingual() && spec.has_encoder())
      call.refuse("calibration is monolingual text; an encoder-decoder needs pairs");
    const std::shared_ptr<CancelToken> token =
        cancel ? call.handle(cancel, "cancel").token : nullptr;
    const PruneOptions settings = from_c(read_options(call, options, prune_defaults()));
    TokenizedCorpusOptions lengths;
    lengths.form = sequence_form(spec);
    lengths.max_length = static_cast<int32_t>(std::min(kLongestPair, spec.max_positions));
    const TokenizedCorpus pairs(text, subwords, lengths, m.context->backend().threads());
    *out = new_handle<trafo_model>(
        m.context, std::shared_ptr<Model>(prune(*m.context, *m.model, pairs,
                                                subwords.special_tokens(), settings, token.get())));
  });
}
