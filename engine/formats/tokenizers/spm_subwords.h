// Parses and writes serialized SentencePiece models, to reorder their subwords and keep the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"

namespace trafo::interop {

struct ScoredSubword {
  std::string text;
  float score = 0;
  SubwordType type = SubwordType::normal;
};

struct SpmModel {
  std::vector<ScoredSubword> subwords;
  bool is_unigram = true;
  std::string character_map;  // of the normalizer, compiled
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string rest;  // every field but the subwords, serialized
};

// `serialized` comes from a SentencePieceModel, which has checked it.
SpmModel parse_spm(std::string_view serialized);
// The same model with other subwords. <s> and </s> are the subwords with those names.
std::string serialize_spm(const SpmModel& model, const std::vector<ScoredSubword>& subwords);

// The ids that a configuration gives to special tokens; -1 and empty where it names none.
struct SpecialIds {
  int32_t bos = -1, pad = -1;
  std::vector<int32_t> eos;  // each ends a text; the first is appended to sources
  bool bos_starts_decoder = false;
};
// With those special tokens. A bos or an eos that is an ordinary subword stays one. CORRUPT_FILE,
// naming `label`: an id is not one of the subwords.
std::string serialize_spm(const SpmModel& model, std::vector<ScoredSubword> subwords,
                          const SpecialIds& special, const std::string& label);

}  // namespace trafo::interop
