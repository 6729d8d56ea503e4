// The corpus of `translate-train demo`: German sentences and their English translations from a
// small grammar. Every German sentence has one translation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace translate_train {

struct DemoPair {
  std::string german, english;
};

struct DemoCorpus {
  std::vector<DemoPair> train, held_out;
};

// All sentences are distinct; neither a German nor an English sentence of held_out is in train. The
// same seed gives the same corpus everywhere.
DemoCorpus make_demo_corpus(uint64_t seed, size_t train_pairs, size_t held_out_pairs);

}  // namespace translate_train
