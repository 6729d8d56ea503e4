// Form of a LoRA adapter (Hu et al., arXiv 2106.09685): y = x W^T + (alpha / rank) (x A^T) B^T in
// the linear layers that `targets` names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/models/model_config.h"
#include "engine/nn/parameter_store.h"

namespace trafo {

class Model;

struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 16;
  // Names of adapter_targets(), in their order. Empty: all of them.
  std::vector<std::string> targets = {};

  double scale() const { return alpha / static_cast<double>(rank); }
  friend bool operator==(const AdapterConfig&, const AdapterConfig&) = default;
};

// The projections of a model that can have an adapter: query, key, value, output, gate, up and
// down, those that it has. Self-attention and cross-attention have the same names. GPT-2 and
// ModernBERT have one projection, qkv, in place of query, key and value, and ModernBERT gate_up in
// place of gate and up, because adapters of other programs treat them as one.
std::vector<std::string> adapter_targets(const Model& model);
// The adapter with its targets listed in order. INVALID_ARGUMENT names a rank, an alpha or a target
// that the model cannot have.
AdapterConfig validated(const Model& model, AdapterConfig adapter);

// Text form in model files.
inline constexpr const char* kAdapterKey = "adapter";  // of the metadata
std::string to_json(const AdapterConfig& adapter);
// CORRUPT_FILE, naming `label`.
AdapterConfig adapter_config_from_json(const std::string& text, const std::string& label);
// "rank 8, alpha 16, query value"; "no adapter".
std::string describe(const std::optional<AdapterConfig>& adapter);

// A projection with an adapter: rows of a matrix.
struct AdapterModule {
  std::string target;
  Place place;
  ColumnRange range;
};
// The projections of one matrix [.., columns], which may hold several.
struct AdapterSite {
  ParamId matrix;
  int64_t columns;
  std::vector<AdapterModule> modules;
};
// The sites of a validated adapter, from the declared parts of the model's matrices.
std::vector<AdapterSite> adapter_sites(const Model& model, const AdapterConfig& adapter);

// State of a model's adapter.
struct AdapterState {
  std::optional<AdapterConfig> config;  // none: there is no adapter, or it is merged
  // After merge_adapter(): the earlier values, in the dtype of the masters.
  struct Merged {
    AdapterConfig config;
    std::vector<std::pair<ParamId, std::vector<std::byte>>> base;
    std::vector<std::vector<std::byte>> adapter;  // A and B of each site
  };
  std::optional<Merged> merged;
};

}  // namespace trafo
