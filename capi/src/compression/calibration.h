// Calibration pairs that callers give.
#pragma once

#include <algorithm>
#include <optional>

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"

namespace trafo::capi {

// The pairs as token ids; pairs that are too long for the model, or longer than `longest` tokens a
// side, are left out. `tokenizer` may be null, which is refused.
inline TokenizedCorpus calibration_pairs(const Call& call, const ModelObject& model,
                                         const TokenizerObject* tokenizer,
                                         const trafo_corpus* calibration,
                                         int64_t longest = TokenizedCorpusOptions{}.max_length) {
  if (!tokenizer) call.refuse("calibration pairs need a tokenizer");
  const TextCorpus& corpus = call.handle(calibration, "calibration").corpus;
  const Tokenizer& subwords = vocabulary_of(*model.model, *tokenizer);
  const ModelSpec& spec = model.model->spec();
  require_vocabulary_size(call.function(), spec, subwords);
  if (corpus.size() == 0) call.refuse("the calibration data have no pair");
  if (corpus.monolingual() && spec.has_encoder())
    call.refuse("calibration is monolingual text; an encoder-decoder needs pairs");
  TokenizedCorpusOptions lengths;
  lengths.form = sequence_form(spec);
  lengths.max_length = static_cast<int32_t>(std::min(longest, spec.max_positions));
  PairEncoding encoding(subwords);
  encoding.tokens = tokens_of(*model.model, subwords);
  return {corpus, encoding, lengths, model.context->backend().threads()};
}

// The fields `tokenizer` and `calibration` of a struct of options, either of which may be null.
class CalibrationArgument {
 public:
  template <class Options>
  CalibrationArgument(const Call& call, const ModelObject& model, const Options& options) {
    const TokenizerObject* tokenizer =
        options.tokenizer ? &call.handle(options.tokenizer, "tokenizer") : nullptr;
    if (!options.calibration) return;
    pairs_.emplace(calibration_pairs(call, model, tokenizer, options.calibration));
    start_id_ = tokenizer->tokenizer.special_tokens().start();
  }
  // Lends the pairs to the engine's options.
  template <class Settings>
  void lend(Settings& settings) const {
    if (!pairs_) return;
    settings.calibration = &*pairs_;
    settings.start_id = start_id_;
  }

 private:
  std::optional<TokenizedCorpus> pairs_;
  int32_t start_id_ = 0;
};

}  // namespace trafo::capi
