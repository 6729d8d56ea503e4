#include "engine/text/tokenizer/sentencepiece/spm_fields.h"

#include "engine/core/status.h"

namespace trafo {

void fail_spm(std::string_view name, std::string_view reason) {
  fail(ErrorCode::corrupt_file, "tokenizer", name, ": not a usable SentencePiece model: ", reason);
}

}  // namespace trafo
