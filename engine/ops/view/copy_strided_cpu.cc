#include <cstring>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/view/view.h"

namespace trafo {

void copy_strided_cpu(ThreadPool& pool, const CopyStridedParams& params);

namespace {

constexpr int64_t kGrain = 1 << 15;  // elements a block
constexpr int64_t kTile = 16;  // edge of a tile of a transposition: 16 float32 are a cache line

struct Layout {
  int rank = 0;
  int64_t shape[kMaxRank];
  int64_t src[kMaxRank];
  int64_t dst[kMaxRank];
};

// Drops dimensions of size 1 and merges neighbours that are one progression on both sides.
Layout simplify(const CopyStridedParams& p) {
  Layout out;
  for (int i = 0; i < p.rank; ++i) {
    if (p.shape[i] == 1) continue;
    const int last = out.rank - 1;
    if (last >= 0 && out.src[last] == p.src_strides[i] * p.shape[i] &&
        out.dst[last] == p.dst_strides[i] * p.shape[i]) {
      out.shape[last] *= p.shape[i];
      out.src[last] = p.src_strides[i];
      out.dst[last] = p.dst_strides[i];
    } else {
      out.shape[out.rank] = p.shape[i];
      out.src[out.rank] = p.src_strides[i];
      out.dst[out.rank++] = p.dst_strides[i];
    }
  }
  if (out.rank == 0) {
    out.shape[0] = 1;
    out.src[0] = out.dst[0] = 1;
    out.rank = 1;
  }
  return out;
}

// Where row `index` of the dimensions [0, rank) starts on both sides.
void locate(const Layout& layout, int rank, int64_t index, int64_t& src, int64_t& dst) {
  src = dst = 0;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t at = index % layout.shape[i];
    index /= layout.shape[i];
    src += at * layout.src[i];
    dst += at * layout.dst[i];
  }
}

template <class T>
struct Copy {
  static void one(const T& src, T& dst) { dst = src; }
};

template <class T>
struct Add {
  static void one(const T& src, T& dst) { dst += src; }
};

template <>
struct Add<BFloat16> {
  static void one(const BFloat16& src, BFloat16& dst) {
    dst = BFloat16::from_float(dst.to_float() + src.to_float());
  }
};

template <class T, class Op>
void copy_row(const T* src, int64_t src_stride, T* dst, int64_t dst_stride, int64_t count) {
  if (src_stride == 1 && dst_stride == 1) {
    if constexpr (std::is_same_v<Op, Copy<T>>) {
      std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) Op::one(src[i], dst[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) Op::one(src[i * src_stride], dst[i * dst_stride]);
  }
}

template <class T, class Op>
void run(ThreadPool& pool, const Layout& layout, const T* src, T* dst) {
  const int last = layout.rank - 1;
  const int64_t width = layout.shape[last];
  const int64_t src_step = layout.src[last], dst_step = layout.dst[last];
  int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= layout.shape[i];

  // A transposition, the last dimension far apart in src and another dense there: tiles of both
  // keep cache lines whole.
  int dense = -1;
  for (int i = 0; i < last; ++i)
    if (src_step != 1 && layout.src[i] == 1) dense = i;
  if (dense >= 0) {
    Layout outer = layout;  // all dimensions but the two, then one over bands of the dense one
    outer.rank = 0;
    for (int i = 0; i < last; ++i) {
      if (i == dense) continue;
      outer.shape[outer.rank] = layout.shape[i];
      outer.src[outer.rank] = layout.src[i];
      outer.dst[outer.rank++] = layout.dst[i];
    }
    const int64_t height = layout.shape[dense], dst_dense = layout.dst[dense];
    const int64_t bands = (height - 1) / kTile + 1;
    const int64_t grain = std::max<int64_t>(1, kGrain / (kTile * width));
    parallel_for_range(pool, rows / height * bands, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        int64_t src_at, dst_at;
        locate(outer, outer.rank, item / bands, src_at, dst_at);
        const int64_t first = item % bands * kTile, past = std::min(height, first + kTile);
        for (int64_t tile = 0; tile < width; tile += kTile) {
          const int64_t stop = std::min(width, tile + kTile);
          for (int64_t i = first; i < past; ++i)
            copy_row<T, Op>(src + src_at + i + tile * src_step, src_step,
                            dst + dst_at + i * dst_dense + tile * dst_step, dst_step, stop - tile);
        }
      }
    });
    return;
  }

  if (rows == 1) {
    parallel_for_range(pool, width, kGrain, [&](int64_t begin, int64_t end) {
      copy_row<T, Op>(src + begin * src_step, src_step, dst + begin * dst_step, dst_step,
                      end - begin);
    });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / width);
  parallel_for_range(pool, rows, grain, [&](int64_t begin, int64_t end) {
    // The dimension above the rows runs without a division an element.
    const int64_t height = layout.shape[last - 1];
    for (int64_t row = begin; row < end;) {
      int64_t src_at, dst_at;
      locate(layout, last, row, src_at, dst_at);
      const int64_t count = std::min(end - row, height - row % height);
      for (int64_t i = 0; i < count; ++i)
        copy_row<T, Op>(src + src_at + i * layout.src[last - 1], src_step,
                        dst + dst_at + i * layout.dst[last - 1], dst_step, width);
      row += count;
    }
  });
}

template <class T>
void run(ThreadPool& pool, const Layout& layout, const CopyStridedParams& p) {
  const T* src = static_cast<const T*>(p.src);
  T* dst = static_cast<T*>(p.dst);
  if (p.accumulate)
    run<T, Add<T>>(pool, layout, src, dst);
  else
    run<T, Copy<T>>(pool, layout, src, dst);
}

}  // namespace

void copy_strided_cpu(ThreadPool& pool, const CopyStridedParams& params) {
  for (int i = 0; i < params.rank; ++i)
    if (params.shape[i] == 0) return;
  const Layout layout = simplify(params);
  switch (params.dtype) {
    case DType::f32:
      return run<float>(pool, layout, params);
    case DType::f64:
      return run<double>(pool, layout, params);
    case DType::bf16:
      return run<BFloat16>(pool, layout, params);
    case DType::i32:
      require(!params.accumulate, ErrorCode::dtype_mismatch, "copy",
              "only floating-point tensors can be added to");
      return run<int32_t>(pool, layout, params);
  }
}

}  // namespace trafo
