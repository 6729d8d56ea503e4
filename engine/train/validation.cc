#include "engine/train/validation.h"

#include <algorithm>

#include "engine/backend/tf32.h"
#include "engine/decode/translator.h"
#include "engine/metrics/bleu.h"
#include "engine/metrics/chrf.h"
#include "engine/metrics/unspaced.h"
#include "engine/models/objective.h"
#include "engine/models/upload.h"

namespace trafo {
namespace {

constexpr const char* kCrossEntropy = "ce-mean-words";
constexpr int64_t kFittedDecoding = 4096;  // source tokens
// On an accelerator a decode step takes nearly the same time for a hundred rows and for a thousand.
constexpr int64_t kMostDecoded = 16384;                    // source tokens
constexpr int64_t kDecodedCacheBytes = int64_t{64} << 20;  // of as many tokens in the KV cache

// The source tokens that are translated together. Every hypothesis has its own KV cache: a token
// budget that fills the memory in training would leave no room for them.
int64_t decoded_together(Context& context, const Model& model, const TrainOptions& options) {
  if (options.valid_batch_tokens > 0) return options.valid_batch_tokens;
  if (options.batch_fit) return std::min(options.batch_tokens, kFittedDecoding);
  if (context.backend().stream_device() == nullptr || options.memory_limit > 0)
    return options.batch_tokens;
  const ModelConfig& config = model.config();
  const int64_t token_bytes = config.decoder_layers * 2 * config.kv_width() *
                              static_cast<int64_t>(dtype_size(model.parameters().dtype()));
  return std::max(options.batch_tokens, std::min(kMostDecoded, kDecodedCacheBytes / token_bytes));
}

std::vector<std::string> translate_all(Context& context, const Model& model,
                                       const TrainingData& data, const TrainOptions& options,
                                       const CancelToken* cancel) {
  TranslateOptions translate;
  translate.truncate = true;
  DecodeOptions& decode = translate.decode;
  decode.beam = options.valid_beam;
  decode.length_penalty = options.valid_normalize;
  decode.batch_tokens = decoded_together(context, model, options);
  if (cancel != nullptr) decode.cancelled = [cancel] { return cancel->is_cancelled(); };
  const std::vector<std::string_view> lines(data.valid_sources.begin(), data.valid_sources.end());
  std::vector<std::string> texts;
  for (Translation& line : Translator(context, model, *data.tokenizer).translate(lines, translate))
    texts.push_back(std::move(line.hypotheses.front().text));
  return texts;
}

}  // namespace

double mean_cross_entropy(Context& context, const Model& model, const TokenizedCorpus& corpus,
                          const SpecialTokens& tokens, const CancelToken* cancel,
                          int64_t batch_tokens) {
  const NoGrad no_grad(context);
  BatcherOptions order;
  order.shuffle = false;
  order.start_id = tokens.bos;
  order.batch_tokens = batch_tokens;
  Batcher batcher(corpus, order);
  const LabelSmoothedCrossEntropy cross_entropy(0);
  double nll = 0, labels = 0;
  for (PackedBatchHost host; !host.last_in_epoch;) {
    require(cancel == nullptr || !cancel->is_cancelled(), ErrorCode::cancelled, "validation",
            "cancelled by the caller");
    batcher.next(host);
    const Batch batch = upload(context, host, model.config(), model.parameters().dtype());
    nll += context.item(cross_entropy.loss(context, model, batch, {}).nll);
    labels += batch.label_count;
  }
  return nll / labels;
}

std::optional<ValidationResult> validate_model(Context& context, const Model& model,
                                               const TrainingData& data,
                                               const TrainOptions& options,
                                               const CancelToken* cancel) try {
  const PhaseRange phase(context, "validation", true);
  const Tf32Scope tf32(context.backend(), options.tf32);
  ValidationResult result;
  for (const std::string& metric : options.valid_metrics) {
    if (metric == kCrossEntropy) {
      result.values.push_back(mean_cross_entropy(context, model, *data.valid, data.tokens, cancel,
                                                 options.batch_fit ? options.batch_tokens : 0));
      continue;
    }
    if (result.hypotheses.empty())
      result.hypotheses = translate_all(context, model, data, options, cancel);
    result.values.push_back(metric == "bleu"
                                ? corpus_bleu(result.hypotheses, data.valid_references).score
                                : corpus_chrf(result.hypotheses, data.valid_references).score);
  }
  return result;
} catch (const Error& error) {
  if (error.code() != ErrorCode::cancelled) throw;
  return std::nullopt;
}

DecidingMetrics deciding_metrics(const TrainingData& data, const TrainOptions& options) {
  DecidingMetrics result{options.valid_metrics, ""};
  auto& names = result.names;
  const auto bleu = std::find(names.begin(), names.end(), "bleu");
  const auto& references = data.valid_references;
  if (data.valid == nullptr || bleu == names.end() ||
      2 * count_unspaced(references) <= references.size())
    return result;
  result.warning =
      "validation: the references are in a script without spaces, where BLEU counts whole phrases "
      "as words; ";
  if (names.size() == 1) {
    result.warning += "it decides because no other metric is measured: add chrf to the metrics";
    return result;
  }
  names.erase(bleu);
  result.warning += names.front() + " decides which model is best and when to stop";
  return result;
}

bool is_better(const std::string& metric, double value, double best) {
  return metric == kCrossEntropy ? value < best : value > best;
}

}  // namespace trafo
