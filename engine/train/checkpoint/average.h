// Checkpoint averaging (Vaswani et al., arXiv 1706.03762, section 6.1).
#pragma once

#include <filesystem>
#include <span>

namespace trafo {

// Writes the mean of the weights of several model.safetensors files, summed in float64 in the given
// order. The output file is written whole or not at all. INVALID_ARGUMENT if there is no file, or
// if a file differs from the first; the message names the tensor or the field of the configuration.
void average_models(std::span<const std::filesystem::path> models,
                    const std::filesystem::path& output);

}  // namespace trafo
