#include "engine/decode/translator.h"

#include <algorithm>
#include <utility>

namespace trafo {
namespace {

constexpr const char* kOrigin = "translate";

// A byte token from <0x80> to <0xBF>: in UTF-8 never the first byte of a character.
bool continues_character(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.type(id) == SubwordType::byte && tokenizer.token(id) >= "<0x80>" &&
         tokenizer.token(id) <= "<0xBF>";
}

}  // namespace

Translator::Translator(Context& context, const Model& model, Tokenizer tokenizer,
                       std::shared_ptr<const PackedWeights> weights)
    : context_(context),
      model_(model),
      tokenizer_(std::move(tokenizer)),
      weights_(std::move(weights)) {
  require(tokenizer_.vocab_size() == model.config().vocabulary, ErrorCode::invalid_argument,
          kOrigin, "the tokenizer has ", tokenizer_.vocab_size(), " tokens, the model ",
          model.config().vocabulary, ": they do not belong together");
}

std::vector<Translation> Translator::translate(std::span<const std::string_view> lines,
                                               const TranslateOptions& options) const {
  DecodeOptions decode = options.decode;
  decode.tokens = tokenizer_.special_tokens();
  decode.weights = weights_;
  const Shortlist& list = options.shortlist;
  require(list.first >= 0 && list.best >= 0, ErrorCode::invalid_argument, kOrigin,
          "shortlist_first and shortlist_best must be at least 0, got ", list.first, " and ",
          list.best);
  if (list.table != nullptr) {
    require(list.first > 0 || list.best > 0, ErrorCode::invalid_argument, kOrigin,
            "shortlist_first and shortlist_best are both 0: no token would be left");
    decode.shortlist = [list](std::span<const int32_t> sources) {
      return list.table->candidates(sources, list.first, list.best);
    };
  }
  const int64_t limit = longest_source(model_.config());
  std::vector<Translation> translations(lines.size());
  std::vector<std::vector<int32_t>> sources;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t>& ids = sources.emplace_back(encode(lines[i], "", i + 1));
    translations[i].source_tokens = static_cast<int64_t>(ids.size());
    if (options.truncate) truncate(ids, limit);
    translations[i].used_tokens = static_cast<int64_t>(ids.size());
  }
  std::vector<std::vector<Hypothesis>> found = translate_tokens(context_, model_, sources, decode);
  for (size_t i = 0; i < found.size(); ++i)
    for (Hypothesis& hypothesis : found[i]) {
      std::string text = tokenizer_.decode(hypothesis.tokens);
      translations[i].hypotheses.push_back({std::move(hypothesis), std::move(text)});
    }
  return translations;
}

std::vector<PairScore> Translator::score(std::span<const std::string_view> sources,
                                         std::span<const std::string_view> targets,
                                         ScoreOptions options) const {
  require(sources.size() == targets.size(), ErrorCode::invalid_argument, kOrigin, sources.size(),
          " source lines and ", targets.size(), " target lines are no pairs");
  options.tokens = tokenizer_.special_tokens();
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < sources.size(); ++i)
    pairs.push_back({encode(sources[i], "source, ", i + 1), encode(targets[i], "target, ", i + 1)});
  return trafo::score(context_, model_, pairs, options);
}

// The tokens of a line and eos.
std::vector<int32_t> Translator::encode(std::string_view line, const char* side,
                                        size_t number) const {
  try {
    std::vector<int32_t> ids = tokenizer_.encode(line);
    ids.push_back(tokenizer_.eos_id());
    return ids;
  } catch (const Error& error) {
    fail(error.code(), kOrigin, side, "line ", number, ": ", error.message());
  }
}

// Keeps the first tokens and eos, at most `limit` in total. A character that is spelled in byte
// tokens is kept whole or not at all.
void Translator::truncate(std::vector<int32_t>& ids, int64_t limit) const {
  if (static_cast<int64_t>(ids.size()) <= limit) return;
  auto kept = static_cast<size_t>(std::max<int64_t>(limit - 1, 0));
  while (kept > 0 && continues_character(tokenizer_, ids[kept])) --kept;
  ids.resize(kept);
  ids.push_back(tokenizer_.eos_id());
}

}  // namespace trafo
