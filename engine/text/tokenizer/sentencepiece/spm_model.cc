#include "engine/text/tokenizer/sentencepiece/spm_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"

namespace trafo {
namespace {

// The library's prefix search has a fixed buffer. More matches along one path would be read past
// its end.
constexpr int kMaxUserDefinedPrefixes = 64;
constexpr size_t kMostEnds = 64;

struct Checker {
  std::string_view name;

  template <class... Args>
  void check(bool condition, const Args&... reason) const {
    if (!condition) fail_spm(name, concat(reason...));
  }
};

// A message that comes again is merged with those before it: what this one lacks stays.
void read_map(std::string_view bytes, std::string_view name, CharacterMap& map) {
  SpmFields reader(bytes, name);
  for (SpmField field; reader.next(field);)
    if (field.is(spm_field::kCharacterMap, SpmField::bytes_of))
      map = field.bytes.empty() ? CharacterMap() : CharacterMap(field.bytes, name);
}

void read_normalizer(std::string_view bytes, std::string_view name, SpmSummary& summary) {
  read_map(bytes, name, summary.normalizer);
  SpmFields reader(bytes, name);
  for (SpmField field; reader.next(field);) {
    if (field.is(spm_field::kDummyPrefix, SpmField::varint))
      summary.dummy_prefix = field.value != 0;
    if (field.is(spm_field::kExtraWhitespaces, SpmField::varint))
      summary.removes_spaces = field.value != 0;
  }
}

struct Subword {
  std::string_view text;
  SubwordType type = SubwordType::normal;
};

bool is_byte_text(std::string_view text) {
  const auto digit = [&](size_t i) {
    return (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'F');
  };
  return text.size() == 6 && text.starts_with("<0x") && digit(3) && digit(4) && text[5] == '>';
}

Subword check_subword(const Checker& checker, std::string_view bytes, size_t id) {
  Subword subword;
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);) {
    if (field.number == spm_field::kSubwordText) {
      checker.check(field.wire == SpmField::bytes_of, "subword ", id, " has no text");
      subword.text = field.bytes;
    } else if (field.number == spm_field::kSubwordScore) {
      checker.check(field.wire == SpmField::fixed32, "subword ", id, " has no score");
      float score;
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof score);
      checker.check(std::isfinite(score), "subword ", id, " has a score that is not finite");
    } else if (field.number == spm_field::kSubwordType) {
      checker.check(field.wire == SpmField::varint && field.value >= 1 && field.value <= 6,
                    "subword ", id, " is of no known type");
      subword.type = static_cast<SubwordType>(field.value);
    }
  }
  checker.check(!subword.text.empty(), "subword ", id, " is empty");
  checker.check(subword.text.size() <= limits::kSubwordBytes, "subword ", id, " has ",
                subword.text.size(), " bytes, the limit is ", limits::kSubwordBytes);
  checker.check(is_valid_utf8(subword.text), "subword ", id, " is not UTF-8");
  checker.check(subword.text.find('\0') == std::string_view::npos, "subword ", id,
                " has a NUL byte");
  checker.check(subword.type != SubwordType::byte || is_byte_text(subword.text), "subword ", id,
                " stands for a byte and is not written as <0x00> to <0xFF>");
  return subword;
}

std::vector<std::string> read_ends(const Checker& checker, std::string_view bytes) {
  std::vector<std::string> ends;
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);) {
    checker.check(field.is(spm_field::kEnd, SpmField::bytes_of) && ends.size() < kMostEnds &&
                      field.bytes.size() <= limits::kSubwordBytes,
                  "its tokens that end a text are no list of at most ", kMostEnds, " subwords");
    ends.emplace_back(field.bytes);
  }
  return ends;
}

// Merged as the normalizer's are.
void check_trainer(const Checker& checker, std::string_view bytes, SpmSummary& summary) {
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);) {
    if (field.number == spm_field::kUnknownSurface) {
      checker.check(field.bytes.size() <= limits::kSubwordBytes,
                    "its unknown subword is written as ", field.bytes.size(),
                    " bytes, the limit is ", limits::kSubwordBytes);
    } else if (field.number == spm_field::kModelType) {
      checker.check(field.wire == SpmField::varint && field.value >= 1 && field.value <= 4,
                    "it is of no known kind");
      summary.kind = static_cast<SpmKind>(field.value);
    } else if (field.is(spm_field::kEnds, SpmField::bytes_of)) {
      summary.ends = read_ends(checker, field.bytes);
    } else if (field.is(spm_field::kStart, SpmField::bytes_of)) {
      checker.check(field.bytes.size() <= limits::kSubwordBytes, "its start token is too long");
      summary.start = field.bytes;
    }
  }
}

