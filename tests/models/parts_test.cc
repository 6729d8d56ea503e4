// The parts that modules declare, for every form of a model.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "engine/models/meta_model.h"
#include "engine/nn/part_index.h"
#include "tests/models/tied_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

struct FormWithParts {
  std::string name;
  ModelConfig config;
};

// An encoder of BERT's form.
ModelConfig encoder_form(EncoderHead head) {
  ModelConfig config = tied_form("lm").untied();
  config.architecture = Architecture::encoder;
  config.pre_norm = false;
  config.encoder_head = head;
  config.token_types = 2;
  config.pooler = head == EncoderHead::none;
  config.labels = head == EncoderHead::sequence || head == EncoderHead::token ? 3 : 0;
  return config;
}

// Each architecture with every setting that changes which parameters there are, or their rows.
std::vector<FormWithParts> forms_with_parts() {
  std::vector<FormWithParts> forms;
  const auto add = [&](const std::string& name, ModelConfig config, auto change) {
    change(config);
    forms.push_back({name, config});
  };
  for (const char* tied : kTiedForms) {
    add(concat(tied, " shared"), tied_form(tied), [](ModelConfig&) {});
    add(tied, tied_form(tied).untied(), [](ModelConfig&) {});
    add(concat(tied, " untied embeddings"), tied_form(tied).untied(),
        [](ModelConfig& c) { c.tied_embeddings = false; });
    add(concat(tied, " factorized"), tied_form(tied).untied(), [](ModelConfig& c) {
      c.factor_ranks = {{"decoder.1.attention.qkv.weight", 3}, {"decoder.0.ffn.down.weight", 2}};
      if (spec_of(c).encoder) c.factor_ranks["decoder.cross_kv.weight"] = 5;
    });
  }
  add("pruned encoder", tied_form("encdec").untied(), [](ModelConfig& c) {
    c.head_width = 8;
    c.encoder_heads = 1;
    c.encoder_ffn_width = 24;
  });
  for (const bool shared : {true, false})
    add(concat("learned positions", shared ? "" : ", untied embeddings"),
        tied_form("encdec").untied(), [&](ModelConfig& c) {
          c.learned_positions = true;
          c.tied_embeddings = shared;
        });
  add("relative positions", t5_of(tied_form("encdec").untied()), [](ModelConfig&) {});
  add("relative positions, output matrix", gated_t5_of(tied_form("encdec").untied()),
      [](ModelConfig&) {});
  add("no output bias", tied_form("lm"), [](ModelConfig& c) { c.output_bias = false; });
  add("llama with biases", tied_form("llama"), [](ModelConfig& c) {
    c.qkv_biases = c.attention_output_bias = c.ffn_biases = true;
    c.head_width = 4;
  });
  add("llama with norms of queries and keys", tied_form("llama"),
      [](ModelConfig& c) { c.qk_norm = QkNorm::head; });
  add("llama with norms of outputs and of whole queries", tied_form("llama"), [](ModelConfig& c) {
    c.qk_norm = QkNorm::whole;
    c.norm_outputs = true;
  });
  add("llama with norms of inputs and outputs", tied_form("llama"),
      [](ModelConfig& c) { c.sandwich_norm = true; });
  for (const EncoderHead head :
       {EncoderHead::none, EncoderHead::masked_lm, EncoderHead::sequence, EncoderHead::token})
    add(concat("encoder with the head ", enum_name(head)), encoder_form(head), [](ModelConfig&) {});
  add("encoder with untied masked-lm", encoder_form(EncoderHead::masked_lm),
      [](ModelConfig& c) { c.tied_embeddings = false; });
  for (const EncoderHead head :
       {EncoderHead::none, EncoderHead::masked_lm, EncoderHead::sequence, EncoderHead::token})
    add(concat("ModernBERT with the head ", enum_name(head)),
        modernbert_of(tied_form("lm").untied(), head), [](ModelConfig&) {});
  add("ModernBERT with biases", modernbert_of(tied_form("lm").untied(), EncoderHead::masked_lm),
      [](ModelConfig& c) {
        c.qkv_biases = c.attention_output_bias = c.ffn_biases = true;
        c.tied_embeddings = c.output_bias = false;
      });
  return forms;
}

