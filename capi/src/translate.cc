#include <optional>
#include <vector>

#include "capi/src/model_handles.h"
#include "capi/src/model_input.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/decode/translator.h"

using namespace trafo;

struct trafo::capi::TranslationsObject {
  std::vector<Translation> lines;
};

using namespace trafo::capi;

namespace {

TranslateOptions to_options(const Call& call, const trafo_translate_options& o,
                            const std::optional<Tokenizer>& tokenizer) {
  if (o.max_length < 0)
    call.refuse_argument("max_length", " must be at least 0, got ", o.max_length);
  if (o.window_length < 0)
    call.refuse_argument("window_length", " must be at least 0, got ", o.window_length);
  if (o.window_stride < 0)
    call.refuse_argument("window_stride", " must be at least 0, got ", o.window_stride);
  TranslateOptions options = from_c(call, o);
  if (o.max_length > 0) {
    options.decode.max_length = o.max_length;
    options.decode.max_length_factor = 0;
    options.decode.max_length_extra = o.max_length;
  }
  if (o.shortlist) {
    const ShortlistObject& list = call.handle(o.shortlist, "shortlist");
    if (!tokenizer) call.refuse_argument("shortlist", " needs its tokenizer");
    if (list.tokenizer.serialized() != tokenizer->serialized())
      call.refuse("the shortlist belongs to another tokenizer");
    options.shortlist.table = &list.table;
  }
  return options;
}

// Line `index` of a result.
const Translation& line_at(const Call& call, const trafo_translations* translations, size_t index) {
  const std::vector<Translation>& lines = call.handle(translations, "translations").lines;
  if (index >= lines.size())
    call.refuse_argument("index", " is ", index, ", there are ", lines.size(), " lines");
  return lines[index];
}

// Hypothesis `rank` of line `index`. NOT_FOUND: the line has fewer.
const TextHypothesis& hypothesis_at(const Call& call, const trafo_translations* translations,
                                    size_t index, size_t rank) {
  const std::vector<TextHypothesis>& hypotheses = line_at(call, translations, index).hypotheses;
  require(rank < hypotheses.size(), ErrorCode::not_found, call.function(), "line ", index, " has ",
          hypotheses.size(), " hypotheses, not ", rank + 1);
  return hypotheses[rank];
}

// Gives a borrowed array out; NULL if it is empty.
template <class T>
void lend(const std::vector<T>& values, const T** out, size_t* out_count) {
  *out = values.empty() ? nullptr : values.data();
  *out_count = values.size();
}

std::vector<SentencePair> pairs_argument(const Call& call, const trafo_ids_view* source,
                                         const trafo_ids_view* target, size_t count) {
  std::vector<std::vector<int32_t>> sources = ids_argument(call, source, count, "source"),
                                    targets = ids_argument(call, target, count, "target");
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < count; ++i)
    pairs.push_back({std::move(sources[i]), std::move(targets[i])});
  return pairs;
}

// *out gets the lines that work(translator, options) makes.
template <class Work>
void work_on(const Call& call, trafo_model* model, const trafo_tokenizer* tokenizer, Input input,
             const trafo_translate_options* options, const trafo_cancel* cancel,
             trafo_translations** out, Work&& work) {
  call.out(out);
  const ModelObject& m = call.handle(model, "model");
  call.use(m.context);
  const std::optional<Tokenizer> subwords = vocabulary_for(call, *m.model, tokenizer, input);
  TranslateOptions wanted = to_options(call, read_options(call, options), subwords);
  const CancelArgument token(call, cancel);
  wanted.decode.cancel = token.get();
  const Translator translator(*m.context, *m.model, subwords, m.packed);
  *out = new_handle<trafo_translations>(work(translator, wanted));
}

}  // namespace

trafo_error* trafo_translate(trafo_model* model, const trafo_tokenizer* tokenizer,
                             const trafo_string_view* lines, size_t count,
                             const trafo_translate_options* options, const trafo_cancel* cancel,
                             trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::text, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              return translator.translate(views_argument(call, lines, count, "lines"), wanted);
            });
  });
}

trafo_error* trafo_translate_with_prefixes(trafo_model* model, const trafo_tokenizer* tokenizer,
                                           const trafo_string_view* lines,
                                           const trafo_string_view* prefixes, size_t count,
                                           const trafo_translate_options* options,
                                           const trafo_cancel* cancel, trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::text, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              return translator.translate(views_argument(call, lines, count, "lines"), wanted,
                                          views_argument(call, prefixes, count, "prefixes"));
            });
  });
}

