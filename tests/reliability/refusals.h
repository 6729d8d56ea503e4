// Part of the suite damaged_files.
#pragma once

#include <string>

#include "tests/reliability/suite.h"

namespace trafo::testing {

// Of the processor, for refusing one file: what takes longer would be a hang with a larger one.
inline constexpr double kMostSeconds = 1;

// Every reader meets files that are made to cost memory or time. Each that is refused is refused
// with at most its size and 64 MiB.
void try_costly_files(Suite& suite);

// Costly texts that readers accept, and their use: no text of a few kilobytes costs more than its
// bound, although it is packed a thousandfold, grows as it is normalised, or is one long line.
void try_costly_texts(Suite& suite);

// A SentencePiece model whose normalisation makes a text of this many bytes of the letter a.
std::string model_of_a_long_letter(size_t bytes);

}  // namespace trafo::testing
