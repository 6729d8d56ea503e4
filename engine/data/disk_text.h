// Corpora whose text stays on disk. One pass checks the lines and indexes them, with 8 bytes of
// memory for each line of a file; later each line is read from its position.
#pragma once

#include <memory>
#include <string>

#include "engine/data/text_corpus.h"

namespace trafo {

// Errors as in corpus.h. gzip and standard input are unpacked into an unnamed file in
// options.unpack_directory, which is created if it is missing.
std::shared_ptr<const PairText> open_parallel(const std::string& source_path,
                                              const std::string& target_path,
                                              const LoadOptions& options);
std::shared_ptr<const PairText> open_tsv(const std::string& path, const LoadOptions& options);
std::shared_ptr<const PairText> open_monolingual(const std::string& path,
                                                 const LoadOptions& options);

}  // namespace trafo
