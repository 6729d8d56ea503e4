// A tokenizer for a corpus.
#pragma once

#include "engine/data/text_corpus.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Trains on all sources, then all targets. If the corpus is on disk, reads only the sampled lines;
// of a kind that learns nothing, none. Errors: as Tokenizer::train.
Tokenizer train_tokenizer(const TextCorpus& corpus, const TokenizerTrainOptions& options);

}  // namespace trafo
