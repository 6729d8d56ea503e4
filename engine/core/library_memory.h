// Memory for code that is not ours. SentencePiece and the JSON library end the process, or worse,
// where one of their allocations fails; Trafo promises its callers an error instead.
#pragma once

#include <cstddef>

namespace trafo {

// Around calls of such code, and around the lives of its objects: makes sure that as many bytes as
// it is going to take are there, and throws std::bad_alloc before it is called if they are not.
// What another thread of the process takes meanwhile it cannot know.
class LibraryMemory {
 public:
  explicit LibraryMemory(size_t bytes);
  ~LibraryMemory();
  LibraryMemory(const LibraryMemory&) = delete;
  LibraryMemory& operator=(const LibraryMemory&) = delete;

  // A document of so many bytes of text, parsed or written.
  static constexpr size_t json(size_t text) { return (size_t{64} << 10) + 64 * text; }
};

}  // namespace trafo
