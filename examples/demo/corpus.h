// A corpus for demonstrations and tests: German sentences and their English translations, made by a
// small grammar. Every German sentence has one translation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace demo {

struct Pair {
  std::string german, english;
};

struct Corpus {
  std::vector<Pair> train, held_out;
};

// All sentences are distinct; neither a German nor an English sentence of held_out is in train. The
// same seed gives the same corpus everywhere.
Corpus make_corpus(uint64_t seed, size_t train_pairs, size_t held_out_pairs);

}  // namespace demo
