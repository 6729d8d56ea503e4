#include "engine/tokenizer/spm_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/utf8.h"
#include "engine/tokenizer/spm_fields.h"

namespace trafo {
namespace {

// Fixed buffers of the library's prefix searches; more matches along one path would be read past
// their end.
constexpr int kMaxNormalizerMatches = 32;
constexpr int kMaxUserDefinedPrefixes = 64;

struct Checker {
  std::string_view name;

  template <class... Args>
  void check(bool condition, const Args&... reason) const {
    if (!condition) fail_spm(name, concat(reason...));
  }
};

// Double array of the character map (darts-clone's layout): label in bits 0..7 and 31, bit 8 says
// that a leaf follows, the rest is the offset to the children, or a leaf's value.
class CharacterMap {
 public:
  CharacterMap(const Checker& checker, std::string_view blob) : checker_(checker) {
    uint32_t trie_bytes = 0;
    checker.check(blob.size() > sizeof trie_bytes, "its character map is truncated");
    std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
    blob.remove_prefix(sizeof trie_bytes);
    checker.check(trie_bytes < blob.size() && trie_bytes % 1024 == 0 && trie_bytes > 0,
                  "its character map has a bad size");
    units_.resize(trie_bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), blob.data(), trie_bytes);
    texts_ = blob.substr(trie_bytes);
    checker.check(texts_.back() == '\0', "its character map has an unterminated text");
  }

  void check_leaves() {
    // Depth-first over the (shared) nodes; `matches_` holds 1 + the most leaves on any path below a
    // node.
    matches_.assign(units_.size(), 0);
    active_.assign(units_.size(), false);
    struct Frame {
      uint32_t base;
      uint32_t label;
      int most;
      int own;  // the leaf that leads here
    };
    std::vector<Frame> stack{{enter(0), 1, 0, 0}};
    active_[stack.back().base] = true;
    while (!stack.empty()) {
      Frame& frame = stack.back();
      frame.label = next_child(frame.base, frame.label);
      if (frame.label == 256) {
        const int total = frame.most + frame.own;
        checker_.check(frame.most <= kMaxNormalizerMatches, "its character map nests too deep");
        matches_[frame.base] = static_cast<uint8_t>(1 + frame.most);
        active_[frame.base] = false;
        stack.pop_back();
        if (!stack.empty()) stack.back().most = std::max(stack.back().most, total);
        continue;
      }
      const uint32_t position = frame.base ^ frame.label++;
      const uint32_t unit = units_[position];
      const bool leaf = (unit >> 8 & 1) != 0;
      const uint32_t child = enter(position);
      if (leaf)
        checker_.check((units_[child] & 0x7fffffffu) < texts_.size(),
                       "its character map points outside its texts");
      checker_.check(!active_[child], "its character map has a cycle");
      if (matches_[child] != 0) {
        frame.most = std::max(frame.most, matches_[child] - 1 + (leaf ? 1 : 0));
        continue;
      }
      active_[child] = true;
      stack.push_back({child, 1, 0, leaf ? 1 : 0});
    }
  }

 private:
  // The first label >= `label` that leads on from `base`, or 256. Label 0 is never followed: texts
  // have no NUL.
  uint32_t next_child(uint32_t base, uint32_t label) const {
    const uint32_t* units = units_.data();
    while (label < 256 && (units[base ^ label] & 0x800000ffu) != label) ++label;
    return label;
  }

  uint32_t enter(uint32_t position) const {
    const uint32_t unit = units_[position];
    const uint32_t base = position ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));
    checker_.check((base | 0xffu) < units_.size(), "its character map points outside itself");
    return base;
  }

  const Checker& checker_;
  std::vector<uint32_t> units_;
  std::string_view texts_;
  std::vector<uint8_t> matches_;
  std::vector<bool> active_;
};

void check_normalizer(const Checker& checker, std::string_view bytes) {
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);)
    if (field.is(spm_field::kCharacterMap, SpmField::bytes_of) && !field.bytes.empty())
      CharacterMap(checker, field.bytes).check_leaves();
}

struct Piece {
  std::string_view text;
  SpmPiece type = SpmPiece::normal;
};

