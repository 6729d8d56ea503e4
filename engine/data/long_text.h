// Windows over texts that are longer than a sequence may be.
//
// The tokens of a text without a source are x0 x1 .. xm: x0 is the token from which the model
// predicts the first one (TextFrame::front()), xm the end. Window k reads L = max_length tokens
// from x[k S] on, S being window_stride, and predicts the token after each. Only window 0 has x0,
// and only the last one predicts the end. The loss of a window leaves out the tokens that the
// window before it predicts, so each of x1 .. xm is learned once.
//
// A window is a row like others: its source are the tokens that are read without a loss, and the
// token from which the first new one is predicted; its target are the new ones.
#pragma once

#include <cstdint>

#include "engine/data/pair_source.h"

namespace trafo {

// The windows of a row with these numbers of tokens; 1: the row is not cut. A row is a text if its
// source has one token, x0.
int64_t windows_of(const TokenizedCorpusOptions& options, int64_t source, int64_t target) noexcept;

// Replaces each text that is cut by its windows, which keep the number of the text. UNSUPPORTED:
// there would be more rows than UINT32_MAX.
void cut_long_texts(const TokenizedCorpusOptions& options, PairBlock& block);

}  // namespace trafo
