// Shapes and strides of at most eight dimensions, stored without an allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/core/checked.h"

namespace trafo {

inline constexpr int kMaxRank = 8;

// A short list of int64: dimensions (outermost first) or strides (in elements).
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values)
      : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values) {
    require(values.size() <= kMaxRank, ErrorCode::shape_mismatch, "shape", "rank ", values.size(),
            " is over the limit of ", kMaxRank);
    for (int64_t v : values) values_[size_++] = v;
  }

  int rank() const { return size_; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  int64_t back() const { return values_[size_ - 1]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  std::span<const int64_t> span() const { return {values_.data(), static_cast<size_t>(size_)}; }
  void push_back(int64_t v) {
    require(size_ < kMaxRank, ErrorCode::shape_mismatch, "shape", "more than ", kMaxRank,
            " dimensions");
    values_[size_++] = v;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

  std::string str() const {  // "[32, 128]"
    std::string text = "[";
    for (int i = 0; i < size_; ++i) text += (i ? ", " : "") + std::to_string(values_[i]);
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> values_{};
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;

// Product of the dimensions (1 for rank 0); negative dimensions and overflow are errors.
inline int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t d : shape) {
    require(d >= 0, ErrorCode::shape_mismatch, "shape", "negative dimension in ", shape.str());
    count = checked_mul(count, d, "shape");
  }
  return count;
}

inline Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step = checked_mul(step, shape[i] > 0 ? shape[i] : int64_t{1}, "shape");
  }
  return strides;
}

}  // namespace trafo
