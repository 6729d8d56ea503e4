// The compiled character map of a SentencePiece normalizer: which texts stand for which characters.
//
// SentencePiece follows the map without bounds checks and puts no limit on the text that it makes.
// This reader checks every node first, and computes the size of a text's normal form beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

class CharacterMap {
 public:
  // Empty: every character is kept.
  CharacterMap() = default;
  // `blob`: a uint32 with the size of the trie, the trie (a double array of darts-clone), the
  // texts, each closed by NUL. The map refers to the blob's texts. CORRUPT_FILE with `name` when a
  // node or a leaf lies outside, when there is a cycle, when more than 32 leaves lie on one path,
  // or when a text is longer than limits::kMappedBytes.
  CharacterMap(std::string_view blob, std::string_view name);

  // Longest text that is replaced, in bytes, each space counted as the 3 bytes of U+2581.
  size_t longest_text() const { return longest_; }

  // The replacement of the beginning of `text` at `position`, which advances past the replaced
  // bytes: the longest entry of the map that begins there, or else one character, or else one byte
  // that begins no character, which becomes U+FFFD.
  std::string_view next(std::string_view text, size_t& position) const;

  // Bytes of the normal form, at most: spaces count as U+2581, and none is left out.
  size_t normalized_bytes(std::string_view text) const;

 private:
  void check_nodes(std::string_view name);
  size_t checked_text(uint32_t leaf, std::string_view name) const;
  uint32_t enter(uint32_t position) const;

  std::vector<uint32_t> units_;
  std::string_view texts_;
  size_t longest_ = 0;
};

// The map without the entry for `text`, which then stands for itself. The same if there is none.
std::string without_entry(std::string_view blob, std::string_view text, std::string_view name);

}  // namespace trafo
