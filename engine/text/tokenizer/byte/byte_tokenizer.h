// Bytes as tokens, with the ids of ByT5 (Xue et al., arXiv 2105.13626): pad 0, eos 1, unk 2, and
// 3 + B for byte B of UTF-8. There is no bos. A text is never unknown. In models of ByT5, decoders
// start with <pad>, which is the bos of a second form of the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class ByteTokenizer final : public Tokenizer::Model {
 public:
  static constexpr std::string_view kKind = "byte";
  static constexpr int32_t kPad = 0;
  // pad_starts: a decoder starts with <pad> and not with </s>.
  explicit ByteTokenizer(bool pad_starts = false);

  std::string_view kind() const noexcept override { return kKind; }
  int32_t vocab_size() const noexcept override { return static_cast<int32_t>(tokens_.size()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  // Bytes that are no UTF-8 give no text, as in ByT5: a translation may end within a character.
  std::string decode(std::span<const int32_t> ids) const override;
  const std::string& token(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  int32_t id(std::string_view token) const override;
  bool continues_character(int32_t id) const override;
  std::string token_bytes(int32_t id) const override;

 private:
  std::vector<std::string> tokens_;  // "<pad>", "</s>", "<unk>", "<0x00>" to "<0xFF>"
};

Tokenizer byte_vocabulary(bool pad_starts);

// The functions of the row in tokenizer_kinds.cc. The file says the kind and the form.
bool is_byte_vocabulary(std::string_view file_bytes);
Tokenizer load_byte_vocabulary(std::string_view file_bytes, std::string_view label);
void validate_byte_vocabulary(const TokenizerTrainOptions& options);
Tokenizer make_byte_vocabulary(std::span<const std::string_view> sentences,
                               const TokenizerTrainOptions& options);

}  // namespace trafo