bool is_byte_text(std::string_view text) {
  const auto digit = [&](size_t i) {
    return (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'F');
  };
  return text.size() == 6 && text.starts_with("<0x") && digit(3) && digit(4) && text[5] == '>';
}

Piece check_piece(const Checker& checker, std::string_view bytes, size_t id) {
  Piece piece;
  bool has_text = false;
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);) {
    if (field.number == spm_field::kPieceText) {
      checker.check(field.wire == SpmField::bytes_of, "piece ", id, " has no text");
      piece.text = field.bytes;
      has_text = true;
    } else if (field.number == spm_field::kPieceScore) {
      checker.check(field.wire == SpmField::fixed32, "piece ", id, " has no score");
      float score;
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof score);
      checker.check(std::isfinite(score), "piece ", id, " has a score that is not finite");
    } else if (field.number == spm_field::kPieceType) {
      checker.check(field.wire == SpmField::varint && field.value >= 1 && field.value <= 6,
                    "piece ", id, " is of no known type");
      piece.type = static_cast<SpmPiece>(field.value);
    }
  }
  checker.check(has_text && !piece.text.empty(), "piece ", id, " is empty");
  checker.check(piece.text.size() <= limits::kPieceBytes, "piece ", id, " has ", piece.text.size(),
                " bytes, the limit is ", limits::kPieceBytes);
  checker.check(is_valid_utf8(piece.text), "piece ", id, " is not UTF-8");
  checker.check(piece.text.find('\0') == std::string_view::npos, "piece ", id, " has a NUL byte");
  checker.check(piece.type != SpmPiece::byte || is_byte_text(piece.text), "piece ", id,
                " stands for a byte and is not written as <0x00> to <0xFF>");
  return piece;
}

SpmKind check_trainer(const Checker& checker, std::string_view bytes) {
  auto kind = SpmKind::unigram;
  SpmFields reader(bytes, checker.name);
  for (SpmField field; reader.next(field);) {
    if (field.number != spm_field::kModelType) continue;
    checker.check(field.wire == SpmField::varint && field.value >= 1 && field.value <= 4,
                  "it is of no known kind");
    kind = static_cast<SpmKind>(field.value);
  }
  return kind;
}

// Longest chain of pieces that are prefixes of each other; sorted, a prefix stands before what it
// starts.
void check_user_defined(const Checker& checker, std::vector<std::string_view> texts) {
  std::sort(texts.begin(), texts.end());
  std::vector<std::string_view> chain;
  for (const std::string_view text : texts) {
    while (!chain.empty() && !text.starts_with(chain.back())) chain.pop_back();
    chain.push_back(text);
    checker.check(chain.size() <= kMaxUserDefinedPrefixes,
                  "too many user-defined pieces start with each other");
  }
}

}  // namespace

SpmSummary check_spm_model(std::string_view serialized, std::string_view name) {
  const Checker checker{name};
  checker.check(!serialized.empty(), "it is empty");
  checker.check(serialized.size() <= static_cast<size_t>(INT32_MAX), "it is over 2 GiB");
  SpmSummary summary;
  std::vector<std::string_view> texts, user_defined;
  size_t pieces = 0;
  SpmFields reader(serialized, name);
  for (SpmField field; reader.next(field);) {
    if (field.number <= 5)
      checker.check(field.wire == SpmField::bytes_of, "field ", field.number, " is not a message");
    if (field.number == spm_field::kPiece) {
      checker.check(pieces < limits::kVocabulary, "more than ", limits::kVocabulary, " pieces");
      const Piece piece = check_piece(checker, field.bytes, pieces++);
      summary.pieces.push_back(piece.type);
      texts.push_back(piece.text);
      if (piece.type == SpmPiece::user_defined) user_defined.push_back(piece.text);
    } else if (field.number == spm_field::kTrainer) {
      summary.kind = check_trainer(checker, field.bytes);
    } else if (field.number == spm_field::kNormalizer || field.number == spm_field::kDenormalizer) {
      check_normalizer(checker, field.bytes);
    }
  }
  checker.check(pieces > 0, "it has no pieces");
  std::sort(texts.begin(), texts.end());
  checker.check(std::adjacent_find(texts.begin(), texts.end()) == texts.end(),
                "two pieces have the same text");
  check_user_defined(checker, std::move(user_defined));
  return summary;
}

}  // namespace trafo
