// The JSON header of a safetensors file: a parser that checks every rule of the format, and its
// exact inverse.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/strings/quote.h"
#include "engine/io/safetensors.h"

namespace trafo {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in payload order
  SafetensorsMetadata metadata;     // without "trafo." pairs
  bool has_checksums = false;
};

// `payload_bytes` is the number of bytes after the header. Errors: CORRUPT_FILE, UNSUPPORTED.
// `label` names the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t payload_bytes,
                                           const std::string& label,
                                           ElementTypes types = ElementTypes::ours);

// The header with checksums, padded with spaces so that the payload begins at a multiple of 8
// bytes. The tensors must be in payload order, with offsets and crc32 filled in.
std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const SafetensorsMetadata& metadata);

// The bytes of a tensor, or a negative number if the shape breaks a limit or the size overflows.
// `foreign`: see TensorInfo.
int64_t tensor_bytes(std::span<const int64_t> shape, DType dtype, std::string_view foreign = {});

bool is_valid_utf8_without_nul(std::string_view text);

inline constexpr std::string_view kOurPrefix = "trafo.";

}  // namespace trafo
