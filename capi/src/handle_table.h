// The handle table: every handle argument of the C ABI is looked up here.
//
// A handle is a number, not an address. A process gives each number out once, so a handle that was
// freed is refused, whatever has been created since. A pattern in the upper bits makes the number
// an invalid address: a program that dereferences a handle faults at once.
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
  group,
  // Memory that the program reads, and that is therefore known by its address. It is in the table
  // so that a second free of it does no harm.
  string,
  ids,
  generator,  // an object again: numbers stay as they are
};

// Bits 63 and 55 are set and bits 62 to 56 are clear, which leaves 55 bits for the number. On
// x86-64 an address with different bits 63 and 62 is not canonical, with 48 and with 57 address
// bits. On AArch64 bit 55 selects the kernel's half; the byte above it may be a tag. WebAssembly
// has addresses of 32 bits: bit 31 is set, above the memory of a program, and 31 bits are left.
inline constexpr bool kWideHandles = sizeof(void*) == sizeof(uint64_t);
inline constexpr int kHandleNumberBits = kWideHandles ? 55 : 31;
inline constexpr auto kHandlePattern =
    static_cast<uintptr_t>(kWideHandles ? 0x8080'0000'0000'0000 : 0x8000'0000);

inline void* to_handle(uint64_t number) noexcept {
  return reinterpret_cast<void*>(kHandlePattern | static_cast<uintptr_t>(number));
}

// Adds an object and returns its handle. The number is never 0, and differs from the numbers of
// another copy of this library in the same process.
void* register_object(void* object, HandleKind kind);
void register_memory(void* memory, HandleKind kind);

// The object of a live handle; null if it was freed, never created, or is of another kind.
void* find_object(const void* handle, HandleKind kind) noexcept;
// True in a child process for a handle that was created before the fork and uses a context, whose
// threads and device belong to the parent.
bool is_orphaned(const void* handle, HandleKind kind) noexcept;
// A call brackets its use of a handle. If a callback or another thread frees the handle meanwhile,
// it is no longer live, but its object exists until the last use ends. begin_use returns null if
// the handle is not live.
void* begin_use(const void* handle, HandleKind kind) noexcept;
void end_use(const void* handle) noexcept;
// Removes a live handle and runs `end` on its object, now or when the last use ends.
void end_handle(const void* handle, HandleKind kind, void (*end)(void*)) noexcept;

}  // namespace trafo::capi
