// Files of text without a source.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "commands/trafo_handles.h"

namespace translate_train {

int32_t index_of_word(std::span<const char* const> words, const std::string& word);

// --data-format, of files of text.
void add_data_format(CLI::App& app, std::string& format);

// The texts of all files, one file after the other. Large files stay on disk, as in `train`.
Corpus read_texts(const std::vector<std::string>& files, const std::string& data_format);

}  // namespace translate_train
