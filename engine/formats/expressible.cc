#include "engine/formats/expressible.h"

#include <algorithm>
#include <cmath>

#include "engine/core/status.h"
#include "engine/core/strings/json.h"

namespace trafo::interop {
namespace {

std::string decimal_of(double value) {
  return Json(value).dump();
}

std::string factor_text(double value) {
  return value == 1 ? "1" : decimal_of(value);
}

std::string cap_text(double cap) {
  return cap == 0 ? "none" : decimal_of(cap);
}

std::string biases_of(bool qkv, bool output, bool ffn) {
  if (qkv && output && ffn) return "all";
  std::string value;
  for (const auto& [has, name] : {std::pair{qkv, "qkv"}, {output, "output"}, {ffn, "ffn"}})
    if (has) value.append(value.empty() ? "" : "+").append(name);
  return value.empty() ? "none" : value;
}

std::string head_text(const AttentionSpec& attention) {
  if (attention.rotary)
    return concat("heads of ", attention.head_dim, " elements that are not width / heads");
  return concat("pruned attention heads (", attention.heads, " of ", attention.head_dim,
                " elements); feed-forward columns and layers may be pruned");
}

const char* norm_text(Norm kind) {
  switch (kind) {
    case Norm::layer:
      return "layer norm (--task llama trains RMS norm)";
    case Norm::rms:
      return "RMS norm (--task llama)";
  }
  return enum_name(kind);
}

const char* placement_name(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::before:
      return "before";
    case NormPlacement::after:
      return "after";
    case NormPlacement::on_output:
      return "on-output";
    case NormPlacement::sandwich:
      return "sandwich";
  }
  return "unknown";
}

const char* placement_text(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::before:
      return "pre-norm layers (--transformer-norm pre)";
    case NormPlacement::after:
      return "post-norm layers (--transformer-norm post)";
    case NormPlacement::on_output:
      return "norms of the outputs of blocks (norm_outputs)";
    case NormPlacement::sandwich:
      return "norms of the inputs and outputs of blocks (sandwich_norm)";
  }
  return "unknown";
}

std::string positions_of(PositionTable table, bool rotary, bool relative) {
  switch (table) {
    case PositionTable::none:
      return relative ? "relative" : rotary ? "rotary" : "none";
    case PositionTable::sinusoidal:
      return rotary ? "sinusoidal+rotary" : "sinusoidal";
    case PositionTable::fairseq:
      return rotary ? "fairseq+rotary" : "fairseq";
    case PositionTable::learned:
      return rotary ? "learned+rotary" : "learned";
  }
  return "unknown";
}

