#include "capi/src/handle_table.h"

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "engine/core/status.h"
#include "engine/os/threads.h"

namespace trafo::capi {
namespace {

constexpr int kShardBits = 4;
constexpr size_t kShards = size_t{1} << kShardBits;

// Multiplicative hashing (Knuth, TAOCP 3, 6.4): the upper bits depend on the whole value.
constexpr uint64_t spread(uint64_t value) {
  return value * 0x9E37'79B9'7F4A'7C15;
}

// A shard gives out numbers below this. With the shard in the lowest bits they have all the bits of
// a handle's number.
constexpr uint64_t kLastNumber = uint64_t{1} << (kHandleNumberBits - kShardBits);

// How many forks lie between the process that loaded the library and this one.
std::atomic<uint32_t> forks{0};

struct Entry {
  void* object;
  HandleKind kind;
  uint32_t made_after = forks.load(std::memory_order_relaxed);
  uint32_t calls = 0;            // calls in flight that use it
  void (*end)(void*) = nullptr;  // set if it was freed while in use; the last call runs it
};

struct alignas(64) Shard {
  std::mutex mutex;
  uint64_t next_number;
  std::unordered_map<const void*, Entry> live;

  // Null: freed, never made, or of another kind.
  Entry* find(const void* handle, HandleKind kind) {
    const auto found = live.find(handle);
    return found != live.end() && found->second.kind == kind && !found->second.end ? &found->second
                                                                                   : nullptr;
  }
};

// Never destroyed: handles may be freed while the process ends.
std::array<Shard, kShards>& shards() {
  static auto* all = [] {
    auto* made = new std::array<Shard, kShards>;
    // Two copies of the library must not give out the same number. Each begins at its own address,
    // spread over 50 bits. A program in WebAssembly has one.
    const uint64_t first = kWideHandles ? spread(reinterpret_cast<uintptr_t>(made)) >> 14 : 0;
    for (Shard& shard : *made) shard.next_number = first + 1;
    return made;
  }();
  return *all;
}

Shard& shard_of(const void* handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  return shards()[(value >= kHandlePattern ? value : value >> 6) % kShards];
}

// Each thread adds to one shard, so threads seldom share a mutex. This is not a thread_local: glibc
// ends the process if there is no memory for the first use of one.
size_t home_shard() {
  return spread(std::hash<std::thread::id>{}(std::this_thread::get_id())) >> 60;
}

// The child must not inherit a mutex that another thread of the parent holds.
[[maybe_unused]] const int kForkHandlers = os::call_at_fork(
    [] {
      for (Shard& shard : shards()) shard.mutex.lock();
    },
    [] {
      for (Shard& shard : shards()) shard.mutex.unlock();
    },
    [] {
      forks.fetch_add(1, std::memory_order_relaxed);
      for (Shard& shard : shards()) shard.mutex.unlock();
    });

bool uses_context(HandleKind kind) {
  return kind == HandleKind::context || kind == HandleKind::tensor || kind == HandleKind::adamw ||
         kind == HandleKind::model || kind == HandleKind::trainer || kind == HandleKind::generator;
}

bool is_orphan(const Entry& entry) {
  return uses_context(entry.kind) && entry.made_after != forks.load(std::memory_order_relaxed);
}

}  // namespace

void* register_object(void* object, HandleKind kind) {
  const size_t index = home_shard();
  Shard& shard = shards()[index];
  std::lock_guard lock(shard.mutex);
  require(shard.next_number < kLastNumber, ErrorCode::internal, "trafo",
          "this process has created so many handles that no number is left");
  void* handle = to_handle(shard.next_number * kShards + index);
  shard.live.emplace(handle, Entry{.object = object, .kind = kind});
  ++shard.next_number;
  return handle;
}

void register_memory(void* memory, HandleKind kind) {
  Shard& shard = shard_of(memory);
  std::lock_guard lock(shard.mutex);
  shard.live.insert_or_assign(memory, Entry{.object = memory, .kind = kind});
}

void* find_object(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  const Entry* entry = shard.find(handle, kind);
  return entry ? entry->object : nullptr;
}

bool is_orphaned(const void* handle, HandleKind kind) noexcept {
  if (forks.load(std::memory_order_relaxed) == 0) return false;
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  const Entry* entry = shard.find(handle, kind);
  return entry && is_orphan(*entry);
}

void* begin_use(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  Entry* entry = shard.find(handle, kind);
  if (!entry) return nullptr;
  ++entry->calls;
  return entry->object;
}

void end_use(const void* handle) noexcept {
  Shard& shard = shard_of(handle);
  Entry ended;
  {
    std::lock_guard lock(shard.mutex);
    const auto found = shard.live.find(handle);
    if (--found->second.calls > 0 || !found->second.end) return;
    ended = found->second;
    shard.live.erase(found);
  }
  ended.end(ended.object);
}

void end_handle(const void* handle, HandleKind kind, void (*end)(void*)) noexcept {
  if (!handle) return;
  Shard& shard = shard_of(handle);
  bool orphaned = false;
  void* object = nullptr;
  {
    std::lock_guard lock(shard.mutex);
    Entry* entry = shard.find(handle, kind);
    if (!entry) return;
    orphaned = is_orphan(*entry);
    if (!orphaned && entry->calls > 0) {
      entry->end = end;
      return;
    }
    object = entry->object;
    shard.live.erase(handle);
  }
  // An orphan is leaked: its destructor would wait for threads that are not in this process.
  if (!orphaned) end(object);
}

}  // namespace trafo::capi
