#include "engine/train/run/validation.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/tf32.h"
#include "engine/core/progress.h"
#include "engine/core/strings/json.h"
#include "engine/decode/packing.h"
#include "engine/decode/translator.h"
#include "engine/io/checksum.h"
#include "engine/metrics/registry.h"
#include "engine/metrics/unspaced.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr const char* kValidationOrigin = "validation";
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
  const StackSpec& decoder = model.spec().decoder;
  const int64_t token_bytes = decoder.layers() * 2 * decoder.attention.kv_width() *
                              static_cast<int64_t>(dtype_size(model.parameters().dtype()));
  return std::max(options.batch_tokens, std::min(kMostDecoded, kDecodedCacheBytes / token_bytes));
}

bool any_needs(const TrainOptions& options, MetricNeeds needs) {
  return std::ranges::any_of(options.valid_metrics, [&](const std::string& name) {
    return metric_named(name, kValidationOrigin).needs == needs;
  });
}
bool wants_hypotheses(const TrainOptions& options) {
  return any_needs(options, MetricNeeds::translations) || any_needs(options, MetricNeeds::words);
}

void translate_part(Context& context, const Model& model, const TrainingData& data,
                    const TrainOptions& options, const CancelToken* cancel,
                    const TrainingGroup& group, StepGraphs* step_graphs, ValidationPart& part) {
  const PhaseRange phase(context, "translation", true);
  TranslateOptions translate;
  translate.truncate = true;
  DecodeOptions& decode = translate.decode;
  decode.beam = options.valid_beam;
  decode.length_penalty = options.valid_normalize;
  decode.batch_tokens = decoded_together(context, model, options);
  decode.step_graphs = step_graphs;
  decode.part = group.rank;
  decode.parts = group.size;
  decode.cancel = cancel;
  const std::vector<std::string_view> lines(data.valid_sources.begin(), data.valid_sources.end());
  int64_t pair = 0;
  for (Translation& line :
       Translator(context, model, *data.tokenizer).translate(lines, translate)) {
    if (!line.hypotheses.empty())
      part.hypotheses.emplace_back(pair, std::move(line.hypotheses.front().text));
    ++pair;
  }
}

// How a corpus is measured.
struct Measuring {
  const TokenizedCorpus& corpus;
  SpecialTokens tokens;
  const CancelToken* cancel;
  int64_t batch_tokens;
  const TrainingGroup& group;
};

// Appends to `measured` what numbers_of(output) selects of the objective's output of each batch.
template <class NumbersOf>
void measure(Context& context, const Model& model, const Objective& objective, const Measuring& how,
             MeasuredBatches& measured, NumbersOf numbers_of) {
  const NoGrad no_grad(context);
  BatcherOptions order;
  order.shuffle = false;
  order.start_id = how.tokens.start();
  order.batch_tokens = how.batch_tokens;
  order.rejected = objective.needs_preferences();
  order.lanes = how.group.size;
  order.own = {how.group.rank, how.group.rank + 1};
  Batcher batcher(how.corpus, order);
  const CorpusReport& report = how.corpus.report();
  const int64_t sequences = how.corpus.size() - report.cut + report.windows;
  // Sentences of a pair.
  int64_t of_pair = 1;
  if (how.corpus.preferences() && order.rejected)
    of_pair = how.corpus.options().answers_apart && !how.corpus.labelled() ? 4 : 2;
  WorkProgress progress(Work::validate, of_pair * sequences);
  for (PackedBatchHost host; !host.last_in_epoch;) {
    stop_if_cancelled(how.cancel, kValidationOrigin);
    batcher.next(host);
    measured.units += objective.units(label_count(host), host.counts().sentences);
    if (host.elsewhere) continue;
    const Batch batch = upload(context, host, model.spec(), model.parameters().dtype());
    for (const Tensor& number : numbers_of(objective.loss(context, model, batch, {})))
      measured.values.push_back(context.item(number));
    progress.add(host.counts().sentences);
  }
  progress.finish();
}