// Structured bindings name all fields: a new one does not compile until it is here. Left out are
// the sizes and dropouts that every format writes, what the architecture decides, and the sharing
// of layers, since formats have a tensor for each layer.
void add_stack(const StackSpec& spec, PositionTable table, std::vector<Setting>& to) {
  const auto& [stack, width, sharing, norm, attention, feed_forward, causal, cross_attention,
               dropout, depth_scaled_init, residual_scale] = spec;
  const auto& [kind, placement, norm_bias, first_norm, epsilon] = norm;
  const auto& [heads, key_heads, head_dim, qkv_bias, output_bias, full_first, attention_dropout,
               rotary, qk_norm, no_rope_interval, attention_scale, score_cap, window, full_interval,
               window_rotary, relative] = attention;
  const auto& [ffn_width, gated, activation, ffn_bias, ffn_dropout] = feed_forward;
  const auto& [theta, factor, original_positions, low_turns, high_turns, by, magnitude, growth] =
      rotary.value_or(RotaryAngles{});
  const std::string biases = biases_of(qkv_bias, output_bias, ffn_bias);
  const std::string positions = positions_of(table, rotary.has_value(), relative.has_value());
  const bool usual_yarn =
      low_turns == kYarnSlow && high_turns == kYarnFast && magnitude == yarn_magnitude(factor);
  const char* scaling = by == RopeScaling::yarn   ? (usual_yarn ? "yarn" : "yarn+constants")
                        : factor == 1             ? "none"
                        : original_positions == 0 ? "linear"
                                                  : "llama3";
  to.push_back({"norm", enum_name(kind), norm_text(kind)});
  to.push_back({"positions", positions, concat(positions, " positions")});
  to.push_back({"feed-forward",
                !gated                           ? "plain"
                : activation == Activation::silu ? "gated"
                : activation == Activation::gelu ? "geglu"
                                                 : "exact-geglu",
                !gated ? "a feed-forward without a gate (--task llama trains SwiGLU)"
                : activation == Activation::silu ? "SwiGLU"
                : activation == Activation::gelu ? "GEGLU"
                                                 : "GEGLU with the exact GELU"});
  to.push_back({"norm placement", placement_name(placement), placement_text(placement)});
  to.push_back({"norm_bias", norm_bias ? "yes" : "no", "norms without biases"});
  to.push_back({"first_norm", first_norm ? "yes" : "no", "a first block without norm"});
  to.push_back({"qk_norm", enum_name(qk_norm),
                qk_norm == QkNorm::none
                    ? "queries and keys without norms"
                    : concat("norms of queries and keys (qk_norm ", enum_name(qk_norm), ")")});
  to.push_back({"head_width", heads * head_dim == width ? "width/heads" : concat(head_dim),
                head_text(attention)});
  to.push_back({"heads", concat(heads), {}, true});
  to.push_back({"kv_heads", key_heads == heads ? "heads" : concat(key_heads)});
  to.push_back({"biases", biases,
                biases == "none" ? "linear layers without biases"
                                 : concat("biases of linear layers (", biases, ")")});
  to.push_back({"rope_scaling", scaling, "scaled rotary positions (rope_factor)"});
  to.push_back({"rope_theta", rotary ? decimal_of(theta) : "none"});
  to.push_back({"rope_query_growth", growth == 0 ? "none" : decimal_of(growth),
                "queries that grow with their positions (rope_query_growth)"});
  to.push_back({"no_rope_interval", concat(no_rope_interval)});
  // "all", or the interval of the layers without it.
  to.push_back({"sliding_window",
                window == 0          ? "none"
                : full_interval == 0 ? "all"
                                     : concat(full_interval),
                concat("a window of attention (sliding_window ", window, ")")});
  to.push_back({"rope_local_theta", window_rotary ? decimal_of(window_rotary->theta) : "none",
                "other rotary positions in layers with a window (rope_local_theta)"});
  to.push_back({"attention_scale", attention_scale == 0 ? "usual" : factor_text(attention_scale)});
  to.push_back({"attention_soft_cap", cap_text(score_cap)});
  to.push_back({"residual_scale", factor_text(residual_scale)});
  to.push_back({"activation", enum_name(activation)});
  to.push_back({"norm_epsilon", decimal_of(epsilon)});
}

bool has_word(const std::string& word, std::string_view words) {
  return concat(" ", words, " ").find(concat(" ", word, " ")) != std::string::npos;
}

// The first setting of `settings` that the form does not have, or their number; `refused` says it.
size_t first_refused(const std::vector<Setting>& settings, const Form& form, std::string& refused) {
  static const std::vector<Setting> plain = settings_of(ModelSpec{});
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    const auto named = [&](const auto& each) { return each.name == setting.name; };
    const Setting& first = *std::find_if(settings.begin(), settings.end(), named);
    if (first.value != setting.value) {
      refused = concat("an encoder with another ", setting.name, " than the decoder");
      return i;
    }
    if (setting.every_format) continue;
    const auto allowed = std::find_if(form.begin(), form.end(), [&](const Allowed& each) {
      return each.setting == setting.name;
    });
    const std::string_view values = allowed != form.end()
                                        ? allowed->values
                                        : std::find_if(plain.begin(), plain.end(), named)->value;
    if (values == "*" || has_word(setting.value, values)) continue;
    refused = !setting.text.empty() ? setting.text
                                    : concat(setting.name, " ", setting.value, ", it has ", values);
    return i;
  }
  return settings.size();
}

}  // namespace

