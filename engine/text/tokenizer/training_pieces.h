// Texts of any length as sentences for the training of a vocabulary.
#pragma once

#include <string_view>

#include "engine/core/limits.h"
#include "engine/core/strings/utf8.h"

namespace trafo {

// Calls use(piece) with the pieces of a text, in order, each of at most
// limits::kTrainingSentenceBytes. A longer text is cut before white space, or between two
// characters where there is no white space.
template <class Use>
void for_each_training_piece(std::string_view text, Use use) {
  constexpr size_t kMost = limits::kTrainingSentenceBytes;
  while (text.size() > kMost) {
    size_t end = text.substr(0, kMost + 1).find_last_of(" \t\n\r");
    if (end == 0 || end == std::string_view::npos) end = truncate_utf8(text, kMost).size();
    use(text.substr(0, end));
    text.remove_prefix(end);
  }
  use(text);
}

}  // namespace trafo
