// vocab.txt of BERT: a token a line, the number of the line (from 0) is its id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/companion_file.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

inline constexpr std::string_view kVocabTxt = "vocab.txt";

// Whether a text has a line "[UNK]" and a line that begins with "##".
bool is_vocab_txt(std::string_view file_bytes);
// The tokenizer.json that transformers makes of a vocab.txt and the settings of a BertTokenizer in
// tokenizer_config.json and special_tokens_map.json among `companions`. CORRUPT_FILE names file and
// line, or key. UNSUPPORTED names the key: a tokenizer of another class, never_split, and
// do_basic_tokenize off.
std::string vocab_txt_to_json(std::string_view file_bytes, std::string_view label,
                              const std::vector<CompanionFile>& companions);
// The function of the row in tokenizer_kinds.cc: the tokenizer of that file.
Tokenizer load_vocab_txt(std::string_view file_bytes, std::string_view label,
                         std::vector<CompanionFile> companions);

}  // namespace trafo