const std::map<std::string, std::pair<Sublayer, std::vector<Role>>> kOfLayers = {
    {"attention_norm", {Sublayer::attention, {Role::norm}}},
    {"cross_norm", {Sublayer::cross_attention, {Role::norm}}},
    {"ffn_norm", {Sublayer::feed_forward, {Role::norm}}},
    {"attention_output_norm", {Sublayer::attention, {Role::output_norm}}},
    {"ffn_output_norm", {Sublayer::feed_forward, {Role::output_norm}}},
    {"attention.qkv", {Sublayer::attention, {Role::query, Role::key, Role::value}}},
    {"attention.query_norm", {Sublayer::attention, {Role::query_norm}}},
    {"attention.key_norm", {Sublayer::attention, {Role::key_norm}}},
    {"attention.output", {Sublayer::attention, {Role::output}}},
    {"cross.query", {Sublayer::cross_attention, {Role::query}}},
    {"cross.output", {Sublayer::cross_attention, {Role::output}}},
    {"ffn.up", {Sublayer::feed_forward, {Role::up}}},
    {"ffn.gate_up", {Sublayer::feed_forward, {Role::gate, Role::up}}},
    {"ffn.down", {Sublayer::feed_forward, {Role::down}}}};

// The parts that a parameter has by its name in files: written down here once more.
std::vector<std::pair<Place, Role>> named(const ModelConfig& config, const std::string& module) {
  if (module == "embedding") return {{{Stack::decoder}, Role::embedding}};
  if (module == "source_embedding") return {{{Stack::encoder}, Role::embedding}};
  if (module == "positions") return {{{Stack::decoder}, Role::positions}};
  if (module == "source_positions") return {{{Stack::encoder}, Role::positions}};
  if (module == "embedding_norm") return {{{Stack::decoder}, Role::embedding_norm}};
  if (module == "source_embedding_norm") return {{{Stack::encoder}, Role::embedding_norm}};
  if (module == "token_types") return {{{Stack::decoder}, Role::token_types}};
  if (module == "pooler") return {{{Stack::decoder}, Role::pooler}};
  if (module == "head") return {{{Stack::decoder}, Role::head}};
  if (module == "head_norm") return {{{Stack::decoder}, Role::head_norm}};
  if (module == "output") return {{{Stack::decoder}, Role::logits}};
  if (module == "encoder.norm")
    return {{{config.architecture == Architecture::encoder ? Stack::decoder : Stack::encoder},
             Role::norm}};
  if (module == "encoder.relative_positions") return {{{Stack::encoder}, Role::distance_bias}};
  if (module == "decoder.relative_positions") return {{{Stack::decoder}, Role::distance_bias}};
  if (module == "decoder.norm") return {{{Stack::decoder}, Role::norm}};
  std::vector<std::pair<Place, Role>> parts;
  if (module == "decoder.cross_kv") {
    for (size_t i = 0; i < static_cast<size_t>(config.decoder_layers); ++i)
      if (first_with_number(config.decoder_tied_layers, i) == i)
        for (const Role role : {Role::key, Role::value})
          parts.push_back(
              {{Stack::decoder, static_cast<int64_t>(i), Sublayer::cross_attention}, role});
    return parts;
  }
  const int layer = layer_in(module);
  EXPECT_GE(layer, 0) << module;
  const auto& [sublayer, roles] = kOfLayers.at(module.substr(module.find('.') + 3));
  // The one stack of an encoder is the decoder's in a specification.
  const bool of_encoder =
      module.starts_with("encoder.") && config.architecture == Architecture::encoder_decoder;
  const Stack stack = of_encoder ? Stack::encoder : Stack::decoder;
  for (const Role role : roles) parts.push_back({{stack, layer, sublayer}, role});
  return parts;
}

