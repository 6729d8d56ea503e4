// Backward of bias_dropout_residual with a norm on the device. Layer norm uses the same backward.
//
// total = gradient of `sum` = dsum + rstd (g - mean(g) - xhat mean(g xhat)), g = dnormed gamma;
// dresidual = total, dx = total * dropout factor. Two ways: rows that fit the registers of a block
// go through add_norm_rows_kernel, which reads everything once; other widths and misaligned buffers
// first get both means of every row (row_means_kernel), then work in tiles of columns
// (AddNormBody). Where no gradient comes through the norm there is no mean to wait for, and the
// tiles are the way for every width.
#pragma once

#include "engine/backend/cuda/device/dropout.cuh"
#include "engine/backend/cuda/device/rows.cuh"

namespace trafo::cuda {

template <class T>
struct AddNormBackwardArgs {
  const T* sum;
  const T* gamma;
  const float* mean;
  const float* rstd;
  const T* dsum;  // or null
  const T* dnormed;
  T* dx;         // or null
  T* dresidual;  // or null
  int64_t rows, width;
  bool accumulate_dx, accumulate_dresidual, dropping;
  DropoutArgs dropout;
  uint32_t* largest;  // place for the largest magnitude of dx, without dx of dresidual; or null
};

// dresidual and dx of V elements from `total`, which becomes dx.
template <class T, int V, bool kBranch>
__device__ __forceinline__ void write_add_norm(const AddNormBackwardArgs<T>& a, int64_t i,
                                               float (&total)[V], Largest<T>& seen) {
  if (a.dresidual) put_floats<T, V>(a.dresidual + i, total, a.accumulate_dresidual);
  if (a.largest && !a.dx) seen.see(from_floats<T, V>(total));
  if constexpr (kBranch) {
    if (a.dropping) {
      float factor[V];
      dropout_factors<V>(a.dropout, i, factor);
#pragma unroll
      for (int j = 0; j < V; ++j) total[j] *= factor[j];
    }
    if (!a.dx) return;
    put_floats<T, V>(a.dx + i, total, a.accumulate_dx);
    if (a.largest) seen.see(from_floats<T, V>(total));
  }
}

template <int V>
__device__ __forceinline__ void store_columns(float* out, const float (&in)[V]) {
#pragma unroll
  for (int j = 0; j < V; j += 4)
    *reinterpret_cast<float4*>(out + j) = {in[j], in[j + 1], in[j + 2], in[j + 3]};
}

// A row is one pack for each of Lanes threads; rows of a block are `blocks` steps apart, so that
// the sums over rows stay in registers to the end. Narrow rows share a block; a block of one row
// has only the warps that the row needs. The data of a thread's next rows is copied ahead into its
// own slots of shared memory: no barrier, and the reduction of one row overlaps the loads of the
// next.
inline constexpr int kAddNormStages = 3;
template <int Lanes>
inline constexpr int kAddNormThreads = Lanes < 256 ? 512 : Lanes;
template <int Lanes>
int add_norm_threads(int64_t packs) {
  constexpr int kThreads = kAddNormThreads<Lanes>;
  return kThreads == Lanes ? static_cast<int>((packs + 31) / 32 * 32) : kThreads;
}
constexpr int add_norm_slot_bytes(int threads, bool dsum) {
  return kAddNormStages * (dsum ? 3 : 2) * threads * 16;
}
// Of a thread. The sums of 8 columns take more than the sums of 4, and a third sum more than two.
template <class T, int Lanes, bool kBranch>
inline constexpr int kAddNormRegisters = sizeof(T) == 4 && !kBranch && Lanes == 512 ? 48 : 64;

template <class T, int Lanes, bool kBranch>
__global__ void __maxnreg__((kAddNormRegisters<T, Lanes, kBranch>))
    add_norm_rows_kernel(AddNormBackwardArgs<T> a, float* partials) {
  constexpr int V = kPackWidth<T>, kThreads = kAddNormThreads<Lanes>, kRows = kThreads / Lanes,
                kSums = kBranch ? 3 : 2;
  // With three sums there is no register for gamma.
  constexpr bool kGammaKept = !kBranch && Lanes >= 256, kFull = kGammaKept && V > 4;
  using Vector = Held<T, V>;
  extern __shared__ uint4 slots[];  // [stage][tensor][thread]
  __shared__ float2 shared[2][kThreads / 32];
  __shared__ uint32_t shared_largest[kThreads / 32];
  const WarpLargest largest{&shared_largest[threadIdx.x / 32]};
  largest.begin();
  const int threads = kRows == 1 ? static_cast<int>(blockDim.x) : kThreads;
  if constexpr (kRows == 1) clear_absent_warps<kThreads>(&shared[0][0], &shared[1][0]);
  const int tensors = a.dsum ? 3 : 2;
  const int lane = threadIdx.x % Lanes;
  const int column = lane * V;
  const bool inside = column < a.width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  const int group = threadIdx.x / Lanes;

  const auto slot = [&](int stage, int tensor) {
    return &slots[(stage * tensors + tensor) * threads + threadIdx.x];
  };
  // This thread's element of a row: `kept` up from turn to turn, as products of 64 bits are long;
  // but with three sums, or gamma of eight columns, there is no register for it.
  const auto element_of = [&](int64_t row, int64_t kept) {
    return kBranch || kFull ? row * a.width + column : kept;
  };
  const auto fetch = [&](int64_t row, int64_t kept, int stage) {
    if (inside && row < a.rows) {
      const int64_t i = element_of(row, kept);
      copy_ahead(slot(stage, 0), a.sum + i);
      copy_ahead(slot(stage, 1), a.dnormed + i);
      if (a.dsum) copy_ahead(slot(stage, 2), a.dsum + i);
    }
    end_copy_group();
  };
  int64_t element = (first + group) * a.width + column;
  const int64_t advance = step * a.width;
#pragma unroll
  for (int stage = 0; stage < kAddNormStages; ++stage)
    fetch(first + stage * step + group, element + stage * advance, stage);

  float sums[kSums][V] = {};
  Vector gamma{};  // kept, or from the cache each time
  if (kGammaKept && inside) gamma = load_held<T, V>(a.gamma + column);
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  float mean = 0, rstd = 0;
  if (first + group < a.rows) {
    mean = a.mean[first + group];
    rstd = a.rstd[first + group];
  }
  int stage = 0, parity = 0;
  // The same number of turns for every thread: barriers inside.
  for (int64_t base = first; base < a.rows; base += step) {
    const int64_t row = base + group;
    const bool there = inside && row < a.rows;
    float next_mean = 0, next_rstd = 0;
    if (row + step < a.rows) {
      next_mean = a.mean[row + step];
      next_rstd = a.rstd[row + step];
    }
    wait_copy_groups<kAddNormStages - 1>();
    float xhat[V], g[V];               // used where `there` only
    if constexpr (kBranch || kFull) {  // but unless they are set here the compiler spills
#pragma unroll
      for (int j = 0; j < V; ++j) xhat[j] = g[j] = 0;
    }
    float2 both = {0, 0};
    if (there) {
      if constexpr (!kGammaKept) gamma = load_held<T, V>(a.gamma + column);
      const Vector x = *reinterpret_cast<const Vector*>(slot(stage, 0));
      const Vector dy = *reinterpret_cast<const Vector*>(slot(stage, 1));
      float d[V], weight[V];
      to_floats<T>(x, xhat);
      to_floats<T>(dy, d);
      to_floats<T>(gamma, weight);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        xhat[j] = (xhat[j] - mean) * rstd;
        // Rounded before it is summed and before the mean is taken off, so that a constant g
        // cancels exactly.
        g[j] = __fmul_rn(d[j], weight[j]);
        both.x += g[j];
        both.y = fmaf(g[j], xhat[j], both.y);
        sums[0][j] = fmaf(d[j], xhat[j], sums[0][j]);
        sums[1][j] += d[j];
      }
    }
    both = row_sum2<Lanes>(both, reinterpret_cast<float*>(shared[parity]));
    Largest<T> seen;
    if (there) {
      const float mean_g = both.x * inverse_width, mean_gx = both.y * inverse_width;
      float total[V];
#pragma unroll
      for (int j = 0; j < V; ++j) total[j] = rstd * fmaf(-xhat[j], mean_gx, g[j] - mean_g);
      if (a.dsum) {
        float dsum[V];
        to_floats<T>(*reinterpret_cast<const Vector*>(slot(stage, 2)), dsum);
#pragma unroll
        for (int j = 0; j < V; ++j) total[j] += dsum[j];
      }
      write_add_norm<T, V, kBranch>(a, element_of(row, element), total, seen);
      if constexpr (kBranch) {
#pragma unroll
        for (int j = 0; j < V; ++j) sums[2][j] += total[j];
      }
    }
    if (a.largest) largest.see(seen);
    // The slot has been read by this thread, the only one that uses it.
    fetch(row + kAddNormStages * step, element + kAddNormStages * advance, stage);
    element += advance;
    stage = stage + 1 == kAddNormStages ? 0 : stage + 1;
    parity ^= 1;
    mean = next_mean;
    rstd = next_rstd;
  }

