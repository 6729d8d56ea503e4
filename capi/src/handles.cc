#include "capi/src/handles.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <unordered_map>

namespace trafo::capi {
namespace {

// Sharded by address, so that threads with contexts of their own seldom meet.
constexpr size_t kShards = 16;

// Of this process: how often it was forked from one that had the library.
std::atomic<uint32_t> forks{0};

struct Entry {
  HandleKind kind;
  uint32_t made_after = forks.load(std::memory_order_relaxed);
  uint32_t calls = 0;            // that use it now
  void (*end)(void*) = nullptr;  // set: it was freed meanwhile, and the last of them ends it
};

struct Shard {
  std::mutex mutex;
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
  static auto* all = new std::array<Shard, kShards>;
  return *all;
}

Shard& shard_of(const void* handle) {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  return shards()[(address >> 6) % kShards];
}

// No thread of the parent may hold a lock that the child would wait for.
[[maybe_unused]] const int kForkHandlers = pthread_atfork(
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
         kind == HandleKind::model || kind == HandleKind::trainer;
}

bool is_orphan(const Entry& entry) {
  return uses_context(entry.kind) && entry.made_after != forks.load(std::memory_order_relaxed);
}

// What is returned when there is no memory for an error object.
trafo_error& out_of_memory_error() {
  static auto* error = new trafo_error{ErrorCode::out_of_memory, "", "out of memory"};
  return *error;
}
// Made while the library loads, when there still is memory.
[[maybe_unused]] const trafo_error* const kPrepared = &out_of_memory_error();

}  // namespace

void register_handle(const void* handle, HandleKind kind) {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  shard.live.insert_or_assign(handle, Entry{.kind = kind});
}

bool is_live(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  return shard.find(handle, kind) != nullptr;
}

bool is_orphaned(const void* handle, HandleKind kind) noexcept {
  if (forks.load(std::memory_order_relaxed) == 0) return false;
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  const Entry* entry = shard.find(handle, kind);
  return entry && is_orphan(*entry);
}

bool begin_use(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  Entry* entry = shard.find(handle, kind);
  if (!entry) return false;
  ++entry->calls;
  return true;
}

void end_use(const void* handle) noexcept {
  Shard& shard = shard_of(handle);
  void (*end)(void*) = nullptr;
  {
    std::lock_guard lock(shard.mutex);
    const auto found = shard.live.find(handle);
    if (--found->second.calls > 0 || !found->second.end) return;
    end = found->second.end;
    shard.live.erase(found);
  }
  end(const_cast<void*>(handle));
}

void end_handle(void* handle, HandleKind kind, void (*end)(void*)) noexcept {
  if (!handle) return;
  Shard& shard = shard_of(handle);
  bool orphaned = false;
  {
    std::lock_guard lock(shard.mutex);
    Entry* entry = shard.find(handle, kind);
    if (!entry) return;
    orphaned = is_orphan(*entry);
    if (!orphaned && entry->calls > 0) {
      entry->end = end;
      return;
    }
    shard.live.erase(handle);
  }
  // An orphan stays: taking it apart would wait for threads that are not in this process.
  if (!orphaned) end(handle);
}

Call::~Call() {
  if (holds_) turns_of(holds_).end();
  for (size_t i = 0; i < in_use_count_; ++i) end_use(in_use_[i]);
  for (const void* handle : more_in_use_) end_use(handle);
}

void Call::keep(const void* handle) const {
  if (in_use_count_ < in_use_.size()) {
    in_use_[in_use_count_++] = handle;
    return;
  }
  try {
    more_in_use_.push_back(handle);
  } catch (...) {
    end_use(handle);
    throw;
  }
}

void Call::use(const std::shared_ptr<Context>& context, CallsBack calls_back) const {
  if (holds_) return;
  if (!turns_of(context).begin(calls_back == CallsBack::yes))
    refuse(
        "the context is at work on another thread, in a call that may call back; wait for its end, "
        "or use a context of your own");
  holds_ = context;
}

void* give_memory(size_t bytes, HandleKind kind) {
  void* memory = std::calloc(1, bytes);
  if (!memory) throw std::bad_alloc();
  try {
    register_handle(memory, kind);
  } catch (...) {
    std::free(memory);
    throw;
  }
  return memory;
}

void free_memory(void* memory, HandleKind kind) noexcept {
  end_handle(memory, kind, [](void* ended) { std::free(ended); });
}

trafo_error* make_error(ErrorCode code, const char* origin, const char* message) noexcept {
  try {
    // Parts of it may come from a file, and it may go to a terminal.
    std::string shown = message;
    std::replace_if(
        shown.begin(), shown.end(),
        [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f; },
        '?');
    return new_handle<trafo_error>(code, std::string(origin), std::move(shown));
  } catch (...) {
    return &out_of_memory_error();
  }
}

ErrorCode code_of(const std::system_error& error) noexcept {
  if (error.code() == std::errc::not_enough_memory ||
      error.code() == std::errc::resource_unavailable_try_again)
    return ErrorCode::out_of_memory;
  const bool files = dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
  return files ? ErrorCode::io : ErrorCode::internal;
}

bool is_live_error(const trafo_error* error) noexcept {
  return error == &out_of_memory_error() || is_live(error, HandleKind::error);
}

char* copy_string(std::string_view text) {
  auto* copy = static_cast<char*>(give_memory(text.size() + 1, HandleKind::string));
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

trafo_tensor* give_tensor(const std::shared_ptr<Context>& owner, Tensor tensor) {
  return new_handle<trafo_tensor>(owner, std::move(tensor));
}

trafo_tensor* give_tensor(const trafo_context* owner, Tensor tensor) {
  return give_tensor(owner->context, std::move(tensor));
}

DType checked_dtype(const Call& call, int32_t dtype) {
  if (dtype < 0 || dtype >= kDTypeCount) call.refuse("unknown dtype ", dtype);
  return static_cast<DType>(dtype);
}

Shape checked_shape(const Call& call, const int64_t* shape, int32_t rank) {
  if (rank < 0 || rank > kMaxRank) call.refuse("rank must be 0 to ", kMaxRank, ", got ", rank);
  call.array(shape, static_cast<size_t>(rank), "shape");
  return Shape(std::span<const int64_t>(shape, static_cast<size_t>(rank)));
}

}  // namespace trafo::capi
