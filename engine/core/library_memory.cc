#include "engine/core/library_memory.h"

#include <cstdlib>
#include <new>

namespace trafo {

LibraryMemory::LibraryMemory(size_t bytes) {
  // volatile: a compiler may leave out memory that is freed unused.
  void* volatile memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  std::free(memory);
}

// Here and not in the header, so that a test that makes allocations fail can see where it ends.
LibraryMemory::~LibraryMemory() = default;

}  // namespace trafo
