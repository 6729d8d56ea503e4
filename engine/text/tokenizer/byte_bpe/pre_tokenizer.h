// The pre-tokenizer of a tokenizer.json: cuts a text into words, which are encoded one by one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/text/pattern/pattern.h"
#include "engine/text/tokenizer/byte_bpe/json_part.h"

namespace trafo {

// The steps that make bytes of letters, with GPT-2's pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Immutable: any number of threads may use one.
class PreTokenizer {
 public:
  // Whether the part has a ByteLevel step: only then it is of a byte-level vocabulary.
  static bool is_byte_level(const JsonPart& part);
  PreTokenizer() = default;  // the whole text is one word
  // Metaspace is a step of vocabularies that are not byte-level. UNSUPPORTED and CORRUPT_FILE name
  // the key.
  explicit PreTokenizer(const JsonPart& part);

  // Whether a word at the beginning of a text is cut otherwise than the same word after a token.
  bool marks_the_beginning() const;

  struct Words {
    std::string text;
    std::vector<Pattern::Match> spans;  // of the words in `text`; none is empty

   private:
    friend class PreTokenizer;
    struct Part : Pattern::Match {
      bool is_match;
    };
    std::vector<Pattern::Match> before, matches;  // scratch
    std::vector<Part> parts;
  };
  // Replaces `words` by those of the text. is_beginning: no token goes before it. Errors as
  // Pattern::find_all.
  void split(std::string_view text, Words& words, bool is_beginning = true) const;

 private:
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class Front { none, beginning, always };  // where Metaspace adds its mark
  struct Step {
    std::optional<Pattern> pattern;
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    bool prefix_space = false;   // in front of each piece that has none
    bool makes_letters = false;  // a letter of each byte, for the steps that follow
    std::string space = {};      // of Metaspace: the mark in place of a space
    Front front = Front::none;
  };
  static Step read(const JsonPart& part);
  void add_bert_steps();
  static Step read_metaspace(const JsonPart& part);
  static Behavior read_behavior(const JsonPart& part);
  static void add_spaces(Words& words);
  static void mark_spaces(const Step& step, bool is_beginning, Words& words);
  static void make_letters(Words& words);
  static void make_bytes(Words& words);
  static void cut(const Step& step, Words& words);

  std::vector<Step> steps_;
  bool has_letters_ = false;  // after the last step
};

}  // namespace trafo
