#include "capi/src/handles.h"

#include <array>
#include <mutex>
#include <span>
#include <unordered_map>

namespace trafo::capi {
namespace {

// Sharded by address, so that threads with contexts of their own seldom meet.
constexpr size_t kShards = 16;

struct Shard {
  std::mutex mutex;
  std::unordered_map<const void*, HandleKind> live;
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
  shard.live.insert_or_assign(handle, kind);
}

bool is_live(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.live.find(handle);
  return found != shard.live.end() && found->second == kind;
}

bool unregister_handle(const void* handle, HandleKind kind) noexcept {
  Shard& shard = shard_of(handle);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.live.find(handle);
  if (found == shard.live.end() || found->second != kind) return false;
  shard.live.erase(found);
  return true;
}

trafo_error* make_error(ErrorCode code, const char* origin, const char* message) noexcept {
  try {
    return new_handle<trafo_error>(code, std::string(origin), std::string(message));
  } catch (...) {
    return &out_of_memory_error();
  }
}

bool is_live_error(const trafo_error* error) noexcept {
  return error == &out_of_memory_error() || is_live(error, HandleKind::error);
}

char* copy_string(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
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