  if (a.largest) largest.leave(a.largest);
  if (!partials) return;
  wait_copy_groups<0>();
  float* out = partials + static_cast<int64_t>(blockIdx.x) * kSums * a.width;
  if constexpr (kRows == 1) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      if (inside) store_columns<V>(out + s * a.width + column, sums[s]);
    }
  } else {
    float* all = reinterpret_cast<float*>(slots);  // [kRows][Lanes * V], one sum after the other
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < V; ++j) all[group * (Lanes * V) + column + j] = sums[s][j];
      __syncthreads();
      for (int c = threadIdx.x; c < a.width; c += kThreads) {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum += all[r * (Lanes * V) + c];
        out[s * a.width + c] = sum;
      }
    }
  }
}

// means[row] = mean(g), mean(g xhat): what a gradient through the norm needs of the whole row.
inline constexpr int kMeansThreads = 256;
template <class T, int V>
__global__ void __launch_bounds__(kMeansThreads)
    row_means_kernel(AddNormBackwardArgs<T> a, float2* means) {
  __shared__ float2 shared[kMeansThreads / 32];
  const int64_t row = blockIdx.x, start = row * a.width;
  const float mean = a.mean[row], rstd = a.rstd[row];
  float2 both = {0, 0};
  for (int64_t column = threadIdx.x * V; column < a.width; column += kMeansThreads * V) {
    float x[V], dy[V], gamma[V];
    load_floats<T, V>(a.sum + start + column, x);
    load_floats<T, V>(a.dnormed + start + column, dy);
    load_floats<T, V>(a.gamma + column, gamma);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float g = __fmul_rn(dy[j], gamma[j]);
      both.x += g;
      both.y = fmaf(g, (x[j] - mean) * rstd, both.y);
    }
  }
  both = row_sum2<kMeansThreads>(both, reinterpret_cast<float*>(shared));
  const float count = static_cast<float>(a.width);
  if (threadIdx.x == 0) means[row] = {both.x / count, both.y / count};
}

