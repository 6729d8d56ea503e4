#include "engine/compress/prune.h"

#include <memory>

#include "capi/src/compression/calibration.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr int64_t kLongestPair = 256;  // tokens a side

PruneOptions from_c(const trafo_prune_options& options) {
  return {.encoder_ffn_share = options.encoder_ffn_share,
          .decoder_ffn_share = options.decoder_ffn_share,
          .encoder_head_share = options.encoder_head_share,
          .decoder_head_share = options.decoder_head_share,
          .encoder_layers = options.encoder_layers,
          .decoder_layers = options.decoder_layers};
}

}  // namespace

trafo_error* trafo_model_prune(const trafo_model* model, const trafo_tokenizer* tokenizer,
                               const trafo_corpus* calibration, const trafo_prune_options* options,
                               const trafo_cancel* cancel, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);  // to read the corpus
    const TokenizerObject& subwords = call.handle(tokenizer, "tokenizer");
    const CancelArgument token(call, cancel);
    const PruneOptions settings = from_c(read_options(call, options));
    const TokenizedCorpus pairs = calibration_pairs(call, m, &subwords, calibration, kLongestPair);
    *out = new_handle<trafo_model>(
        m.context,
        std::shared_ptr<Model>(prune(*m.context, *m.model, pairs,
                                     subwords.tokenizer.special_tokens(), settings, token.get())));
  });
}
