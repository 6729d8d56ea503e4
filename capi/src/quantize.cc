// Models with quantized weights.
#include "engine/models/quantize.h"

#include <optional>

#include "capi/src/model_handles.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/models/upload.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

trafo_quantize_options default_quantize_options() {
  trafo_quantize_options options{};
  options.bits = 8;
  options.method = TRAFO_QUANTIZE_NEAREST;
  return options;
}

// The calibration pairs as token ids; pairs that are too long for the model are left out.
TokenizedCorpus calibration_pairs(const Call& call, const ModelObject& model,
                                  const TokenizerObject* object,
                                  const trafo_quantize_options& options) {
  if (!object) call.refuse("calibration pairs need a tokenizer");
  const TextCorpus& corpus = call.handle(options.calibration, "calibration").corpus;
  const Tokenizer& tokenizer = vocabulary_of(*model.model, *object);
  const ModelConfig& config = model.model->config();
  if (tokenizer.vocab_size() != config.vocabulary)
    call.refuse("the tokenizer has ", tokenizer.vocab_size(), " tokens, the model ",
                config.vocabulary);
  if (corpus.size() == 0) call.refuse("the calibration data have no pair");
  TokenizedCorpusOptions lengths;
  lengths.form = sequence_form(config);
  lengths.max_length =
      static_cast<int32_t>(std::min<int64_t>(lengths.max_length, config.max_positions));
  return {corpus, tokenizer, lengths};
}

}  // namespace

trafo_error* trafo_quantize_options_init(trafo_quantize_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, default_quantize_options());
  });
}

trafo_error* trafo_model_quantize(trafo_model* model, const trafo_quantize_options* options,
                                  trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const trafo_quantize_options wanted =
        options ? read_options(call, options, default_quantize_options())
                : default_quantize_options();
    if (wanted.method < TRAFO_QUANTIZE_NEAREST || wanted.method > TRAFO_QUANTIZE_GPTQ)
      call.refuse("method must be TRAFO_QUANTIZE_NEAREST (0) or TRAFO_QUANTIZE_GPTQ (1), got ",
                  wanted.method);
    QuantizeOptions settings;
    settings.bits = wanted.bits;
    settings.method = static_cast<QuantizeMethod>(wanted.method);
    settings.keep_float =
        lines_argument(call, wanted.keep_float, wanted.keep_float_count, "keep_float");
    const TokenizerObject* tokenizer =
        wanted.tokenizer ? &call.handle(wanted.tokenizer, "tokenizer") : nullptr;
    std::optional<TokenizedCorpus> calibration;
    if (wanted.calibration) {
      calibration.emplace(calibration_pairs(call, m, tokenizer, wanted));
      settings.calibration = &*calibration;
      settings.start_id = tokenizer->tokenizer.bos_id();
    }
    *out = new_handle<trafo_model>(
        m.context, std::shared_ptr<Model>(quantize_model(*m.context, *m.model, settings)));
  });
}
