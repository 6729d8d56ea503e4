#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capi/src/handles.h"
#include "engine/text/lexical_table.h"
#include "engine/text/text_corpus.h"
#include "engine/text/tokenizer.h"

struct trafo_tokenizer {
  trafo::Tokenizer tokenizer;
};

struct trafo_corpus {
  trafo::TextCorpus corpus;
};

struct trafo_shortlist {
  trafo::Tokenizer tokenizer;
  trafo::LexicalTable table;
};

namespace trafo::capi {

inline std::filesystem::path path_argument(const Call& call, const char* data, size_t length,
                                           const char* name) {
  const std::string_view text = call.text(data, length, name);
  if (text.empty()) call.refuse(name, " is empty");
  if (text.find('\0') != std::string_view::npos) call.refuse(name, " contains a NUL byte");
  return std::filesystem::path(text);
}

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
