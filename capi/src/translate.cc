#include <span>
#include <vector>

#include "capi/src/model_handles.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/decode/scorer.h"
#include "engine/decode/search.h"

using namespace trafo;

struct trafo::capi::TranslationsObject {
  struct Line {
    std::string text;
    double score;
  };
  struct Source {
    int64_t tokens = 0, used = 0;
  };
  std::vector<std::vector<Line>> lines;
  std::vector<Source> sources;
};

using namespace trafo::capi;

namespace {

SpecialTokens special_tokens(const Tokenizer& tokenizer) {
  return {tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id(), tokenizer.unk_id()};
}

void check_vocabulary(const Call& call, const Model& model, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() != model.config().vocabulary)
    call.refuse("the tokenizer has ", tokenizer.vocab_size(), " pieces, the model ",
                model.config().vocabulary, ": they do not belong together");
}

std::vector<int32_t> encode_line(const Call& call, const Tokenizer& tokenizer,
                                 const trafo_string_view& line, const char* name, size_t number) {
  try {
    std::vector<int32_t> ids = tokenizer.encode(call.text(line.data, line.length, name));
    ids.push_back(tokenizer.eos_id());
    return ids;
  } catch (const Error& error) {
    fail(error.code(), call.function(), name, ", line ", number + 1, ": ", error.message());
  }
}

// A byte piece, <0x80> to <0xBF>: not the first of its character.
bool continues_character(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.type(id) == SpmPiece::byte && tokenizer.piece(id) >= "<0x80>" &&
         tokenizer.piece(id) <= "<0xBF>";
}

// The first tokens and eos, at most `limit`: whole characters of a vocabulary that spells rare ones
// in bytes.
void cut_source(const Tokenizer& tokenizer, std::vector<int32_t>& ids, int64_t limit) {
  auto kept = static_cast<size_t>(std::max<int64_t>(limit - 1, 0));
  while (kept > 0 && continues_character(tokenizer, ids[kept])) --kept;
  ids.resize(kept);
  ids.push_back(tokenizer.eos_id());
}

}  // namespace

trafo_error* trafo_translate_options_init(trafo_translate_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, to_c(DecodeOptions{}));
  });
}

trafo_error* trafo_translate(trafo_model* model, const trafo_tokenizer* tokenizer,
                             const trafo_string_view* lines, size_t count,
                             const trafo_translate_options* options, const trafo_cancel* cancel,
                             trafo_translations** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const Tokenizer& pieces = call.handle(tokenizer, "tokenizer").tokenizer;
    const trafo_translate_options o = read_options(call, options, to_c(DecodeOptions{}));
    const std::shared_ptr<CancelToken> token =
        cancel ? call.handle(cancel, "cancel").token : nullptr;
    const bool truncate = call.flag(o.truncate, "truncate");
    call.array(lines, count, "lines");
    check_vocabulary(call, *m.model, pieces);
    if (o.max_length < 0) call.refuse("max_length must be at least 0, got ", o.max_length);

    DecodeOptions decode = from_c(call, o);
    if (o.max_length > 0) {
      decode.max_length = o.max_length;
      decode.max_length_factor = 0;
      decode.max_length_extra = o.max_length;
    }
    decode.weights = m.packed;
    if (o.shortlist_first < 0 || o.shortlist_best < 0)
      call.refuse("shortlist_first and shortlist_best must be at least 0, got ", o.shortlist_first,
                  " and ", o.shortlist_best);
    if (o.shortlist) {
      const ShortlistObject& list = call.handle(o.shortlist, "shortlist");
      if (list.tokenizer.serialized() != pieces.serialized())
        call.refuse("the shortlist belongs to another tokenizer");
      if (o.shortlist_first == 0 && o.shortlist_best == 0)
        call.refuse("shortlist_first and shortlist_best are both 0: no token would be left");
      decode.shortlist = [&list, first = o.shortlist_first,
                          best = o.shortlist_best](std::span<const int32_t> source) {
        return list.table.candidates(source, first, best);
      };
    }
    decode.long_source = truncate ? LongSource::truncate : LongSource::error;
    decode.tokens = special_tokens(pieces);
    if (token) decode.cancelled = [token] { return token->is_cancelled(); };

    const int64_t limit = longest_source(m.model->config());
    TranslationsObject result;
    std::vector<std::vector<int32_t>> sources;
    for (size_t i = 0; i < count; ++i) {
      sources.push_back(encode_line(call, pieces, lines[i], "lines", i));
      const auto tokens = static_cast<int64_t>(sources.back().size());
      if (truncate && tokens > limit) cut_source(pieces, sources.back(), limit);
      result.sources.push_back({tokens, static_cast<int64_t>(sources.back().size())});
    }
    for (const auto& hypotheses : translate_tokens(*m.context, *m.model, sources, decode)) {
      auto& line = result.lines.emplace_back();
      for (const Hypothesis& h : hypotheses) line.push_back({pieces.decode(h.tokens), h.score});
    }
    *out = new_handle<trafo_translations>(std::move(result));
  });
}