std::vector<Setting> settings_of(const ModelSpec& spec) {
  const auto& [architecture, vocabulary, max_positions, encoder, decoder, embedding, output, head] =
      spec;
  const auto& [scale, positions, shared, own_sources, dropout, embedding_norm, token_types] =
      embedding;
  const auto& [tied, output_bias, divisor, rows, soft_cap] = output;
  const auto& [head_kind, pooler, of_class, pooling, head_dropout] = head;
  std::vector<Setting> settings{{"architecture", enum_name(architecture),
                                 concat("a model with --arch ", enum_name(architecture))}};
  add_stack(decoder, positions, settings);
  settings.push_back({"source_vocabulary", own_sources > 0 ? "own" : "shared",
                      concat(own_sources > 0 ? "a" : "no",
                             " vocabulary that sources have alone (source_vocabulary)")});
  settings.push_back(
      {"embeddings",
       tied && shared     ? "tied"
       : !tied && !shared ? "separate"
       : shared           ? "shared"
                          : "output",
       concat(shared ? "an output matrix that is not the embeddings" : "separate embeddings",
              " (--tied-embeddings-all off)")});
  const double root = std::sqrt(static_cast<double>(decoder.width));
  settings.push_back({"embedding_scale", scale == root ? "sqrt(width)" : factor_text(scale)});
  settings.push_back({"embedding_norm", embedding_norm ? "yes" : "no",
                      concat(embedding_norm ? "" : "no ",
                             "norms of embeddings with learned positions (learned_positions)")});
  settings.push_back({"output_bias", output_bias ? "yes" : "no"});
  settings.push_back({"logits_divisor", divisor == root ? "sqrt(width)" : factor_text(divisor)});
  settings.push_back({"logits_soft_cap", cap_text(soft_cap)});
  settings.push_back({"token_types", token_types > 0 ? "yes" : "no"});
  settings.push_back({"head", enum_name(head_kind)});
  settings.push_back({"pooler", pooler ? "yes" : "no"});
  settings.push_back({"class", enum_name(of_class)});
  settings.push_back({"classifier_pooling", enum_name(pooling)});
  if (encoder) add_stack(*encoder, positions, settings);
  return settings;
}

Form llama_form(const LlamaForm& parts) {
  const auto factor = [&](const char* usual) { return parts.scaled ? "*" : usual; };
  return {{"architecture", "decoder-lm"},
          {"norm", "rms"},
          {"positions", "rotary"},
          {"feed-forward", parts.gemma ? "geglu" : "gated"},
          {"norm placement", placement_name(parts.norms)},
          {"qk_norm", enum_name(parts.qk_norm)},
          {"head_width", parts.any_head_width ? "*" : "width/heads"},
          {"biases", parts.biases},
          {"kv_heads", "*"},
          {"rope_scaling", parts.rope_scaling},
          {"rope_theta", "*"},
          {"rope_query_growth", parts.query_growth},
          {"no_rope_interval", parts.no_rope_interval},
          {"sliding_window", parts.window},
          {"rope_local_theta", parts.local_theta},
          {"attention_scale", factor(parts.attention_scale)},
          {"residual_scale", factor("1")},
          {"attention_soft_cap", parts.soft_caps},
          {"logits_soft_cap", parts.soft_caps},
          {"embedding_scale", parts.gemma ? "sqrt(width)" : factor("1")},
          {"logits_divisor", factor("1")},
          {"activation", parts.gemma ? "gelu" : "silu"},
          {"norm_epsilon", "*"},
          {"embeddings", "*"},
          {"output_bias", "no"}};
}

Match match(const ModelSpec& spec, const Expressible& expressible) {
  const std::vector<Setting> settings = settings_of(spec);
  Match nearest;
  size_t reached = 0;
  for (size_t i = 0; i < expressible.forms.size(); ++i) {
    std::string refused;
    const size_t at = first_refused(settings, expressible.forms[i], refused);
    if (at == settings.size()) return {static_cast<int>(i)};
    if (i > 0 && at <= reached) continue;
    reached = at;
    nearest.refused = std::move(refused);
  }
  return nearest;
}

void cannot_express(const char* format, const std::string& setting) {
  fail(ErrorCode::unsupported, kOrigin, format, " cannot express ", setting);
}

}  // namespace trafo::interop
