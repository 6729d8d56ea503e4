// Probabilities that a target token translates a source token. Decoding uses them to compute only
// the rows of the output projection that a batch is likely to need.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class LexicalTable {
 public:
  struct Entry {
    int32_t target;
    float probability;  // p(target | source)
  };

  // IBM model 1 (Brown et al., "The Mathematics of Statistical Machine Translation", Computational
  // Linguistics 19, 1993), five iterations from a uniform start, with an empty source word. Keeps
  // the `best` targets of each source token if their probability is at least 1e-4. There are as
  // many sources as targets, without special tokens. The same pairs give the same table.
  // Each token of a pair may translate each other one, so a pair of long lines would take memory
  // and time by the product of their lengths: pairs with a side above kLongestSide tokens are left
  // out. INVALID_ARGUMENT if none remains. CANCELLED.
  static constexpr size_t kLongestSide = 256;
  static LexicalTable learn(std::span<const std::vector<int32_t>> sources,
                            std::span<const std::vector<int32_t>> targets, int32_t vocabulary,
                            int64_t best, const CancelToken* cancel = nullptr);
  // Reads lines "TARGET SOURCE PROBABILITY" of subwords, like Marian's lex.s2t files. Lines with
  // NULL or with a subword that is not in the vocabulary are skipped. INVALID_ARGUMENT names `name`
  // and the line.
  static LexicalTable read(std::istream& in, const std::string& name, const Tokenizer& tokenizer);
  void write(std::ostream& out, const Tokenizer& tokenizer) const;

  // Most probable first.
  std::span<const Entry> of(int32_t source) const;
  // Tokens 0 to first - 1 and the `best` targets of every source, in rising order, each once.
  std::vector<int32_t> candidates(std::span<const int32_t> sources, int64_t first,
                                  int64_t best) const;
  int64_t size() const;

 private:
  explicit LexicalTable(int32_t vocabulary) : rows_(static_cast<size_t>(vocabulary)) {}
  std::vector<std::vector<Entry>> rows_;  // by source
};

}  // namespace trafo