TEST(Parts, CoverEveryRowOfEveryParameter) {
  for (const FormWithParts& form : forms_with_parts()) {
    const MetaModel meta = make_meta_model(form.config);
    const ParameterStore& parameters = meta.model->parameters();
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
      SCOPED_TRACE(form.name + ": " + parameters.name(id));
      int64_t row = 0;
      for (const Part& part : parameters.parts(id).rows) {
        EXPECT_EQ(part.first, row);
        EXPECT_GT(part.rows, 0);
        row += part.rows;
      }
      EXPECT_EQ(row, parameters.shape(id)[0]);
    }
  }
}

TEST(Parts, AreWhereTheNamesSay) {
  for (const FormWithParts& form : forms_with_parts()) {
    const MetaModel meta = make_meta_model(form.config);
    const ParameterStore& parameters = meta.model->parameters();
    const PartIndex index(parameters);  // each part is declared once
    for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
      std::string module = parameters.name(id);
      SCOPED_TRACE(form.name + ": " + module);
      const ParameterParts& parts = parameters.parts(id);
      const bool inner = module.ends_with(kInnerFactor);
      if (inner || module.ends_with(kOuterFactor)) module.resize(module.rfind('.'));
      const bool bias = module.ends_with(".bias");
      module.resize(module.rfind('.'));
      EXPECT_EQ(parts.piece, inner ? Piece::inner_factor : bias ? Piece::bias : Piece::weight);
      std::vector<std::pair<Place, Role>> expected = named(form.config, module), found;
      if (inner) expected.resize(1);  // its rows are components, not outputs
      for (const Part& part : parts.rows) found.emplace_back(part.place, part.role);
      EXPECT_EQ(found, expected);
      for (const Part& part : parts.rows)
        EXPECT_EQ(index.at(part.place, part.role, parts.piece).parameter, id);
    }
  }
}

TEST(Parts, HaveTheRowsOfHeadsAndColumns) {
  ModelConfig config = llama_of(tiny_config(), 2);
  config.heads = 4;
  config.ffn_width = 24;
  const MetaModel meta = make_meta_model(config);
  const PartIndex index(meta.model->parameters());
  const Place attention{Stack::decoder, 0, Sublayer::attention},
      ffn{Stack::decoder, 0, Sublayer::feed_forward};
  const auto expect = [&](const Place& place, Role role, int64_t first, int64_t rows, int64_t units,
                          int64_t column_units) {
    const PartIndex::Found& found = index.at(place, role);
    EXPECT_EQ(found.part.first, first);
    EXPECT_EQ(found.part.rows, rows);
    EXPECT_EQ(found.part.units, units);
    EXPECT_EQ(meta.model->parameters().parts(found.parameter).column_units, column_units);
  };
  // Heads of 4; each of the two key heads serves two query heads.
  expect(attention, Role::query, 0, 16, 2, 0);
  expect(attention, Role::key, 16, 8, 2, 0);
  expect(attention, Role::value, 24, 8, 2, 0);
  expect(attention, Role::output, 0, 16, 0, 2);
  expect(ffn, Role::gate, 0, 24, 24, 0);
  expect(ffn, Role::up, 24, 24, 24, 0);
  expect(ffn, Role::down, 0, 16, 0, 24);
  EXPECT_EQ(index.find(attention.of_layer(1), Role::query), nullptr);
  EXPECT_EQ(index.find(attention, Role::query, Piece::bias), nullptr);
  expect_error(ErrorCode::internal, "no part",
               [&] { static_cast<void>(index.at(attention.of_layer(1), Role::query)); });
}

TEST(Parts, ThatAreNotTheParameterAreRefused) {
  ParameterStore store;
  const ParamId id = store.declare("w.weight", {4, 6}, Init::zeros());
  const auto refused = [&](std::vector<Part> rows, int64_t column_units) {
    expect_error(ErrorCode::internal, "the parts of w.weight",
                 [&] { store.set_parts(id, Piece::weight, rows, column_units); });
  };
  refused({}, 0);
  refused({{Role::up, {}, 3}}, 0);
  refused({{Role::up, {}, 4, 3}}, 0);
  refused({{Role::up, {}, 4}}, 4);
  store.set_parts(id, Piece::weight, {{Role::gate, {}, 2}, {Role::up, {}, 2, 2}}, 3);
  EXPECT_EQ(store.parts(id).rows[1].first, 2);
}

}  // namespace
}  // namespace trafo::testing
