#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capi/src/handles.h"
#include "engine/data/text_corpus.h"
#include "engine/decode/lexical_table.h"
#include "engine/tokenizer/tokenizer.h"

namespace trafo::capi {

struct TokenizerObject {
  Tokenizer tokenizer;
};

struct CorpusObject {
  TextCorpus corpus;
};

struct ShortlistObject {
  Tokenizer tokenizer;
  LexicalTable table;
};

inline std::vector<std::string> lines_argument(const Call& call, const trafo_string_view* lines,
                                               size_t count, const char* name) {
  call.array(lines, count, name);
  std::vector<std::string> result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i)
    result.emplace_back(call.text(lines[i].data, lines[i].length, name));
  return result;
}

}  // namespace trafo::capi
