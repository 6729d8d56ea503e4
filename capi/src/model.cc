#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "capi/src/model_handles.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/average.h"
#include "engine/train/checkpoint/run_directory.h"
#include "engine/train/checkpoint/run_models.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

trafo_model* load(const Call& call, trafo_context* context, const char* path, size_t path_length,
                  std::optional<DType> precision, bool int8_weights = false) {
  Context& c = call.context(context);
  return new_handle<trafo_model>(
      call.owner(),
      std::shared_ptr<Model>(
          load_model(c, path_argument(call, path, path_length, "path"), precision, int8_weights)));
}

void write_config(const Call& call, const Model& model, trafo_model_config* out,
                  size_t struct_size) {
  trafo_model_config config = capi::to_c(model.config());
  config.precision = static_cast<int32_t>(model.parameters().dtype());
  init_options(call, out, struct_size, config);
}

void set_trainable(const Call& call, trafo_model* model, const char* pattern, size_t length,
                   bool trainable, int64_t* out_count) {
  if (out_count) *out_count = 0;
  const std::string_view names = call.text(pattern, length, "pattern");
  const ModelObject& m = untrained(call, model);
  const int64_t count = m.model->parameters().set_trainable(*m.context, names, trainable);
  if (out_count) *out_count = count;
}

}  // namespace

DType trafo::capi::checked_precision(const Call& call, int32_t precision) {
  if (precision < TRAFO_FLOAT32 || precision > TRAFO_BFLOAT16)
    call.refuse_argument(
        "precision", " must be TRAFO_FLOAT32 (0), TRAFO_FLOAT64 (1) or TRAFO_BFLOAT16 (2), got ",
        precision);
  return DType{precision};
}

WantedModel trafo::capi::wanted_model(const Call& call, const trafo_model_config* config) {
  if (!config) call.refuse_argument("config", " is NULL");
  const trafo_model_config settings = read_options(call, config);
  return {from_c(call, settings), checked_precision(call, settings.precision)};
}

trafo_error* trafo_model_config_preset(trafo_model_config* config, const char* name,
                                       size_t name_length) {
  return api(__func__, [&](const Call& call) {
    const Preset& wanted = preset(call, call.text(name, name_length, "name"));
    write_preset(call, config, "config", wanted.model);
  });
}

trafo_error* trafo_model_new(trafo_context* context, const trafo_model_config* config,
                             uint64_t seed, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const WantedModel wanted = wanted_model(call, config);
    *out = new_handle<trafo_model>(
        call.owner(), std::shared_ptr<Model>(make_model(c, wanted.config, seed, wanted.precision)));
  });
}

trafo_error* trafo_model_new_like(trafo_context* context, const trafo_model_config* config,
                                  uint64_t seed, const char* path, size_t path_length,
                                  trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    WantedModel wanted = wanted_model(call, config);
    const auto reader = SafetensorsReader::open(path_argument(call, path, path_length, "path"),
                                                ElementTypes::ours_and_codes);
    const ModelConfig in_file = read_model_config(reader);
    wanted.config.factor_ranks = in_file.factor_ranks;
    std::shared_ptr<Model> model = make_model(c, wanted.config, seed, wanted.precision);
    const bool has_its_tokens = in_file.vocabulary == wanted.config.vocabulary &&
                                in_file.source_vocabulary == wanted.config.source_vocabulary &&
                                in_file.architecture == wanted.config.architecture;
    if (has_its_tokens) read_tokens(reader, *model);
    if (in_file.labels == wanted.config.labels) read_labels(reader, *model);
    *out = new_handle<trafo_model>(call.owner(), std::move(model));
  });
}

trafo_error* trafo_model_load(trafo_context* context, const char* path, size_t path_length,
                              trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = load(call, context, path, path_length, {});
  });
}

trafo_error* trafo_model_load_as(trafo_context* context, const char* path, size_t path_length,
                                 int32_t precision, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = load(call, context, path, path_length, checked_precision(call, precision));
  });
}

trafo_error* trafo_model_load_int8(trafo_context* context, const char* path, size_t path_length,
                                   trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = load(call, context, path, path_length, DType::f32, true);
  });
}

trafo_error* trafo_model_load_run(trafo_context* context, const char* run_directory,
                                  size_t run_directory_length, int32_t which, int32_t precision,
                                  trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    if (which < TRAFO_RUN_BEST || which > TRAFO_RUN_AVERAGED)
      call.refuse_argument(
          "which", " must be TRAFO_RUN_BEST (0), TRAFO_RUN_LAST (1) or TRAFO_RUN_AVERAGED (2), ",
          "got ", which);
    const DType dtype = checked_precision(call, precision);
    const std::filesystem::path file = run_model_file(
        path_argument(call, run_directory, run_directory_length, "run_directory"), RunModel{which});
    *out =
        new_handle<trafo_model>(call.owner(), std::shared_ptr<Model>(load_model(c, file, dtype)));
  });
}

