// ReLU, both forms of GELU and SiLU, and their gradients on the device, in the formulas of
// activation-inl.h.
#pragma once

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/activation/activation.h"

namespace trafo::cuda {

// T is the dtype in memory: what is rounded to bfloat16 afterwards takes the faster, less exact
// instructions.
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
  return 1.0f / (1.0f + expf(-x));
}

// The same and 1 minus it. In float32 both are exact in their digits: subtracting would cancel for
// large x.
struct SigmoidPair {
  float value, complement;
};
template <class T>
__device__ __forceinline__ SigmoidPair sigmoid_pair(float x) {
  if constexpr (sizeof(T) == 2) {
    const float s = sigmoid<T>(x);
    return {s, 1.0f - s};
  } else {
    const float e = expf(-fabsf(x)), large = 1.0f / (1.0f + e), small = e * large;
    return x < 0 ? SigmoidPair{small, large} : SigmoidPair{large, small};
  }
}

inline constexpr float kGeluScale = 2 * 0.79788456080286535588f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluBound = 64;  // flat long before; x^3 must not overflow

inline constexpr float kNormalBound = 40;  // beyond it the normal distribution's tail is 0

__device__ __forceinline__ float clamped(float x, float bound) {  // NaN stays NaN
  float low, both;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(low) : "f"(x), "f"(-bound));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(both) : "f"(low), "f"(bound));
  return both;
}

// Phi(x); erfc keeps the digits of a negative x.
__device__ __forceinline__ float normal_cumulative(float x) {
  return 0.5f * erfcf(-0.70710678118654752440f * x);
}

template <class T, Activation kind>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kind == Activation::relu) {
    return x < 0 ? 0.0f : x;  // NaN stays NaN
  } else if constexpr (kind == Activation::gelu) {
    const float v = fminf(fmaxf(x, -kGeluBound), kGeluBound);
    return x * sigmoid<T>(v * fmaf(v * v, kGeluScale * kGeluCubic, kGeluScale));
  } else if constexpr (kind == Activation::gelu_erf) {
    const float v = x < -kNormalBound ? -kNormalBound : x;  // -infinity gives 0
    return v * normal_cumulative(v);
  } else {
    return x * sigmoid<T>(x);
  }
}

// dy times the derivative at x.
template <class T, Activation kind>
__device__ __forceinline__ float activation_gradient(float x, float dy) {
  if constexpr (kind == Activation::relu) {
    return x <= 0 ? 0.0f : dy;
  } else if constexpr (kind == Activation::gelu) {
    const float v = clamped(x, kGeluBound), square = v * v;
    const SigmoidPair s = sigmoid_pair<T>(v * fmaf(square, kGeluScale * kGeluCubic, kGeluScale));
    const float derivative = fmaf(square, 3 * kGeluScale * kGeluCubic, kGeluScale);
    return dy * fmaf(s.value, v * s.complement * derivative, s.value);
  } else if constexpr (kind == Activation::gelu_erf) {
    const float v = clamped(x, kNormalBound);
    const float density = 0.39894228040143267794f * expf(-0.5f * v * v);
    return dy * fmaf(v, density, normal_cumulative(v));
  } else {
    const SigmoidPair s = sigmoid_pair<T>(x);
    return dy * fmaf(x * s.complement, s.value, s.value);
  }
}

// fn(std::integral_constant<Activation, kind>{}); false for any other value.
template <class Fn>
bool with_activation(Activation kind, Fn&& fn) {
  using std::integral_constant;
  switch (kind) {
    case Activation::relu:
      return fn(integral_constant<Activation, Activation::relu>{}), true;
    case Activation::gelu:
      return fn(integral_constant<Activation, Activation::gelu>{}), true;
    case Activation::silu:
      return fn(integral_constant<Activation, Activation::silu>{}), true;
    case Activation::gelu_erf:
      return fn(integral_constant<Activation, Activation::gelu_erf>{}), true;
  }
  return false;
}

}  // namespace trafo::cuda
