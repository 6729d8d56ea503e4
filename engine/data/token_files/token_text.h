// A corpus from a file of token ids, which stays on disk.
#pragma once

#include <memory>
#include <string>

#include "engine/data/text_corpus.h"

namespace trafo {

// The most tokens of a row. A longer document continues in the next row, whose source is the token
// before it, so that each token is learned once.
inline constexpr int64_t kTokenRow = int64_t{1} << 18;

// A row for each document, its end included: what comes before document_end, or what the index of
// Megatron says. Documents without a token, or with their end alone, are dropped and counted. One
// pass checks the ids and indexes the rows, with 8 bytes of memory a row.
// Errors: as of read_token_layout(); CORRUPT_FILE: an id is negative or above 2^31 - 1;
// INVALID_ARGUMENT: no regular file, gzip, no document, a document_end that the format does not
// need.
std::shared_ptr<const PairText> open_token_file(const std::string& path,
                                                const LoadOptions& options);

}  // namespace trafo