void measure_cross_entropies(Context& context, const Model& model, const Measuring& how,
                             ValidationPart& part) {
  const PhaseRange phase(context, "cross-entropy", true);
  measure(context, model, LabelSmoothedCrossEntropy(0), how, part.cross_entropy,
          [](const ObjectiveOutput& output) { return std::vector<Tensor>{output.nll}; });
}

// Number i of each batch. Adds in the order of the batches, which are dealt out to the parts in
// turn.
double mean_of_parts(std::span<const ValidationPart> parts,
                     MeasuredBatches ValidationPart::*measured, size_t i = 0) {
  double sum = 0;
  size_t batches = 0;
  const size_t width = (parts.front().*measured).width;
  for (const ValidationPart& part : parts) batches += (part.*measured).values.size() / width;
  for (size_t batch = 0; batch < batches; ++batch) {
    const auto& own = (parts[batch % parts.size()].*measured).values;
    const size_t at = batch / parts.size() * width + i;
    require(at < own.size(), ErrorCode::internal, kValidationOrigin,
            "ranks have measured different batches");
    sum += own[at];
  }
  return sum / (parts.front().*measured).units;
}

// Reads what encode_part() wrote.
class PartReader {
 public:
  explicit PartReader(std::string_view bytes) : bytes_(bytes) {}
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(size_t bytes) {
    require(bytes <= bytes_.size(), ErrorCode::internal, kValidationOrigin,
            "a rank has sent a part that ends early");
    const std::string_view taken = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return taken;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

uint32_t crc32_of(const std::string& text, uint32_t previous) {
  return crc32(std::as_bytes(std::span(text)), previous);
}

template <class Number>
void append_number(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

double mean_cross_entropy(Context& context, const Model& model, const TokenizedCorpus& corpus,
                          const SpecialTokens& tokens, const CancelToken* cancel,
                          int64_t batch_tokens) {
  ValidationPart all;
  measure_cross_entropies(context, model, {corpus, tokens, cancel, batch_tokens, {}}, all);
  return mean_of_parts({&all, 1}, &ValidationPart::cross_entropy);
}

ValidationPart validate_part(Context& context, const Model& model, const TrainingData& data,
                             const TrainOptions& options, const CancelToken* cancel,
                             const TrainingGroup& group, StepGraphs* step_graphs) {
  const PhaseRange phase(context, "validation", true);
  const Tf32Scope tf32(context.backend(), options.tf32);
  ValidationPart part;
  const Measuring how{*data.valid, data.tokens, cancel,
                      options.batch_fit ? options.batch_tokens : 0, group};
  if (any_needs(options, MetricNeeds::model)) measure_cross_entropies(context, model, how, part);
  if (any_needs(options, MetricNeeds::objective)) {
    const PhaseRange objective_phase(context, "objective", true);
    const auto objective = make_objective(options, data.frozen);
    part.objective.width = objective->metrics().size();
    measure(context, model, *objective, how, part.objective,
            [](const ObjectiveOutput& output) { return output.metrics; });
  }
  if (wants_hypotheses(options))
    translate_part(context, model, data, options, cancel, group, step_graphs, part);
  return part;
}

ValidationResult join_parts(std::span<const ValidationPart> parts, const TrainingData& data,
                            const TrainOptions& options, int threads) {
  ValidationResult result;
  if (wants_hypotheses(options)) {
    result.hypotheses.resize(data.valid_sources.size());
    for (const ValidationPart& part : parts)
      for (const auto& [pair, text] : part.hypotheses) {
        require(pair >= 0 && pair < static_cast<int64_t>(result.hypotheses.size()),
                ErrorCode::internal, kValidationOrigin, "there is no validation pair ", pair);
        result.hypotheses[static_cast<size_t>(pair)] = text;
      }
  }
  const auto& hypotheses = result.hypotheses;
  const std::span<const std::string> references = data.valid_references;
  for (const std::string& name : options.valid_metrics) {
    const Metric& metric = metric_named(name, kValidationOrigin);
    if (metric.needs_translations()) {
      result.values.push_back(metric.score(hypotheses, {&references, 1}, threads));
    } else if (metric.needs == MetricNeeds::model) {
      result.values.push_back(mean_of_parts(parts, &ValidationPart::cross_entropy));
    } else {
      const auto objective = make_objective(options, data.frozen);
      std::vector<double> means;
      for (size_t i = 0; i < objective->metrics().size(); ++i)
        means.push_back(mean_of_parts(parts, &ValidationPart::objective, i));
      objective->report(means);
      result.values.push_back(means[*metric_index(*objective, name)]);
    }
  }
  return result;
}

std::optional<ValidationResult> validate_model(Context& context, const Model& model,
                                               const TrainingData& data,
                                               const TrainOptions& options,
                                               const CancelToken* cancel,
                                               StepGraphs* step_graphs) try {
  const ValidationPart all = validate_part(context, model, data, options, cancel, {}, step_graphs);
  const PhaseRange phase(context, "metrics", false);
  return join_parts({&all, 1}, data, options, threads_for_lines(context));
} catch (const Error& error) {
  if (error.code() != ErrorCode::cancelled) throw;
  return std::nullopt;
}

std::string encode_part(const ValidationPart& part) {
  std::string bytes;
  for (const MeasuredBatches* measured : {&part.cross_entropy, &part.objective}) {
    append_number(bytes, measured->units);
    append_number(bytes, static_cast<uint64_t>(measured->width));
    append_number(bytes, static_cast<uint64_t>(measured->values.size()));
    for (const double value : measured->values) append_number(bytes, value);
  }
  for (const auto& [pair, text] : part.hypotheses) {
    append_number(bytes, pair);
    append_number(bytes, static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  return bytes;
}

ValidationPart decode_part(std::string_view bytes) {
  PartReader reader(bytes);
  ValidationPart part;
  for (MeasuredBatches* measured : {&part.cross_entropy, &part.objective}) {
    measured->units = reader.number<double>();
    measured->width = reader.number<uint64_t>();
    for (auto left = reader.number<uint64_t>(); left > 0; --left)
      measured->values.push_back(reader.number<double>());
  }
  while (!reader.at_end()) {
    const auto pair = reader.number<int64_t>();
    part.hypotheses.emplace_back(pair, reader.take(reader.number<uint64_t>()));
  }
  return part;
}

DecidingMetrics deciding_metrics(const TrainingData& data, const TrainOptions& options) {
  DecidingMetrics result{options.valid_metrics, ""};
  std::string of_words;
  std::vector<std::string> others;
  for (const std::string& name : options.valid_metrics) {
    const Metric& metric = metric_named(name, kValidationOrigin);
    if (metric.needs == MetricNeeds::words)
      of_words += concat(of_words.empty() ? "" : " and ", metric.title);
    else
      others.push_back(name);
  }
  const auto& references = data.valid_references;
  if (data.valid == nullptr || of_words.empty() ||
      2 * count_unspaced(references) <= references.size())
    return result;
  result.warning = concat("validation: the references are in a script without spaces, where ",
                          of_words, " counts whole phrases as words; ");
  if (others.empty()) {
    result.warning += "it decides because no other metric is measured: add chrf to the metrics";
    return result;
  }
  result.names = std::move(others);
  result.warning += result.names.front() + " decides which model is best and when to stop";
  return result;
}

std::string validation_identity(const TrainingData& data, const TrainOptions& options) {
  if (data.valid == nullptr) return {};
  uint32_t sum = crc32_of(std::to_string(data.valid->fingerprint()), 0);
  for (const auto* lines : {&data.valid_sources, &data.valid_references})
    for (const std::string& line : *lines) sum = crc32_of(line + "\n", sum);
  return Json(Json::Object{{"text", crc32_text(sum)},
                           {"valid_beam", options.valid_beam},
                           {"valid_normalize", options.valid_normalize}})
      .dump();
}

}  // namespace trafo
