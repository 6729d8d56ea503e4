// Tensors of which each rank has a part: to and from the memory of rank 0.
#pragma once

#include <cstddef>
#include <span>

#include "engine/dist/communicator.h"
#include "engine/runtime/context.h"

namespace trafo {

// `begins`: the first byte of each rank's part in the whole, and the end. Both are collective.

// Copies all parts to `whole`, which is used on rank 0 alone.
void gather_to_root(Context& context, Communicator& group, const Tensor& part,
                    std::span<const size_t> begins, std::span<std::byte> whole);
// The other way.
void scatter_from_root(Context& context, Communicator& group, std::span<const std::byte> whole,
                       std::span<const size_t> begins, const Tensor& part);

}  // namespace trafo
