#include <memory>
#include <utility>
#include <vector>

#include "capi/src/model_handles.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/decode/generator.h"
#include "engine/decode/packing.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/run_models.h"

using namespace trafo;

// The context's lock guards the generator, its draft model and the piece.
struct trafo::capi::GeneratorObject {
  std::shared_ptr<Context> context;
  std::shared_ptr<const Model> model, draft;  // the generator refers to them
  std::unique_ptr<Generator> generator;
  GenerationPiece piece = {};  // the last one, which the caller borrows
};

using namespace trafo::capi;

namespace {

std::vector<int32_t> tokens_argument(const Call& call, const int32_t* ids, size_t count,
                                     const char* name) {
  call.array(ids, count, name);
  return {ids, ids + count};
}

GenerationOptions to_generation_options(const Call& call, const Model& model,
                                        const trafo_translate_options& o,
                                        const trafo_generation_options& more) {
  const auto not_negative = [&](int64_t value, const char* field) {
    if (value < 0) call.refuse_argument(field, " must be at least 0, got ", value);
  };
  not_negative(o.max_length, "max_length");
  // Not used, but a wrong value is a mistake in any case.
  not_negative(o.window_length, "window_length");
  not_negative(o.window_stride, "window_stride");
  not_negative(o.shortlist_first, "shortlist_first");
  not_negative(o.shortlist_best, "shortlist_best");
  if (o.shortlist) call.refuse_argument("shortlist", " is not for generation");
  GenerationOptions options;
  options.translate = from_c(call, o);
  for (const auto& [frame, field] : {std::pair(options.translate.begin_source, "begin_source"),
                                     std::pair(options.translate.end_source, "end_source")})
    if (!is_known(frame)) call.refuse_argument(field, " is unknown: ", static_cast<int32_t>(frame));
  DecodeOptions& decode = options.translate.decode;
  decode.max_length = o.max_length > 0 ? o.max_length : model.spec().max_positions;
  options.stop = lines_argument(call, more.stop, more.stop_count, "stop");
  options.stop_tokens =
      tokens_argument(call, more.stop_tokens, more.stop_token_count, "stop_tokens");
  decode.banned_tokens =
      tokens_argument(call, more.banned_tokens, more.banned_token_count, "banned_tokens");
  call.array(more.logit_bias, more.logit_bias_count, "logit_bias");
  for (size_t i = 0; i < more.logit_bias_count; ++i) {
    call.reserved(more.logit_bias[i].reserved);
    decode.logit_bias.emplace_back(more.logit_bias[i].token, more.logit_bias[i].bias);
  }
  options.json_schema = call.text(more.json_schema.data, more.json_schema.length, "json_schema");
  options.alternatives = more.alternatives;
  options.draft_tokens = more.draft_tokens;
  return options;
}

// *out_first gets the number of the first sequence that begin(generator, options) adds.
template <class Begin>
void start(const Call& call, trafo_generator* generator, const trafo_translate_options* options,
           const trafo_generation_options* more, int64_t* out_first, Begin&& begin) {
  call.out(out_first, "out_first");
  GeneratorObject& g = call.handle(generator, "generator");
  call.use(g.context);
  g.piece = {};
  *out_first = begin(
      *g.generator,
      to_generation_options(call, *g.model, read_options(call, options), read_options(call, more)));
}

}  // namespace

trafo_error* trafo_generator_new(trafo_model* model, const trafo_tokenizer* tokenizer,
                                 int64_t kept_sequences, trafo_generator** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    std::optional<Tokenizer> subwords = optional_vocabulary_of(call, *m.model, tokenizer);
    if (!m.for_inference)
      call.refuse_argument("model",
                           " must be prepared with trafo_model_prepare_inference: a "
                           "generator keeps what its weights give");
    *out = new_handle<trafo_generator>(
        m.context, m.model, nullptr,
        std::make_unique<Generator>(*m.context, *m.model, std::move(subwords), m.packed,
                                    kept_sequences));
  });
}

trafo_error* trafo_generator_load_draft(trafo_generator* generator, const char* path,
                                        size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const auto from = path_argument(call, path, path_length, "path");
    GeneratorObject& g = call.handle(generator, "generator");
    call.use(g.context);
    const ParameterStore& own = g.model->parameters();
    std::shared_ptr<const Model> draft =
        load_model(*g.context, find_model_file(from), own.dtype(), own.has_int8());
    g.generator->set_draft(*draft, pack_for_decoding(*g.context, *draft));
    g.draft = std::move(draft);
  });
}

trafo_error* trafo_generator_start(trafo_generator* generator, const trafo_string_view* prompts,
                                   size_t count, const trafo_translate_options* options,
                                   const trafo_generation_options* generation, int64_t* out_first) {
  return api(__func__, [&](const Call& call) {
    start(call, generator, options, generation, out_first,
          [&](Generator& to, const GenerationOptions& wanted) {
            return to.start(views_argument(call, prompts, count, "prompts"), wanted);
          });
  });
}

trafo_error* trafo_generator_start_ids(trafo_generator* generator, const trafo_ids_view* prompts,
                                       size_t count, const trafo_translate_options* options,
                                       const trafo_generation_options* generation,
                                       int64_t* out_first) {
  return api(__func__, [&](const Call& call) {
    start(call, generator, options, generation, out_first,
          [&](Generator& to, const GenerationOptions& wanted) {
            return to.start_ids(ids_argument(call, prompts, count, "prompts"), wanted);
          });
  });
}

trafo_error* trafo_generator_next(trafo_generator* generator, const trafo_cancel* cancel,
                                  trafo_generation_piece* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    GeneratorObject& g = call.handle(generator, "generator");
    call.use(g.context);
    const CancelArgument token(call, cancel);
    g.piece = {};
    g.piece = g.generator->next(token.get());
    trafo_generation_piece c{};
    c.sequence = g.piece.sequence;
    if (g.piece.sequence >= 0) {
      c.text = {g.piece.text.data(), g.piece.text.size()};
      c.token = g.piece.token;
      c.finished = g.piece.finished ? 1 : 0;
      c.finish = static_cast<int32_t>(g.piece.finish);
      c.log_probability = g.piece.log_probability;
      c.prompt_tokens = g.piece.prompt_tokens;
      c.cached_tokens = g.piece.cached_tokens;
      c.generated_tokens = g.piece.generated_tokens;
      c.drafted_tokens = g.piece.drafted_tokens;
      c.accepted_tokens = g.piece.accepted_tokens;
    }
    init_options(call, out, struct_size, c);
  });
}

trafo_error* trafo_generator_get_alternatives(const trafo_generator* generator,
                                              const int32_t** out_tokens,
                                              const double** out_log_probabilities,
                                              size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    call.out(out_tokens, "out_tokens");
    call.out(out_log_probabilities, "out_log_probabilities");
    call.out(out_count, "out_count");
    const GeneratorObject& g = call.handle(generator, "generator");
    call.use(g.context);
    if (g.piece.alternatives.empty()) return;
    *out_tokens = g.piece.alternatives.data();
    *out_log_probabilities = g.piece.alternative_log_probabilities.data();
    *out_count = g.piece.alternatives.size();
  });
}

trafo_error* trafo_generator_end(trafo_generator* generator, int64_t sequence) {
  return api(__func__, [&](const Call& call) {
    GeneratorObject& g = call.handle(generator, "generator");
    call.use(g.context);
    g.piece = {};
    g.generator->end(sequence);
  });
}

void trafo_generator_free(trafo_generator* generator) {
  free_handle(generator);
}
