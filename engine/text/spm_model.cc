#include "engine/text/spm_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "engine/text/utf8.h"

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
    require(condition, ErrorCode::corrupt_file, "tokenizer", name,
            ": not a usable SentencePiece model: ", reason...);
  }
};

struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;      // varint and fixed types
  std::string_view bytes;  // length-delimited type
};

// Protocol buffers wire format: a sequence of (key, value).
class MessageReader {
 public:
  MessageReader(const Checker& checker, std::string_view bytes)
      : checker_(checker), bytes_(bytes) {}

  bool next(Field& field) {
    if (position_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field.number = static_cast<uint32_t>(key >> 3);
    field.wire_type = static_cast<uint32_t>(key & 7);
    checker_.check(key >> 3 != 0 && key >> 3 < (1u << 29), "bad field number");
    switch (field.wire_type) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2: {
        const uint64_t length = varint();
        checker_.check(length <= bytes_.size() - position_, "truncated at byte ", bytes_.size());
        field.bytes = bytes_.substr(position_, length);
        position_ += length;
        break;
      }
      case 5:
        field.value = fixed(4);
        break;
      default:
        checker_.check(false, "bad wire type ", field.wire_type);
    }
    return true;
  }

 private:
  uint64_t varint() {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      checker_.check(position_ < bytes_.size(), "truncated at byte ", bytes_.size());
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return result;
    }
    checker_.check(false, "a number is too long");
    return 0;
  }

  uint64_t fixed(size_t size) {
    checker_.check(size <= bytes_.size() - position_, "truncated at byte ", bytes_.size());
    uint64_t result = 0;
    for (size_t i = 0; i < size; ++i)
      result |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[position_ + i])) << (8 * i);
    position_ += size;
    return result;
  }

  const Checker& checker_;
  std::string_view bytes_;
  size_t position_ = 0;
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

  void check() {
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
  MessageReader reader(checker, bytes);
  for (Field field; reader.next(field);)
    if (field.number == 2 && field.wire_type == 2 && !field.bytes.empty())
      CharacterMap(checker, field.bytes).check();
}

struct Piece {
  std::string_view text;
  SpmPiece type = SpmPiece::normal;
};

Piece check_piece(const Checker& checker, std::string_view bytes, size_t id) {
  Piece piece;
  bool has_text = false;
  MessageReader reader(checker, bytes);
  for (Field field; reader.next(field);) {
    if (field.number == 1) {
      checker.check(field.wire_type == 2, "piece ", id, " has no text");
      piece.text = field.bytes;
      has_text = true;
    } else if (field.number == 2) {
      checker.check(field.wire_type == 5, "piece ", id, " has no score");
      float score;
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof score);
      checker.check(std::isfinite(score), "piece ", id, " has a score that is not finite");
    } else if (field.number == 3) {
      checker.check(field.wire_type == 0 && field.value >= 1 && field.value <= 6, "piece ", id,
                    " is of no known type");
      piece.type = static_cast<SpmPiece>(field.value);
    }
  }
  checker.check(has_text && !piece.text.empty(), "piece ", id, " is empty");
  checker.check(piece.text.size() <= kMaxPieceBytes, "piece ", id, " has ", piece.text.size(),
                " bytes, the limit is ", kMaxPieceBytes);
  checker.check(is_valid_utf8(piece.text), "piece ", id, " is not UTF-8");
  checker.check(piece.text.find('\0') == std::string_view::npos, "piece ", id, " has a NUL byte");
  return piece;
}

SpmKind check_trainer(const Checker& checker, std::string_view bytes) {
  auto kind = SpmKind::unigram;
  MessageReader reader(checker, bytes);
  for (Field field; reader.next(field);) {
    if (field.number != 3) continue;
    checker.check(field.wire_type == 0 && field.value >= 1 && field.value <= 4,
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
  std::vector<std::string_view> user_defined;
  size_t pieces = 0;
  MessageReader reader(checker, serialized);
  for (Field field; reader.next(field);) {
    if (field.number >= 1 && field.number <= 5)
      checker.check(field.wire_type == 2, "field ", field.number, " is not a message");
    if (field.number == 1) {
      checker.check(pieces < kMaxVocabulary, "more than ", kMaxVocabulary, " pieces");
      const Piece piece = check_piece(checker, field.bytes, pieces++);
      summary.pieces.push_back(piece.type);
      if (piece.type == SpmPiece::user_defined) user_defined.push_back(piece.text);
    } else if (field.number == 2) {
      summary.kind = check_trainer(checker, field.bytes);
    } else if (field.number == 3 || field.number == 5) {
      check_normalizer(checker, field.bytes);
    }
  }
  checker.check(pieces > 0, "it has no pieces");
  check_user_defined(checker, std::move(user_defined));
  return summary;
}

}  // namespace trafo
