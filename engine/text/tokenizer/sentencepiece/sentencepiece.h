// Common parts of calls of the SentencePiece library.
#pragma once

namespace trafo {

// Before the first other call: the library logs to standard error unless it is told not to.
void silence_sentencepiece();

}  // namespace trafo