trafo_error* trafo_translate_ids(trafo_model* model, const trafo_tokenizer* tokenizer,
                                 const trafo_ids_view* rows, const trafo_ids_view* prefixes,
                                 size_t count, const trafo_translate_options* options,
                                 const trafo_cancel* cancel, trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::ids, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              std::vector<std::vector<int32_t>> begun;
              if (prefixes) begun = ids_argument(call, prefixes, count, "prefixes");
              return translator.translate_ids(ids_argument(call, rows, count, "rows"), wanted,
                                              begun);
            });
  });
}

trafo_error* trafo_translations_get(const trafo_translations* translations, size_t index,
                                    size_t rank, trafo_string_view* out_text, double* out_score) {
  return api(__func__, [&](const Call& call) {
    call.out(out_text, "out_text");
    if (out_score) *out_score = 0;
    const TextHypothesis& hypothesis = hypothesis_at(call, translations, index, rank);
    *out_text = {hypothesis.text.data(), hypothesis.text.size()};
    if (out_score) *out_score = hypothesis.score;
  });
}

trafo_error* trafo_translations_get_tokens(const trafo_translations* translations, size_t index,
                                           size_t rank, const int32_t** out_tokens,
                                           size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    call.out(out_tokens, "out_tokens");
    call.out(out_count, "out_count");
    lend(hypothesis_at(call, translations, index, rank).tokens, out_tokens, out_count);
  });
}

trafo_error* trafo_translations_get_word_scores(const trafo_translations* translations,
                                                size_t index, size_t rank,
                                                const double** out_scores, size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    call.out(out_scores, "out_scores");
    call.out(out_count, "out_count");
    lend(hypothesis_at(call, translations, index, rank).word_scores, out_scores, out_count);
  });
}

trafo_error* trafo_translations_get_alignment(const trafo_translations* translations, size_t index,
                                              size_t rank, const float** out_weights,
                                              size_t* out_target_tokens,
                                              size_t* out_source_tokens) {
  return api(__func__, [&](const Call& call) {
    call.out(out_weights, "out_weights");
    call.out(out_target_tokens, "out_target_tokens");
    call.out(out_source_tokens, "out_source_tokens");
    const Alignment& alignment = hypothesis_at(call, translations, index, rank).alignment;
    size_t count = 0;
    lend(alignment.weights, out_weights, &count);
    *out_target_tokens = static_cast<size_t>(alignment.target_tokens);
    *out_source_tokens = static_cast<size_t>(alignment.source_tokens);
  });
}

trafo_error* trafo_translations_get_finish(const trafo_translations* translations, size_t index,
                                           size_t rank, int32_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = static_cast<int32_t>(finish_reason(hypothesis_at(call, translations, index, rank)));
  });
}

trafo_error* trafo_translations_get_count(const trafo_translations* translations, size_t index,
                                          size_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = line_at(call, translations, index).hypotheses.size();
  });
}

trafo_error* trafo_translations_get_source(const trafo_translations* translations, size_t index,
                                           int64_t* out_tokens, int64_t* out_used) {
  return api(__func__, [&](const Call& call) {
    if (out_tokens) *out_tokens = 0;
    if (out_used) *out_used = 0;
    const Translation& line = line_at(call, translations, index);
    if (out_tokens) *out_tokens = line.source_tokens;
    if (out_used) *out_used = line.used_tokens;
  });
}

trafo_error* trafo_translations_get_truncated(const trafo_translations* translations, size_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    for (const Translation& line : call.handle(translations, "translations").lines)
      *out += line.truncated() ? 1 : 0;
  });
}

void trafo_translations_free(trafo_translations* translations) {
  free_handle(translations);
}

trafo_error* trafo_score(trafo_model* model, const trafo_tokenizer* tokenizer,
                         const trafo_string_view* source, const trafo_string_view* target,
                         size_t count, const trafo_cancel* cancel, double* out_log_probability,
                         int64_t* out_tokens) {
  return api(__func__, [&](const Call& call) {
    call.array(out_log_probability, count, "out_log_probability");
    for (size_t i = 0; i < count; ++i) {
      out_log_probability[i] = 0;
      if (out_tokens) out_tokens[i] = 0;
    }
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const Tokenizer& subwords = vocabulary_of(*m.model, call.handle(tokenizer, "tokenizer"));
    const CancelArgument token(call, cancel);
    ScoreOptions options;
    options.cancel = token.get();
    const Translator translator(*m.context, *m.model, subwords);
    const std::vector<PairScore> scores =
        translator.score(views_argument(call, source, count, "source"),
                         views_argument(call, target, count, "target"), options);
    for (size_t i = 0; i < count; ++i) {
      out_log_probability[i] = scores[i].log_probability;
      if (out_tokens) out_tokens[i] = scores[i].tokens;
    }
  });
}

