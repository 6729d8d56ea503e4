#include "engine/interop/spm_subwords.h"

#include <bit>
#include <cstring>

#include "engine/tokenizer/spm_fields.h"

namespace trafo::interop {
namespace {

using namespace spm_field;

constexpr std::string_view kName = "tokenizer";

void add_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void add_bytes(std::string& out, uint32_t number, std::string_view bytes) {
  add_varint(out, uint64_t{number} << 3 | 2);
  add_varint(out, bytes.size());
  out += bytes;
}

ScoredSubword parse_subword(std::string_view message) {
  ScoredSubword subword;
  SpmFields fields(message, kName);
  for (SpmField field; fields.next(field);) {
    if (field.number == kSubwordText) subword.text = field.bytes;
    if (field.number == kSubwordType) subword.type = static_cast<SubwordType>(field.value);
    if (field.number == kSubwordScore)
      subword.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
  }
  return subword;
}

}  // namespace

SpmModel parse_spm(std::string_view serialized) {
  SpmModel model;
  SpmFields fields(serialized, kName);
  for (SpmField field; fields.next(field);) {
    if (field.number == kSubword) {
      model.subwords.push_back(parse_subword(field.bytes));
      continue;
    }
    model.rest += field.whole;
    SpmFields inner(field.bytes, kName);
    for (SpmField f; (field.number == kTrainer || field.number == kNormalizer) && inner.next(f);) {
      if (field.number == kTrainer) {
        if (f.number == kModelType) model.is_unigram = f.value == 1;
      } else if (f.is(kCharacterMap, SpmField::bytes_of)) {
        model.character_map = f.bytes;
      } else if (f.number == kDummyPrefix) {
        model.add_dummy_prefix = f.value != 0;
      } else if (f.number == kExtraWhitespaces) {
        model.remove_extra_whitespaces = f.value != 0;
      } else if (f.number == kEscape) {
        model.escape_whitespaces = f.value != 0;
      }
    }
  }
  return model;
}

std::string serialize_spm(const SpmModel& model, const std::vector<ScoredSubword>& subwords) {
  std::string out;
  for (const ScoredSubword& subword : subwords) {
    std::string message;
    add_bytes(message, kSubwordText, subword.text);
    add_varint(message, kSubwordScore << 3 | 5);
    char score[sizeof subword.score];
    std::memcpy(score, &subword.score, sizeof score);
    message.append(score, sizeof score);
    add_varint(message, kSubwordType << 3);
    add_varint(message, static_cast<uint32_t>(subword.type));
    add_bytes(out, kSubword, message);
  }
  out += model.rest;
  // Fields of a message that comes again are merged, the last one counts.
  std::string names;
  add_bytes(names, kBosToken, "<s>");
  add_bytes(names, kEosToken, "</s>");
  add_bytes(out, kTrainer, names);
  return out;
}

}  // namespace trafo::interop