trafo_error* trafo_find_model(const char* path, size_t path_length, char** out_path) {
  return api(__func__, [&](const Call& call) {
    call.out(out_path, "out_path");
    const auto file = find_model_file(path_argument(call, path, path_length, "path"));
    *out_path = copy_string(file.string());
  });
}

trafo_error* trafo_find_checkpoint(const char* run_directory, size_t run_directory_length,
                                   const char* name, size_t name_length, char** out_path) {
  return api(__func__, [&](const Call& call) {
    call.out(out_path, "out_path");
    const auto run = path_argument(call, run_directory, run_directory_length, "run_directory");
    const std::string wanted(call.text(name, name_length, "name"));
    *out_path = copy_string(checkpoint_model_file(run, wanted).string());
  });
}

trafo_error* trafo_list_checkpoints(const char* run_directory, size_t run_directory_length,
                                    int64_t* updates, int64_t capacity, int64_t* out_count) {
  return api(__func__, [&](const Call& call) {
    call.out(out_count, "out_count");
    if (capacity < 0) call.refuse_argument("capacity", " must be at least 0, got ", capacity);
    call.array(updates, static_cast<size_t>(capacity), "updates");
    const auto run = path_argument(call, run_directory, run_directory_length, "run_directory");
    std::vector<int64_t> found;
    if (std::error_code none; std::filesystem::is_directory(run, none))
      found = CheckpointDirectory(run).list();
    const auto count = static_cast<int64_t>(found.size());
    std::copy_n(found.begin(), std::min(count, capacity), updates);
    *out_count = count;
  });
}

trafo_error* trafo_model_load_weights(trafo_model* model, const trafo_tokenizer* tokenizer,
                                      const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    check_changeable(call, m);
    const TokenizerObject* subwords = tokenizer ? &call.handle(tokenizer, "tokenizer") : nullptr;
    const auto reader = open_model(path_argument(call, path, path_length, "path"));
    const std::string vocabulary = read_vocabulary_checksum(reader);
    if (subwords && !vocabulary.empty() && vocabulary != subwords->checksum)
      call.refuse(reader.label(), " was trained with another vocabulary than ",
                  subwords->file.empty() ? "the tokenizer" : subwords->file);
    load_pretrained(*m.context, reader, *m.model);
    // Without a tokenizer the caller says that another vocabulary is fine.
    m.model->set_origin({reader.label(), subwords ? subwords->checksum : std::string()});
  });
}

trafo_error* trafo_average_models(const trafo_string_view* paths, size_t count, const char* output,
                                  size_t output_length) {
  return api(__func__, [&](const Call& call) {
    call.array(paths, count, "paths");
    std::vector<std::filesystem::path> models;
    for (size_t i = 0; i < count; ++i)
      models.push_back(path_argument(call, paths[i].data, paths[i].length, "paths"));
    average_models(models, path_argument(call, output, output_length, "output"));
  });
}

trafo_error* trafo_model_prepare_inference(trafo_model* model) {
  return api(__func__, [&](const Call& call) {
    ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    if (m.for_inference) return;
    // Translation reads a copy of the weights from here on, which a trainer would not update.
    if (m.model.use_count() > 1) call.refuse("the model has a trainer: free that first");
    m.packed = pack_for_decoding(*m.context, *m.model);
    m.for_inference = true;
  });
}

trafo_error* trafo_model_save(const trafo_model* model, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    save_model(path_argument(call, path, path_length, "path"), *m.context, *m.model);
  });
}

trafo_error* trafo_model_get_config(const trafo_model* model, trafo_model_config* out,
                                    size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    write_config(call, *call.handle(model, "model").model, out, struct_size);
  });
}

trafo_error* trafo_model_read_config(const char* path, size_t path_length, trafo_model_config* out,
                                     size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const auto reader = SafetensorsReader::open(path_argument(call, path, path_length, "path"),
                                                ElementTypes::ours_and_codes);
    write_config(call, *read_meta_model(reader).model, out, struct_size);
  });
}

trafo_error* trafo_model_check_tokenizer(const trafo_model* model,
                                         const trafo_tokenizer* tokenizer) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    require_vocabulary_size(*m.model, vocabulary_of(*m.model, call.handle(tokenizer, "tokenizer")));
  });
}

trafo_error* trafo_model_set_special_tokens(trafo_model* model, const trafo_special_tokens* tokens,
                                            const int32_t* further_ends, size_t count) {
  return api(__func__, [&](const Call& call) {
    ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    if (!tokens) call.refuse_argument("tokens", " is NULL");
    call.array(further_ends, count, "further_ends");
    const std::optional<VocabularyTokens>& known = m.model->tokens();
    m.model->set_tokens(VocabularyTokens{
        {.bos = tokens->bos, .eos = tokens->eos, .pad = tokens->pad, .unk = tokens->unk},
        {further_ends, further_ends + count},
        known ? known->frame : TextFrame()});
  });
}

