// Parses and writes serialized SentencePiece models, to reorder their pieces and keep the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/spm_model.h"

namespace trafo::interop {

struct ScoredPiece {
  std::string text;
  float score = 0;
  SpmPiece type = SpmPiece::normal;
};

struct SpmModel {
  std::vector<ScoredPiece> pieces;
  bool is_unigram = true;
  std::string character_map;  // of the normalizer, compiled
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string rest;  // every field but the pieces, serialized
};

// `serialized` comes from Tokenizer::serialized() and has been checked.
SpmModel parse_spm(std::string_view serialized);
// The same model with other pieces. <s> and </s> are the pieces with those names.
std::string serialize_spm(const SpmModel& model, const std::vector<ScoredPiece>& pieces);

}  // namespace trafo::interop
