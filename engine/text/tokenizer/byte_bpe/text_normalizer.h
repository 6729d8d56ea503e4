// The normalizer of a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/text/pattern/pattern.h"
#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/unicode/normal_form.h"

namespace trafo {

class TextNormalizer {
 public:
  TextNormalizer() = default;
  // UNSUPPORTED and CORRUPT_FILE name the key.
  explicit TextNormalizer(const JsonPart& part);

  // A further step, not a Sequence.
  void add(const JsonPart& step);
  bool changes_nothing() const { return steps_.empty(); }
  // CORRUPT_FILE: the text would grow beyond limits::kNormalizedGrowth. Errors as
  // Pattern::find_all.
  void apply(std::string& text) const;

 private:
  struct Step {
    enum class Kind {
      form,
      lower_case,
      replace,
      prepend,
      strip,
      clean,
      space_chinese,
      strip_accents
    } kind;
    NormalForm form = NormalForm::nfc;
    std::optional<Pattern> pattern = {};  // of replace
    std::string content = {};             // of replace and prepend
    bool left = false, right = false;     // of strip
  };
  static Step read(const JsonPart& part);
  void add_bert(const JsonPart& part);
  static void replace(const Step& step, std::string& text);
  static void strip(const Step& step, std::string& text);

  std::vector<Step> steps_;
};

}  // namespace trafo
