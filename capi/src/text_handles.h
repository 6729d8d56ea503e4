#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capi/src/handles.h"
#include "engine/data/text_corpus.h"
#include "engine/decode/lexical_table.h"
#include "engine/models/model_io.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::capi {

struct TokenizerObject {
  Tokenizer tokenizer;
  std::string file = {};  // empty: not from a file
  std::string checksum = vocabulary_checksum(tokenizer);
};

// INVALID_ARGUMENT if the model was trained with another vocabulary.
inline const Tokenizer& vocabulary_of(const Model& model, const TokenizerObject& tokenizer) {
  // Of a vocabulary of another size, what needs it says the sizes.
  if (has_sizes_of(model.spec(), tokenizer.tokenizer))
    require_vocabulary(model, tokenizer.checksum, tokenizer.file);
  return tokenizer.tokenizer;
}

// The same of an optional argument.
inline std::optional<Tokenizer> optional_vocabulary_of(const Call& call, const Model& model,
                                                       const trafo_tokenizer* tokenizer) {
  if (!tokenizer) return std::nullopt;
  return vocabulary_of(model, call.handle(tokenizer, "tokenizer"));
}

struct CorpusObject {
  TextCorpus corpus;
};

struct ShortlistObject {
  Tokenizer tokenizer;
  LexicalTable table;
};

// Ids that the caller frees with trafo_ids_free: one byte at least, so that success is never NULL.
inline int32_t* copy_ids(const std::vector<int32_t>& ids) {
  auto* copy =
      static_cast<int32_t*>(give_memory(ids.size() * sizeof(int32_t) + 1, HandleKind::ids));
  std::copy(ids.begin(), ids.end(), copy);
  return copy;
}

// Lines of the caller, borrowed while the call is in flight.
inline std::vector<std::string_view> views_argument(const Call& call,
                                                    const trafo_string_view* lines, size_t count,
                                                    const char* name) {
  call.array(lines, count, name);
  std::vector<std::string_view> views;
  views.reserve(count);
  for (size_t i = 0; i < count; ++i)
    views.push_back(call.text(lines[i].data, lines[i].length, name));
  return views;
}

// Copies of them.
inline std::vector<std::string> lines_argument(const Call& call, const trafo_string_view* lines,
                                               size_t count, const char* name) {
  const std::vector<std::string_view> views = views_argument(call, lines, count, name);
  return {views.begin(), views.end()};
}

// Rows of token ids of the caller, copied.
inline std::vector<std::vector<int32_t>> ids_argument(const Call& call, const trafo_ids_view* rows,
                                                      size_t count, const char* name) {
  call.array(rows, count, name);
  std::vector<std::vector<int32_t>> ids;
  ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    call.array(rows[i].ids, rows[i].count, name);
    ids.emplace_back(rows[i].ids, rows[i].ids + rows[i].count);
  }
  return ids;
}

}  // namespace trafo::capi