namespace {

struct NamedOutput {
  trafo_tensor** tensor;
  const char* name;
};

// The outputs get the two tensors of work(translator): PackedStates or PackedLogits.
template <class Work>
void packed_of(const Call& call, trafo_model* model, const trafo_tokenizer* tokenizer, Input input,
               int32_t recorded, NamedOutput first, NamedOutput second, Work&& work) {
  call.out(first.tensor, first.name);
  call.out(second.tensor, second.name);
  const ModelObject& m = call.handle(model, "model");
  call.use(m.context);
  const std::optional<Tokenizer> subwords = vocabulary_for(call, *m.model, tokenizer, input);
  std::optional<NoGrad> no_grad;
  record_if_trainable(m, call.flag(recorded, "recorded"), no_grad);
  const auto [values, places] = work(Translator(*m.context, *m.model, subwords));
  NewTensors results(m.context, {values, places});
  results.hand_over({first.tensor, second.tensor});
}

}  // namespace

trafo_error* trafo_model_hidden_states(trafo_model* model, const trafo_tokenizer* tokenizer,
                                       const trafo_string_view* lines, size_t count,
                                       int32_t recorded, trafo_tensor** out_states,
                                       trafo_tensor** out_cu_seqlens) {
  return api(__func__, [&](const Call& call) {
    packed_of(call, model, tokenizer, Input::text, recorded, {out_states, "out_states"},
              {out_cu_seqlens, "out_cu_seqlens"}, [&](const Translator& translator) {
                return translator.states(views_argument(call, lines, count, "lines"));
              });
  });
}

trafo_error* trafo_model_hidden_states_ids(trafo_model* model, const trafo_ids_view* rows,
                                           size_t count, int32_t recorded,
                                           trafo_tensor** out_states,
                                           trafo_tensor** out_cu_seqlens) {
  return api(__func__, [&](const Call& call) {
    packed_of(call, model, nullptr, Input::ids, recorded, {out_states, "out_states"},
              {out_cu_seqlens, "out_cu_seqlens"}, [&](const Translator& translator) {
                return translator.states_ids(ids_argument(call, rows, count, "rows"));
              });
  });
}

trafo_error* trafo_model_logits(trafo_model* model, const trafo_tokenizer* tokenizer,
                                const trafo_string_view* source, const trafo_string_view* target,
                                size_t count, int32_t recorded, trafo_tensor** out_logits,
                                trafo_tensor** out_labels) {
  return api(__func__, [&](const Call& call) {
    packed_of(call, model, tokenizer, Input::text, recorded, {out_logits, "out_logits"},
              {out_labels, "out_labels"}, [&](const Translator& translator) {
                return translator.logits(views_argument(call, source, count, "source"),
                                         views_argument(call, target, count, "target"));
              });
  });
}

trafo_error* trafo_model_logits_ids(trafo_model* model, const trafo_tokenizer* tokenizer,
                                    const trafo_ids_view* source, const trafo_ids_view* target,
                                    size_t count, int32_t recorded, trafo_tensor** out_logits,
                                    trafo_tensor** out_labels) {
  return api(__func__, [&](const Call& call) {
    packed_of(call, model, tokenizer, Input::ids, recorded, {out_logits, "out_logits"},
              {out_labels, "out_labels"}, [&](const Translator& translator) {
                return translator.logits_ids(pairs_argument(call, source, target, count));
              });
  });
}

trafo_error* trafo_force_decode(trafo_model* model, const trafo_tokenizer* tokenizer,
                                const trafo_string_view* source, const trafo_string_view* target,
                                size_t count, const trafo_translate_options* options,
                                const trafo_cancel* cancel, trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::text, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              return translator.force_decode(views_argument(call, source, count, "source"),
                                             views_argument(call, target, count, "target"), wanted);
            });
  });
}

trafo_error* trafo_force_decode_ids(trafo_model* model, const trafo_tokenizer* tokenizer,
                                    const trafo_ids_view* source, const trafo_ids_view* target,
                                    size_t count, const trafo_translate_options* options,
                                    const trafo_cancel* cancel, trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::ids, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              return translator.force_decode_ids(pairs_argument(call, source, target, count),
                                                 wanted);
            });
  });
}

trafo_error* trafo_score_text(trafo_model* model, const trafo_tokenizer* tokenizer,
                              const trafo_string_view* lines, size_t count,
                              const trafo_translate_options* options, const trafo_cancel* cancel,
                              trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    work_on(call, model, tokenizer, Input::text, options, cancel, out,
            [&](const Translator& translator, const TranslateOptions& wanted) {
              return translator.score_text(views_argument(call, lines, count, "lines"), wanted);
            });
  });
}
