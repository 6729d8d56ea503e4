// BPE that has a token for every byte, with the ids that the `tokenizers` library gives for the
// same tokenizer.json. Byte-level BPE, as GPT-2, Llama 3 and Qwen have it, merges bytes. BPE with
// byte fallback, as Llama 2, Mistral and Gemma have it, merges characters, and a character without
// a token is its bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/fallback_decoder.h"
#include "engine/text/tokenizer/byte_bpe/json_model.h"
#include "engine/text/tokenizer/byte_bpe/merges.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"

namespace trafo {

class ByteBpeTokenizer final : public JsonModel {
 public:
  static constexpr std::string_view kKind = "byte-bpe";
  // `text` is what read_tokenizer_text() makes of `serialized`. UNSUPPORTED and CORRUPT_FILE name
  // the key of the file.
  ByteBpeTokenizer(std::string_view serialized, const TokenizerText& text, std::string_view label,
                   std::vector<CompanionFile> companions);

  std::string_view kind() const noexcept override { return kKind; }
  // Special tokens that are written out in a text stay text; other added tokens are found.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  // Bytes that are no UTF-8 become U+FFFD, but an unfinished character at the end gives no text:
  // the next token may finish it. The library writes U+FFFD there.
  std::string decode(std::span<const int32_t> ids) const override;
  size_t open_tail(std::span<const int32_t> ids) const override;
  bool continues_character(int32_t id) const override;
  std::string token_bytes(int32_t id) const override;
  bool bos_is_subword() const noexcept override;
  std::unique_ptr<const SubwordSampler> sampler() const override;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const override;
  std::unique_ptr<const SubwordSampler> part_sampler() const override;
  std::shared_ptr<const Model> after_special() const override;

  // As encode() or encode_part(), with random merges left out.
  void sample(std::string_view text, bool is_part, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const;

 private:
  void read_vocabulary(const JsonPart& model, const SubwordTable& vocabulary);
  void read_unknown(const JsonPart& model, const SubwordTable& vocabulary);
  void read_byte_tokens(const JsonPart& model, const SubwordTable& vocabulary);
  void read_decoder(const JsonPart& part);
  void read_merges(const TokenizerText& text);

  void encode_text(std::string_view text, bool is_part, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;
  // The tokens that are merged.
  void first_tokens(std::string_view word, std::vector<int32_t>& tokens) const;
  bool is_whole(uint32_t entry, std::string_view word) const;
  std::string decode_fallback(std::span<const int32_t> ids) const;

  const bool is_byte_level_;
  Merges merges_;
  bool ignore_merges_ = false, fuse_unknown_ = false;
  int32_t unknown_ = -1;  // for bytes without a token; -1: they are left out
  std::array<int32_t, 256>
      byte_ids_{};  // with byte fallback, a character's own token if it has one
  FallbackDecoder decoder_;
  SubwordTable words_;         // tokens of the model as bytes
  std::vector<bool> is_byte_;  // a token of byte fallback
  // Of each entry of words_: whether merging its bytes gives the token itself. Found out when the
  // word is first met.
  enum class Whole : uint8_t { unknown, yes, no };
  mutable std::unique_ptr<std::atomic<Whole>[]> whole_;
};

// The functions of the row in tokenizer_kinds.cc.
bool is_byte_bpe_file(std::string_view file_bytes);
Tokenizer load_byte_bpe(std::string_view file_bytes, std::string_view label,
                        std::vector<CompanionFile> companions);
void validate_byte_bpe(const TokenizerTrainOptions& options);
Tokenizer train_byte_bpe(std::span<const std::string_view> sentences,
                         const TokenizerTrainOptions& options);

// Whether a tokenizer.json is byte-level BPE, or BPE with byte fallback whose special tokens are
// added tokens and which has no character map of SentencePiece.
bool is_byte_bpe(const TokenizerText& text, std::string_view label);
// Whether such a file is byte-level.
bool is_byte_level(const TokenizerText& text, std::string_view label);

}  // namespace trafo