trafo_error* trafo_translations_get(const trafo_translations* translations, size_t index,
                                    size_t rank, trafo_string_view* out_text, double* out_score) {
  return api(__func__, [&](const Call& call) {
    call.out(out_text, "out_text");
    if (out_score) *out_score = 0;
    const auto& lines = call.handle(translations, "translations").lines;
    if (index >= lines.size())
      call.refuse("index is ", index, ", there are ", lines.size(), " lines");
    require(rank < lines[index].size(), ErrorCode::not_found, call.function(), "line ", index,
            " has ", lines[index].size(), " hypotheses, not ", rank + 1);
    const auto& line = lines[index][rank];
    *out_text = {line.text.data(), line.text.size()};
    if (out_score) *out_score = line.score;
  });
}

trafo_error* trafo_translations_get_count(const trafo_translations* translations, size_t index,
                                          size_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const auto& lines = call.handle(translations, "translations").lines;
    if (index >= lines.size())
      call.refuse("index is ", index, ", there are ", lines.size(), " lines");
    *out = lines[index].size();
  });
}

trafo_error* trafo_translations_get_source(const trafo_translations* translations, size_t index,
                                           int64_t* out_tokens, int64_t* out_used) {
  return api(__func__, [&](const Call& call) {
    if (out_tokens) *out_tokens = 0;
    if (out_used) *out_used = 0;
    const auto& sources = call.handle(translations, "translations").sources;
    if (index >= sources.size())
      call.refuse("index is ", index, ", there are ", sources.size(), " lines");
    if (out_tokens) *out_tokens = sources[index].tokens;
    if (out_used) *out_used = sources[index].used;
  });
}

trafo_error* trafo_translations_get_truncated(const trafo_translations* translations, size_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    for (const auto& source : call.handle(translations, "translations").sources)
      *out += source.used < source.tokens ? 1 : 0;
  });
}

void trafo_translations_free(trafo_translations* translations) {
  free_handle(translations);
}

trafo_error* trafo_score(trafo_model* model, const trafo_tokenizer* tokenizer,
                         const trafo_string_view* source, const trafo_string_view* target,
                         size_t count, double* out_log_probability, int64_t* out_tokens) {
  return api(__func__, [&](const Call& call) {
    call.array(out_log_probability, count, "out_log_probability");
    for (size_t i = 0; i < count; ++i) {
      out_log_probability[i] = 0;
      if (out_tokens) out_tokens[i] = 0;
    }
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const Tokenizer& pieces = call.handle(tokenizer, "tokenizer").tokenizer;
    call.array(source, count, "source");
    call.array(target, count, "target");
    check_vocabulary(call, *m.model, pieces);
    std::vector<SentencePair> pairs;
    for (size_t i = 0; i < count; ++i)
      pairs.push_back({encode_line(call, pieces, source[i], "source", i),
                       encode_line(call, pieces, target[i], "target", i)});
    ScoreOptions options;
    options.tokens = special_tokens(pieces);
    const std::vector<PairScore> scores = score(*m.context, *m.model, pairs, options);
    for (size_t i = 0; i < count; ++i) {
      out_log_probability[i] = scores[i].log_probability;
      if (out_tokens) out_tokens[i] = scores[i].tokens;
    }
  });
}