// Longest chain of subwords that are prefixes of each other; sorted, a prefix precedes the texts
// that it starts.
void check_user_defined(const Checker& checker, std::vector<std::string_view> texts) {
  std::sort(texts.begin(), texts.end());
  std::vector<std::string_view> chain;
  for (const std::string_view text : texts) {
    while (!chain.empty() && !text.starts_with(chain.back())) chain.pop_back();
    chain.push_back(text);
    checker.check(chain.size() <= kMaxUserDefinedPrefixes,
                  "too many user-defined subwords start with each other");
  }
}

}  // namespace

SpmSummary check_spm_model(std::string_view serialized, std::string_view name) {
  const Checker checker{name};
  checker.check(!serialized.empty(), "it is empty");
  checker.check(serialized.size() <= static_cast<size_t>(INT32_MAX), "it is over 2 GiB");
  SpmSummary summary;
  std::vector<std::string_view> texts, user_defined;
  size_t subwords = 0;
  SpmFields reader(serialized, name);
  for (SpmField field; reader.next(field);) {
    if (field.number <= 5)
      checker.check(field.wire == SpmField::bytes_of, "field ", field.number, " is not a message");
    if (field.number == spm_field::kSubword) {
      checker.check(subwords < limits::kVocabulary, "more than ", limits::kVocabulary, " subwords");
      const Subword subword = check_subword(checker, field.bytes, subwords++);
      summary.subwords.push_back(subword.type);
      texts.push_back(subword.text);
      if (subword.type == SubwordType::user_defined) user_defined.push_back(subword.text);
    } else if (field.number == spm_field::kTrainer) {
      check_trainer(checker, field.bytes, summary);
    } else if (field.number == spm_field::kNormalizer) {
      read_normalizer(field.bytes, name, summary);
    } else if (field.number == spm_field::kDenormalizer) {
      read_map(field.bytes, name, summary.denormalizer);
    } else if (field.number == spm_field::kSelfTest) {
      summary.has_self_test = true;
    }
  }
  checker.check(subwords > 0, "it has no subwords");
  std::sort(texts.begin(), texts.end());
  checker.check(std::adjacent_find(texts.begin(), texts.end()) == texts.end(),
                "two subwords have the same text");
  for (const std::string& special : summary.ends)
    checker.check(std::binary_search(texts.begin(), texts.end(), std::string_view(special)),
                  "a token that ends a text is no subword of it");
  checker.check(summary.start.empty() ||
                    std::binary_search(texts.begin(), texts.end(), std::string_view(summary.start)),
                "its start token is no subword of it");
  check_user_defined(checker, std::move(user_defined));
  return summary;
}

std::string_view character_map_of(std::string_view serialized, std::string_view name) {
  std::string_view map;
  SpmFields reader(serialized, name);
  for (SpmField field; reader.next(field);) {
    if (!field.is(spm_field::kNormalizer, SpmField::bytes_of)) continue;
    SpmFields inside(field.bytes, name);
    for (SpmField part; inside.next(part);)
      if (part.is(spm_field::kCharacterMap, SpmField::bytes_of)) map = part.bytes;
  }
  return map;
}

std::string without_self_test(std::string_view serialized, std::string_view name) {
  std::string model;
  model.reserve(serialized.size());
  SpmFields reader(serialized, name);
  for (SpmField field; reader.next(field);)
    if (field.number != spm_field::kSelfTest) model += field.whole;
  return model;
}

// One more message of the normalizer, which is merged with the model's.
std::string without_dummy_prefix(std::string_view serialized) {
  WireWriter normalizer, model;
  normalizer.integer(spm_field::kDummyPrefix, 0);
  model.append(serialized);
  model.bytes(spm_field::kNormalizer, normalizer.message());
  return model.message();
}

}  // namespace trafo
