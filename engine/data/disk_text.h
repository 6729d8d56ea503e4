// Corpora whose text stays on disk. One pass checks the lines and indexes them, with 8 bytes of
// memory for each line of a file; later each line is read from its position.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/data/text_corpus.h"

namespace trafo {

// Errors as in corpus.h. gzip and standard input are unpacked into an unnamed file in
// options.unpack_directory, which is created if it is missing.
// A file for each side, two or three.
std::shared_ptr<const PairText> open_sides(std::span<const std::string> paths,
                                           const LoadOptions& options);
// One file with as many columns as the form has texts.
std::shared_ptr<const PairText> open_columns(const std::string& path, CorpusForm form,
                                             const LoadOptions& options);

}  // namespace trafo
