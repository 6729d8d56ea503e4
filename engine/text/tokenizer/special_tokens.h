// The special tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <vector>

namespace trafo {

// Ids; -1: the vocabulary has no such token. The defaults match vocabularies trained here.
struct SpecialTokens {
  int32_t bos = 1;
  int32_t eos = 2;  // ends every sentence
  int32_t pad = 3;
  int32_t unk = 0;

  // The first decoder input of an encoder_decoder: bos, or eos in a vocabulary without bos, as
  // Marian's are.
  int32_t start() const noexcept { return bos >= 0 ? bos : eos; }
  bool operator==(const SpecialTokens&) const = default;
};

// The special tokens around a source or a prompt of a decoder_lm, in training, scoring and
// decoding.
struct TextFrame {
  bool begin = false;  // bos before it
  bool end = true;     // eos after it

  // The token before plain text, from which a decoder_lm predicts its first token.
  int32_t front(const SpecialTokens& tokens) const noexcept {
    return begin ? tokens.bos : tokens.eos;
  }
  bool operator==(const TextFrame&) const = default;
};

// The part of a vocabulary that a model needs to read and write token ids.
struct VocabularyTokens {
  SpecialTokens special;
  std::vector<int32_t> further_ends;  // tokens beside eos that end what a model generates
  TextFrame frame = {};               // that the model was trained with
  bool operator==(const VocabularyTokens&) const = default;
};

}  // namespace trafo
