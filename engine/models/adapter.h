// LoRA adapters of a model: adding, merging, removing. formats/peft/peft.h has their files.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/models/model.h"

namespace trafo {

// Freezes the model, but for classifier_parameters(), and adds parameters A and B to the adapter's
// targets. A is random, from the
// seed, and B is zero: the model computes what it did. A and B are trainable, but for a model with
// int8 weights, which cannot be trained. INVALID_ARGUMENT: the model cannot have this adapter, has
// one already, or is in use by a trainer.
void add_adapter(Context& context, Model& model, const AdapterConfig& adapter, uint64_t seed);

// A model that computes as `base` would with this adapter, with B zero and A of no values yet. It
// has the base's weights in the base's memory and cannot be trained: A, B and
// classifier_parameters() alone take memory. The values of the base must stay as they are.
// INVALID_ARGUMENT: as of add_adapter(). UNSUPPORTED: the base is trained with rounded values.
std::unique_ptr<Model> adapted_model(Context& context, const Model& base,
                                     const AdapterConfig& adapter);

// Drops the adapter; of a merged one, what unmerge_adapter() needs. The other parameters stay
// frozen. INVALID_ARGUMENT: the model has no adapter, or the model is in use by a trainer.
void remove_adapter(Context& context, Model& model);

// Adds scale * B A to the weights, in float32 (float64 for a float64 model), and drops A and B: the
// model is like one without an adapter. The earlier weights are kept in host memory. UNSUPPORTED:
// the model has int8 weights, or a base_precision.
void merge_adapter(Context& context, Model& model);
// Restores the earlier weights, bit for bit, and the adapter. INVALID_ARGUMENT: no adapter is
// merged, or the model is in use by a trainer.
void unmerge_adapter(Context& context, Model& model);

// A parameter with its adapter added, in the dtype of the master; without one as it is.
std::vector<std::byte> merged_value(Context& context, const ParameterStore& parameters, ParamId id);

// The same; of the outer factor of a matrix, the product of both factors.
std::vector<std::byte> whole_value(Context& context, const ParameterStore& parameters, ParamId id);

// The parameters of the classifier of an encoder with labels, which is trained beside an adapter:
// output, and of RoBERTa's head for texts also pooler. None of other models.
std::vector<ParamId> classifier_parameters(const Model& model);

// Identity of an adapter's base among models of the same shape: CRC-32 of its parameters without
// classifier_parameters(), in their order, each value rounded to bfloat16. A base that was frozen
// in bfloat16 has the checksums of the float32 one.
struct BaseChecksums {
  std::string all;      // empty for a model whose matrices have codes
  std::string vectors;  // of norms and biases alone
};
BaseChecksums base_checksums(const Context& context, const Model& model);

// The adapter that a file of the model says it has, if any; whether its tensors are there is not
// checked. CORRUPT_FILE: the model cannot have it.
std::optional<AdapterConfig> read_adapter_config(const SafetensorsReader& reader,
                                                 const Model& model);
// INVALID_ARGUMENT, naming both, unless the file has the model's adapter, or none like the model.
void require_same_adapter(const SafetensorsReader& reader, const Model& model);

}  // namespace trafo
