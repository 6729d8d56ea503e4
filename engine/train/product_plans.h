// The kernels that were measured for a run's matrix products, as a file of its run directory: a run
// that goes on uses the same ones, and so computes the same bits.
//
//   trafo-product-plans 1 CRC32
//   DEVICE AND LIBRARY
//   a line for each product: 16 numbers that say which, 8 hexadecimal ones that name the kernel
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/backend/product_tuner.h"

namespace trafo {

inline constexpr const char* kProductPlansFile = "product-plans";

std::string encode_product_plans(const ProductTuner& tuner);
// Hands the choices of `text` to the tuner. CORRUPT_FILE if it is damaged; UNSUPPORTED if they were
// measured on another kind of device or library. `path` is for the messages.
void decode_product_plans(ProductTuner& tuner, std::string_view text,
                          const std::filesystem::path& path);

// The same with files. Without one the tuner has no choices afterwards; none is written where
// nothing was measured, or one says so already.
void read_product_plans(ProductTuner& tuner, const std::filesystem::path& path);
void write_product_plans(const ProductTuner& tuner, const std::filesystem::path& path);

}  // namespace trafo
