#include "engine/text/tokenizer/byte_bpe/text_normalizer.h"

#include <algorithm>

#include "engine/core/limits.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/pattern_part.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

// The ranges that BERT's tokenizer cuts into characters, as the `tokenizers` library has them: it
// begins the last but one extension at U+2B920.
const CodePointSet& chinese_set() {
  static const CodePointSet set = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                   {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                   {0x2f800, 0x2fa1f}};
  return set;
}

// Removes control characters; white space becomes a space.
std::u32string cleaned(const std::u32string& text) {
  static const CodePointTable kSpaces(white_space_set());
  static const CodePointTable kOthers(old_other_set());
  std::u32string clean;
  for (const char32_t c : text) {
    const bool is_kept_control = c == U'\t' || c == U'\n' || c == U'\r';
    if (c == 0xfffd || (kOthers.has(c) && !is_kept_control)) continue;
    clean += kSpaces.has(c) ? U' ' : c;
  }
  return clean;
}

std::u32string with_spaces(const std::u32string& text) {
  static const CodePointTable kChinese(chinese_set());
  std::u32string spaced;
  for (const char32_t c : text) {
    if (kChinese.has(c))
      spaced.append({U' ', c, U' '});
    else
      spaced += c;
  }
  return spaced;
}

std::u32string without_accents(const std::u32string& text) {
  static const CodePointTable kMarks(old_nonspacing_set());
  std::u32string bare = normalized(text, NormalForm::nfd);
  std::erase_if(bare, [](char32_t c) { return kMarks.has(c); });
  return bare;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::u32string to_utf32(std::string_view text) {
  std::u32string characters;
  for (size_t position = 0; position < text.size();) characters += next_code_point(text, position);
  return characters;
}

std::string to_bytes(const std::u32string& characters) {
  std::string text;
  for (const char32_t character : characters) append_utf8(character, text);
  return text;
}

void check_normal_size(size_t from, size_t to) {
  const size_t allowed =
      std::max(limits::kNormalizedFree,
               std::min(limits::kNormalizedGrowth * from, from + limits::kNormalizedExtra));
  require(to <= allowed, ErrorCode::corrupt_file, kTokenizerOrigin,
          "the normalizer of the vocabulary turns a text of ", from, " bytes into ", to,
          ", the limit is ", allowed);
}

}  // namespace

TextNormalizer::TextNormalizer(const JsonPart& part) {
  if (part.is_null()) return;
  for (const JsonPart& step : part.steps("normalizers")) add(step);
}

void TextNormalizer::add(const JsonPart& step) {
  if (step.type() == "BertNormalizer")
    add_bert(step);
  else
    steps_.push_back(read(step));
}

void TextNormalizer::add_bert(const JsonPart& part) {
  const bool lower_case = part.at("lowercase").flag();
  if (part.at("clean_text").flag()) steps_.push_back({.kind = Step::Kind::clean});
  if (part.at("handle_chinese_chars").flag()) steps_.push_back({.kind = Step::Kind::space_chinese});
  if (part.flag("strip_accents", lower_case)) steps_.push_back({.kind = Step::Kind::strip_accents});
  if (lower_case) steps_.push_back({.kind = Step::Kind::lower_case});
}

TextNormalizer::Step TextNormalizer::read(const JsonPart& part) {
  using Kind = Step::Kind;
  const std::string type = part.type();
  if (type == "NFC") return {.kind = Kind::form, .form = NormalForm::nfc};
  if (type == "NFD") return {.kind = Kind::form, .form = NormalForm::nfd};
  if (type == "NFKC") return {.kind = Kind::form, .form = NormalForm::nfkc};
  if (type == "NFKD") return {.kind = Kind::form, .form = NormalForm::nfkd};
  if (type == "Lowercase") return {.kind = Kind::lower_case};
  if (type == "Prepend") return {.kind = Kind::prepend, .content = part.at("prepend").text()};
  if (type == "Replace")
    return {.kind = Kind::replace,
            .pattern = read_pattern(part.at("pattern")),
            .content = part.at("content").text()};
  if (type == "Strip")
    return {.kind = Kind::strip,
            .left = part.at("strip_left").flag(),
            .right = part.at("strip_right").flag()};
  part.refuse("type ", quote(type),
              " is not supported; NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, "
              "BertNormalizer and Sequence are");
}

void TextNormalizer::replace(const Step& step, std::string& text) {
  std::vector<Pattern::Match> matches;
  step.pattern->find_all(text, matches);
  if (matches.empty()) return;
  check_normal_size(text.size(), text.size() + matches.size() * step.content.size());
  std::string result;
  size_t from = 0;
  for (const Pattern::Match& match : matches) {
    result.append(text, from, match.begin - from).append(step.content);
    from = match.end;
  }
  text = result.append(text, from);
}

void TextNormalizer::strip(const Step& step, std::string& text) {
  static const CodePointTable kSpaces(white_space_set());
  std::u32string characters = to_utf32(text);
  const auto is_text = [](char32_t c) { return !kSpaces.has(c); };
  if (step.right)
    characters.erase(std::find_if(characters.rbegin(), characters.rend(), is_text).base(),
                     characters.end());
  if (step.left)
    characters.erase(characters.begin(),
                     std::find_if(characters.begin(), characters.end(), is_text));
  text = to_bytes(characters);
}

void TextNormalizer::apply(std::string& text) const {
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::form:
        if (!is_ascii(text)) {
          const std::u32string before = to_utf32(text);
          std::u32string after = normalized(before, step.form);
          if (after != before) text = to_bytes(after);
        }
        break;
      case Step::Kind::lower_case: {
        std::u32string lower;
        for (const char32_t character : to_utf32(text)) append_lower_case(character, lower);
        text = to_bytes(lower);
        break;
      }
      case Step::Kind::replace:
        replace(step, text);
        break;
      case Step::Kind::prepend:
        check_normal_size(text.size(), text.size() + step.content.size());
        if (!text.empty()) text.insert(0, step.content);
        break;
      case Step::Kind::strip:
        strip(step, text);
        break;
      case Step::Kind::clean:
        text = to_bytes(cleaned(to_utf32(text)));
        break;
      case Step::Kind::space_chinese:
        if (!is_ascii(text)) text = to_bytes(with_spaces(to_utf32(text)));
        break;
      case Step::Kind::strip_accents:
        if (!is_ascii(text)) text = to_bytes(without_accents(to_utf32(text)));
        break;
    }
  }
}

}  // namespace trafo
