#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/kv_cache/kv_cache.h"

namespace trafo {
namespace {

constexpr int64_t kBlockBytes = 64 << 10;  // copied by one block of work, at least a token

}  // namespace

void kv_cache_append_cpu(ThreadPool& pool, const KvCacheAppendParams& p) {
  for (int64_t t = 0; t < p.tokens; ++t)
    require(p.slots[t] >= 0 && p.slots[t] < p.cache_rows, ErrorCode::invalid_argument,
            "kv_cache_append", "the slot of token ", t, " is ", p.slots[t], ", the cache has ",
            p.cache_rows);
  const int64_t size = static_cast<int64_t>(dtype_size(p.dtype));
  const int64_t bytes = p.columns * size;
  if (bytes == 0) return;
  const auto* x = static_cast<const std::byte*>(p.x);
  auto* cache = static_cast<std::byte*>(p.cache);
  const int64_t grain = std::max<int64_t>(1, kBlockBytes / bytes);
  parallel_for_range(pool, p.tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      std::memcpy(cache + p.slots[t] * p.cache_stride * size, x + t * p.x_stride * size,
                  static_cast<size_t>(bytes));
  });
}

}  // namespace trafo
