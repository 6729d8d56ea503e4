#include "engine/formats/onnx/onnx_int8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/status.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {
namespace {

// The output that value `i` of a matrix belongs to.
size_t output_of(size_t i, int64_t columns, bool by_column) {
  const auto width = static_cast<size_t>(columns);
  return by_column ? i % width : i / width;
}

std::vector<float> scales_of(std::span<const float> values, int64_t columns, bool by_column) {
  const auto width = static_cast<size_t>(columns);
  std::vector<float> scales(by_column ? width : values.size() / width);
  for (size_t i = 0; i < values.size(); ++i) {
    float& largest = scales[output_of(i, columns, by_column)];
    largest = std::max(largest, std::abs(values[i]));
  }
  for (float& scale : scales)
    scale = scale == 0 ? 1 : std::max(scale / kOnnxCodes, std::numeric_limits<float>::min());
  return scales;
}

}  // namespace

OnnxCodes to_onnx_codes(std::span<const float> values, int64_t columns, bool by_column) {
  OnnxCodes stored{{}, scales_of(values, columns, by_column)};
  stored.codes.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float steps = values[i] / stored.scales[output_of(i, columns, by_column)];
    stored.codes.push_back(std::clamp<float>(std::nearbyint(steps), -kOnnxCodes, kOnnxCodes));
  }
  return stored;
}

std::vector<float> from_onnx_codes(const OnnxCodes& stored, int64_t columns, bool by_column) {
  std::vector<float> values(stored.codes.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = stored.codes[i] * stored.scales.at(output_of(i, columns, by_column));
  return values;
}

void check_onnx_codes(const std::string& label, std::span<const float> original,
                      std::span<const float> read, int64_t columns, bool by_column) {
  constexpr double kRounded = 1.001;  // of the arithmetic in float32
  require(original.size() == read.size(), ErrorCode::internal, kOrigin, label, " has ", read.size(),
          " values instead of ", original.size());
  const std::vector<float> scales = scales_of(original, columns, by_column);
  for (size_t i = 0; i < original.size(); ++i) {
    const double gap = std::abs(static_cast<double>(read[i]) - static_cast<double>(original[i]));
    require(gap <= scales[output_of(i, columns, by_column)] / 2 * kRounded, ErrorCode::corrupt_file,
            kOrigin, label, ": value ", i, " was read as ", read[i], ", it is ", original[i]);
  }
}

}  // namespace trafo::interop
