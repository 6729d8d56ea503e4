// Which target pieces translate a source piece: word translation probabilities, from which decoding
// takes the few rows of the output layer that a batch may need.
#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace trafo {

class LexicalTable {
 public:
  struct Entry {
    int32_t target;
    float probability;  // p(target | source)
  };

  // IBM model 1 (Brown et al., "The Mathematics of Statistical Machine Translation", Computational
  // Linguistics 19, 1993), five iterations from a uniform start, with an empty source word. Keeps
  // the `best` targets of each source piece that have at least a ten-thousandth. Sources and
  // targets are of equal number, without special pieces. The same pairs give the same table.
  static LexicalTable learn(std::span<const std::vector<int32_t>> sources,
                            std::span<const std::vector<int32_t>> targets, int32_t vocabulary,
                            int64_t best);
  // Lines "TARGET SOURCE PROBABILITY" of piece texts, as Marian's lex.s2t files. Pieces that the
  // vocabulary lacks, and NULL, are passed over. INVALID_ARGUMENT names `name` and the line.
  static LexicalTable read(std::istream& in, const std::string& name, const Tokenizer& tokenizer);
  void write(std::ostream& out, const Tokenizer& tokenizer) const;

  // Most probable first.
  std::span<const Entry> of(int32_t source) const;
  // In rising order and each once: pieces 0 to first - 1, and of every source the `best` targets.
  std::vector<int32_t> candidates(std::span<const int32_t> sources, int64_t first,
                                  int64_t best) const;
  int64_t size() const;

 private:
  explicit LexicalTable(int32_t vocabulary) : rows_(static_cast<size_t>(vocabulary)) {}
  std::vector<std::vector<Entry>> rows_;  // by source
};

}  // namespace trafo
