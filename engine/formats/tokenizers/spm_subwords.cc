#include "engine/formats/tokenizers/spm_subwords.h"

#include <bit>

#include "engine/core/status.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"

namespace trafo::interop {
namespace {

using namespace spm_field;

constexpr std::string_view kName = "tokenizer";

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

WireWriter with_subwords(const SpmModel& model, const std::vector<ScoredSubword>& subwords) {
  WireWriter out;
  for (const ScoredSubword& subword : subwords) {
    WireWriter message;
    message.bytes(kSubwordText, subword.text);
    message.real(kSubwordScore, subword.score);
    message.integer(kSubwordType, static_cast<int64_t>(subword.type));
    out.bytes(kSubword, message.message());
  }
  out.append(model.rest);
  return out;
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
  WireWriter out = with_subwords(model, subwords);
  // Fields of a message that comes again are merged, the last one counts.
  WireWriter names;
  names.bytes(kBosToken, "<s>");
  names.bytes(kEosToken, "</s>");
  out.bytes(kTrainer, names.message());
  return out.message();
}

std::string serialize_spm(const SpmModel& model, std::vector<ScoredSubword> subwords,
                          const SpecialIds& special, const std::string& label) {
  // The text of a token, which becomes a control token if texts cannot have it. Sets `ordinary` if
  // they can.
  bool ordinary = false;
  const auto make_special = [&](int32_t id, const char* what) -> const std::string& {
    require(id >= 0 && static_cast<size_t>(id) < subwords.size(), ErrorCode::corrupt_file,
            "interop", label, ": ", what, " ", id, " is not one of the ", subwords.size(),
            " tokens of the tokenizer");
    ScoredSubword& subword = subwords[static_cast<size_t>(id)];
    if (subword.type == SubwordType::unused) subword.type = SubwordType::control;
    ordinary |= subword.type != SubwordType::control;
    return subword.text;
  };
  WireWriter trainer, ends;
  if (special.bos >= 0) {
    const std::string& text = make_special(special.bos, "bos_token_id");
    trainer.bytes(ordinary ? kStart : kBosToken, text);
  }
  if (special.pad >= 0) trainer.bytes(kPadToken, make_special(special.pad, "pad_token_id"));
  ordinary = special.eos.size() > 1;
  for (const int32_t id : special.eos) ends.bytes(kEnd, make_special(id, "eos_token_id"));
  if (!special.eos.empty())
    trainer.bytes(kEosToken, subwords[static_cast<size_t>(special.eos.front())].text);
  // An empty list replaces one that the model had.
  trainer.bytes(kEnds, ordinary ? std::string_view(ends.message()) : std::string_view());
  WireWriter out = with_subwords(model, subwords);
  out.bytes(kTrainer, trainer.message());  // fields that come again count
  return out.message();
}

}  // namespace trafo::interop
