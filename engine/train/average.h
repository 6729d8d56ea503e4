// The mean of models: what a run left at several updates is often better averaged than each alone
// (Vaswani et al., arXiv 1706.03762, section 6.1).
#pragma once

#include <filesystem>
#include <span>

namespace trafo {

// Writes the mean of the weights of model.safetensors files, added up in float64 in the given
// order, whole or not at all. INVALID_ARGUMENT for no file, and for one that is not like the first,
// naming the tensor or the field of the configuration.
void average_models(std::span<const std::filesystem::path> models,
                    const std::filesystem::path& output);

}  // namespace trafo
