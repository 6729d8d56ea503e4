#include "engine/models/encoder_head.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/models/adapter.h"

namespace trafo {
namespace {

constexpr const char* kHeadOrigin = "encoder head";

ModelConfig config_with_head(const Model& model, EncoderHead head, size_t labels) {
  ModelConfig config = model.config();
  const bool has_pooler = model.spec().head.pooler;
  config.encoder_head = head;
  config.labels = static_cast<int64_t>(labels);
  config.pooler =
      head == EncoderHead::none && has_pooler && config.encoder_class == EncoderClass::bert;
  if (head != EncoderHead::masked_lm) config.tied_embeddings = true;
  if (labels == 0)
    config.classifier_dropout = 0;
  else if (model.labels().empty())
    config.classifier_dropout = config.dropout;
  return config;
}

// Whether the new head has this parameter of the old one.
bool keeps_parameter(const Model& from, const Model& to, const std::string& name) {
  const bool same = from.spec().head.kind == to.spec().head.kind;
  if (name.starts_with("output.")) return same && from.labels() == to.labels();
  // RoBERTa has a pooler of its own in each class.
  if (name.starts_with("pooler.")) return same || from.spec().head.of_class == EncoderClass::bert;
  return true;
}

}  // namespace

std::unique_ptr<Model> with_head(Context& context, const Model& model, EncoderHead head,
                                 std::vector<std::string> labels, uint64_t seed) {
  require(model.spec().architecture == Architecture::encoder, ErrorCode::invalid_argument,
          kHeadOrigin, "the model is no encoder");
  require(!model.adapter() && !model.parameters().has_codes(), ErrorCode::invalid_argument,
          kHeadOrigin, "the model has an adapter or quantized weights: give it the head before");
  require_argument(is_known(head), kHeadOrigin, "head",
                   " is unknown: ", static_cast<int32_t>(head));
  std::vector<std::string> sorted = labels;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  require_argument(twice == sorted.end(), kHeadOrigin, "labels", " has ",
                   twice == sorted.end() ? "" : *twice, " twice");
  const ModelConfig config = config_with_head(model, head, labels.size());
  validate(config);
  std::unique_ptr<Model> result = make_model(context, config, seed);
  if (!labels.empty()) result->set_labels(std::move(labels));
  result->set_origin({.file = {}, .vocabulary = model.origin().vocabulary});
  result->set_tokens(model.tokens());
  const ParameterStore& from = model.parameters();
  ParameterStore& to = result->parameters();
  for (size_t i = 0; i < to.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParamId old = from.find(to.name(id));
    if (old == kNoParam || from.shape(old) != to.shape(id) ||
        !keeps_parameter(model, *result, to.name(id)))
      continue;
    const std::vector<std::byte> values = whole_value(context, from, old);
    to.set_value(context, id, values.data(), values.size());
  }
  return result;
}

}  // namespace trafo
