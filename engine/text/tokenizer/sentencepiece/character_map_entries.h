// The entries of a character map, one after the other.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace trafo {

// Calls `each` with every text that the blob of a CharacterMap replaces, in the order of bytes,
// until it returns false. Returns whether it has seen all: a blob has at most `limit` entries, on
// paths of at most four times as many nodes. CORRUPT_FILE as CharacterMap.
bool visit_entries(std::string_view blob, std::string_view name, size_t limit,
                   const std::function<bool(std::string_view)>& each);

}  // namespace trafo
