#include "engine/backend/backend.h"

#include "engine/core/shape_text.h"

namespace trafo {

void* Backend::set_arena_memory(size_t bytes) {
  release_arena_memory();
  if (bytes == 0) return nullptr;
  void* memory = allocate_exactly(bytes);
  // The end is cleared first and set last: in between, no address counts as inside the arena.
  arena_begin_ = reinterpret_cast<uintptr_t>(memory);
  arena_end_ = arena_begin_ + bytes;
  return memory;
}

void Backend::release_arena_memory() noexcept {
  const uintptr_t end = arena_end_.exchange(0);
  const uintptr_t begin = arena_begin_.exchange(0);
  if (begin != 0) release_exactly(reinterpret_cast<void*>(begin), end - begin);
}

void Backend::launch(int id, const char* op, const void* params) {
  require(id >= 0 && static_cast<size_t>(id) < kernels_.size() && kernels_[id] != nullptr,
          ErrorCode::unsupported, op, "there is no kernel for ", device());
  const int32_t result = kernels_[id](stream(), params);
  if (result != 0) [[unlikely]]
    kernel_failed(op, result);
}

void Backend::kernel_failed(const char* op, int32_t result) {
  fail(ErrorCode::internal, op, "the kernel failed on ", device_name(device()), " with code ",
       result);
}

}  // namespace trafo
