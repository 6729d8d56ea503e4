// Adapters as directories of Hugging Face's PEFT: adapter_config.json and
// adapter_model.safetensors. The tensors are named after the modules of MarianMTModel,
// LlamaForCausalLM or GPT2LMHeadModel, by the kind of the model, so that PEFT finds them in a base
// that export_model() has written in that form.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "engine/models/adapter.h"
#include "engine/models/model.h"

namespace trafo {

// Writes A and B as float32. The directory is created if needed, and an adapter in it is replaced.
// The metadata of the tensors has the configuration of the base and checksums of its vocabulary and
// weights.
// INVALID_ARGUMENT: the model has no adapter, it is merged, or parameters that are not in the
// adapter are trainable, which the files would lose. NON_FINITE names a tensor.
void save_adapter(Context& context, const Model& model, const std::filesystem::path& directory);

// Adds the adapter of such a directory, ours or PEFT's, as add_adapter() does. INVALID_ARGUMENT,
// naming what differs, for an adapter of another base: another configuration, vocabulary or weights
// (of a model with int8 weights, norms and biases alone are compared). UNSUPPORTED names what
// adapters here do not have: DoRA, biases, other ranks in some modules, embeddings. CORRUPT_FILE
// and NOT_FOUND name the file. After an error the model is unchanged.
void load_adapter(Context& context, Model& model, const std::filesystem::path& directory);

// adapted_model() with the adapter of such a directory. Errors as of load_adapter() and
// adapted_model(). `checksums`: of the base; computed if they are needed and not there yet.
std::unique_ptr<Model> load_adapted(Context& context, const Model& base,
                                    const std::filesystem::path& directory,
                                    std::optional<BaseChecksums>& checksums);

}  // namespace trafo
