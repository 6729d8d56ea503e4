// Which handles are live: the register that every handle argument is looked up in.
//
// A handle is no address. It is a number that is given out once in the life of the process, with a
// pattern in its upper bits that is no address of any program: one that is kept after its _free is
// refused whatever has been made since, and a program that follows it faults there and then.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trafo::capi {

enum class HandleKind : uint32_t {
  error,
  context,
  tensor,
  cancel,
  adamw,
  tokenizer,
  corpus,
  model,
  trainer,
  translations,
  shortlist,
  // Memory that was handed out, so that a second free of it is harmless too. The program reads it:
  // these alone are known by their address.
  string,
  ids,
};

static_assert(sizeof(void*) == sizeof(uint64_t), "handles are numbers of 64 bits");

// Bits 63 and 55 set, 62 to 56 clear; 55 bits are left for numbers. Bits 63 and 62 differ: not
// canonical on x86-64, with 48 as with 57 bits of address. Bit 55 selects the kernel's half on
// AArch64, where the byte above it may be a tag.
inline constexpr uint64_t kHandlePattern = 0x8080'0000'0000'0000;

inline void* to_handle(uint64_t number) noexcept {
  return reinterpret_cast<void*>(kHandlePattern | number);
}

// The handle of an object. Its number is never 0, nor that of another copy of this library in the
// same process.
void* register_object(void* object, HandleKind kind);
void register_memory(void* memory, HandleKind kind);

// The object behind a live handle; null: it was freed, never made, or is of another kind.
void* find_object(const void* handle, HandleKind kind) noexcept;
// True of one that was made before the process forked, in the child, and that uses a context: the
// threads and the device of that are the parent's.
bool is_orphaned(const void* handle, HandleKind kind) noexcept;
// A handle that is freed while calls use it, by a callback or another thread, is no handle from
// then on; the object lives until the last of them is done. begin_use: null if it is not live.
void* begin_use(const void* handle, HandleKind kind) noexcept;
void end_use(const void* handle) noexcept;
// Takes a live handle out and runs `end` on its object, now or when the last use is done.
void end_handle(const void* handle, HandleKind kind, void (*end)(void*)) noexcept;

}  // namespace trafo::capi