trafo_error* trafo_model_get_special_tokens(const trafo_model* model, trafo_special_tokens* out,
                                            const int32_t** out_further_ends, size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    if (out_further_ends) *out_further_ends = nullptr;
    if (out_count) *out_count = 0;
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const std::optional<VocabularyTokens>& tokens = m.model->tokens();
    require(tokens.has_value(), ErrorCode::not_found, call.function(),
            "the model does not know the special tokens of its vocabulary");
    const SpecialTokens& special = tokens->special;
    *out = {special.unk, special.bos, special.eos, special.pad};
    if (out_further_ends && !tokens->further_ends.empty())
      *out_further_ends = tokens->further_ends.data();
    if (out_count) *out_count = tokens->further_ends.size();
  });
}

trafo_error* trafo_model_get_parameter_count(const trafo_model* model, int64_t* out_tensors,
                                             int64_t* out_elements) {
  return api(__func__, [&](const Call& call) {
    call.out(out_tensors, "out_tensors");
    call.out(out_elements, "out_elements");
    const ParameterStore& parameters = call.handle(model, "model").model->parameters();
    *out_tensors = static_cast<int64_t>(parameters.count());
    *out_elements = parameters.parameter_count();
  });
}

trafo_error* trafo_model_get_parameter(trafo_model* model, int64_t index, const char** out_name,
                                       trafo_tensor** out_tensor) {
  return api(__func__, [&](const Call& call) {
    if (out_name) *out_name = nullptr;
    if (out_tensor) *out_tensor = nullptr;
    ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    check_changeable(call, m);
    const ParameterStore& parameters = m.model->parameters();
    const ParamId id = checked_parameter(call, parameters, index);
    if (out_tensor) {
      // A view with the same memory and gradient. Turning its gradient off does not change the
      // model.
      Tensor view = parameters.value(id).detach();
      view.set_variable(parameters.value(id).variable());
      *out_tensor = give_tensor(m.context, std::move(view));
    }
    if (out_name) *out_name = parameters.name(id).c_str();
  });
}

trafo_error* trafo_model_get_parameter_info(const trafo_model* model, int64_t index,
                                            trafo_parameter_info* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const ParameterStore& parameters = call.handle(model, "model").model->parameters();
    const ParamId id = checked_parameter(call, parameters, index);
    const ParameterGroup& group = parameters.group(id);
    trafo_parameter_info info{};
    info.name = parameters.name(id).c_str();
    info.group = group.name.c_str();
    const Shape& shape = parameters.shape(id);
    info.elements = element_count(shape);
    info.dtype = parameters.is_int8(id) ? TRAFO_INT8 : static_cast<int32_t>(group.dtype);
    info.trainable = group.trainable;
    info.lr_factor = group.lr_factor;
    info.weight_decay_factor = group.weight_decay;
    info.rows = shape.rank() > 1 ? shape[0] : 1;
    info.columns = shape[shape.rank() - 1];
    info.bits = parameters.is_coded(id) ? parameters.base_precision() == BasePrecision::int8 ? 8 : 4
                : parameters.int4(id)   ? 4
                : parameters.is_int8(id)
                    ? 8
                    : 8 * static_cast<int64_t>(dtype_size(stat_dtype(group.dtype)));
    info.signal_to_noise = parameters.signal_to_noise(id);
    init_options(call, out, struct_size, info);
  });
}

trafo_error* trafo_model_freeze(trafo_model* model, const char* pattern, size_t pattern_length,
                                int64_t* out_count) {
  return api(__func__, [&](const Call& call) {
    set_trainable(call, model, pattern, pattern_length, false, out_count);
  });
}

trafo_error* trafo_model_unfreeze(trafo_model* model, const char* pattern, size_t pattern_length,
                                  int64_t* out_count) {
  return api(__func__, [&](const Call& call) {
    set_trainable(call, model, pattern, pattern_length, true, out_count);
  });
}

trafo_error* trafo_model_set_update_factors(trafo_model* model, const char* pattern,
                                            size_t pattern_length, double lr_factor,
                                            double weight_decay_factor, int64_t* out_count) {
  return api(__func__, [&](const Call& call) {
    if (out_count) *out_count = 0;
    const std::string_view names = call.text(pattern, pattern_length, "pattern");
    const ModelObject& m = untrained(call, model);
    const int64_t count = m.model->parameters().set_factors(names, lr_factor, weight_decay_factor);
    if (out_count) *out_count = count;
  });
}

void trafo_model_free(trafo_model* model) {
  free_handle(model);
}
