// The models that a format can express: an allow list over the specification of a model.
//
// settings_of() lists everything that decides the function of a model and is no size. A format says
// which values of each it can express. A setting that it does not list must have the default of
// ModelSpec, so that every format refuses a new setting until it lists it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/models/spec.h"

namespace trafo::interop {

inline constexpr const char* kOrigin = "interop";

struct Setting {
  std::string_view name;
  std::string value;          // one word
  std::string text = {};      // of messages; empty: name and value
  bool every_format = false;  // has it, but one value for both stacks
};
// In the order of messages: of several that a format cannot express, the first is named. Settings
// of an encoder follow after the decoder's.
std::vector<Setting> settings_of(const ModelSpec& spec);

struct Allowed {
  std::string_view setting;
  std::string_view values;  // separated by spaces; "*": all
};
using Form = std::vector<Allowed>;

struct Expressible {
  const char* format;
  std::vector<Form> forms;  // alternatives, such as the classes of a library
};

// Llama's form, a decoder-lm with RMS norm, rotary positions and a gated feed-forward, with what a
// class of it has.
struct LlamaForm {
  const char* biases = "none";
  QkNorm qk_norm = QkNorm::none;
  NormPlacement norms = NormPlacement::before;
  bool any_head_width = false;
  const char *rope_scaling = "none", *no_rope_interval = "0";
  bool scaled = false;          // embeddings, scores, residuals and logits, by any factors
  const char* window = "none";  // see "sliding_window" of settings_of()
  bool gemma = false;           // GEGLU, and embeddings times the root of the width
  // Of Gemma: other rotary positions in the layers with a window, a factor of the scores.
  const char *local_theta = "none", *attention_scale = "usual";
  const char* soft_caps = "none";  // of scores and of logits
  const char* query_growth = "none";
};
Form llama_form(const LlamaForm& parts = {});

struct Match {
  int form = -1;             // the first that expresses the model; -1: none does
  std::string refused = {};  // the setting in the way of the form that comes nearest
};
Match match(const ModelSpec& spec, const Expressible& expressible);

// Throws UNSUPPORTED: `format` cannot express `setting` of the model.
[[noreturn]] void cannot_express(const char* format, const std::string& setting);

}  // namespace trafo::interop
