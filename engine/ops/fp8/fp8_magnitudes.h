// Largest magnitudes that kernels find in what they write, so that a tensor need not be read once
// more for its FP8 scale.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/runtime/context.h"

namespace trafo::ops {

class Fp8Magnitudes {
 public:
  // Until it is destroyed, ops on this context record largest magnitudes. Does nothing unless they
  // are `wanted`, and on the CPU, whose kernels leave none. It takes memory of the context, which
  // has one at a time.
  Fp8Magnitudes(Context& context, bool wanted);

  // For the kernel that is about to write every element of `tensor`, as it is stored: raise what is
  // here to the bits of its largest magnitude as a float32. Null: nobody wants it.
  static uint32_t* place(const Context& context, const Tensor& tensor);
  // The same for a gradient. One that is added to has none.
  static uint32_t* place(const Context& context, const GradTarget& target);
  // The kernel that wrote `tensor` has left nothing at its place.
  static void forget(const Context& context, const Tensor& tensor);

  // Bits of the largest magnitude of x, in the memory of the device. Null if no kernel left it, or
  // x was written to since. Views with all elements have the magnitude of the tensor.
  static const uint32_t* find(const Context& context, const Tensor& x);
  // How often find() has found it.
  int64_t found() const { return found_; }

 private:
  struct Entry {
    std::weak_ptr<const Storage> storage;
    uint64_t version;
    const void* begin;
    int64_t count;
    const uint32_t* place;
  };
  // One for each tensor of a step. Behind the last one the largest is looked for as without.
  static constexpr int64_t kPlaces = 2048;

  Tensor places_;  // int32 [kPlaces], zeros at the beginning; undefined: not wanted
  int64_t used_ = 0, found_ = 0;
  std::unordered_map<const Storage*, Entry> entries_;
  std::optional<StepScope<Fp8Magnitudes*>> in_use_;
};

}  // namespace trafo::ops
