// Corpora whose text stays on disk: one pass checks and indexes the lines, which are then read one
// by one where they are. Memory: 8 bytes a line of each file.
#pragma once

#include <memory>
#include <string>

#include "engine/data/text_corpus.h"

namespace trafo {

// Errors as in corpus.h. Files named .gz and standard input are unpacked into a file without a name
// in options.unpack_directory, which is made if need be.
std::shared_ptr<const PairText> open_parallel(const std::string& source_path,
                                              const std::string& target_path,
                                              const LoadOptions& options);
std::shared_ptr<const PairText> open_tsv(const std::string& path, const LoadOptions& options);
std::shared_ptr<const PairText> open_monolingual(const std::string& path,
                                                 const LoadOptions& options);

}  // namespace trafo