// For tile_kernel. Sums: dgamma, dbeta, dbias. Without a norm only dsum comes in and the first two
// stay 0.
template <class T, int V, bool kNorm>
struct AddNormBody {
  AddNormBackwardArgs<T> a;
  const float2* means;
  uint32_t* largest;
  using Written = T;
  using Columns = Held<T, V>;  // of gamma
  __device__ Columns columns(int64_t column) const {
    return kNorm ? load_held<T, V>(a.gamma + column) : Columns{};
  }
  static constexpr int kTensors = kNorm ? 3 : 1;
  __device__ const T* source(int tensor) const {
    return tensor == kTensors - 1 ? a.dsum : tensor == 0 ? a.sum : a.dnormed;
  }
  template <int Sums>
  __device__ void finish(int64_t row, int64_t column, const Columns& gamma,
                         const Held<T, V> (&packs)[kTensors], float (&sums)[Sums][V],
                         Largest<T>& seen) const {
    float total[V];
    to_floats<T>(packs[kTensors - 1], total);
    if constexpr (kNorm) {
      const float mean = a.mean[row], rstd = a.rstd[row];
      const float2 of_row = means[row];
      float x[V], d[V], weight[V];
      to_floats<T>(packs[0], x);
      to_floats<T>(packs[1], d);
      to_floats<T>(gamma, weight);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float xhat = (x[j] - mean) * rstd;
        const float g = __fmul_rn(d[j], weight[j]);
        total[j] += rstd * fmaf(-xhat, of_row.y, g - of_row.x);
        sums[0][j] = fmaf(d[j], xhat, sums[0][j]);
        sums[1][j] += d[j];
      }
    }
    write_add_norm<T, V, true>(a, row * a.width + column, total, seen);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[Sums - 1][j] += total[j];
  }
};

}  // namespace trafo::cuda
