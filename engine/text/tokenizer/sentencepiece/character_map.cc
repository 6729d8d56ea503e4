#include "engine/text/tokenizer/sentencepiece/character_map.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/sentencepiece/character_map_entries.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"

namespace trafo {
namespace {

// The library's prefix search has a fixed buffer. More matches along one path would be read past
// its end.
constexpr int kMaxMatches = 32;
constexpr size_t kEscapedSpaceBytes = 3;  // U+2581
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// A unit of the double array: label in bits 0..7 and 31. Bit 8 says that a leaf follows. The rest
// is the offset to the children, or the value of a leaf.
uint32_t child_base(uint32_t position, uint32_t unit) {
  return position ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));
}
constexpr uint32_t kLeaf = 1u << 8;
bool has_leaf(uint32_t unit) {
  return (unit & kLeaf) != 0;
}
bool has_label(uint32_t unit, uint32_t label) {
  return (unit & 0x800000ffu) == label;
}
uint32_t leaf_value(uint32_t unit) {
  return unit & 0x7fffffffu;
}
// The first label >= `label` that leads on from `base`, or 256. Label 0 is never followed: texts
// have no NUL. A pointer: without an optimizer the index of a vector is a call.
uint32_t next_label(const uint32_t* units, uint32_t base, uint32_t label) {
  while (label < 256 && !has_label(units[base ^ label], label)) ++label;
  return label;
}

size_t escaped_bytes(std::string_view text) {
  const auto spaces = static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
  return text.size() + (kEscapedSpaceBytes - 1) * spaces;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view blob, std::string_view name) {
  uint32_t trie_bytes = 0;
  if (blob.size() <= sizeof trie_bytes) fail_spm(name, "its character map is truncated");
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= blob.size() || trie_bytes % 1024 != 0 || trie_bytes == 0)
    fail_spm(name, "its character map has a bad size");
  units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), trie_bytes);
  texts_ = blob.substr(trie_bytes);
  if (texts_.back() != '\0') fail_spm(name, "its character map has an unterminated text");
  check_nodes(name);
}

void CharacterMap::check_nodes(std::string_view name) {
  const auto checked_enter = [&](uint32_t position) {
    const uint32_t base = enter(position);
    if ((base | 0xffu) >= units_.size()) fail_spm(name, "its character map points outside itself");
    return base;
  };
  // Depth-first over the (shared) nodes; `matches` holds 1 + the most leaves on any path below a
  // node.
  std::vector<uint8_t> matches(units_.size(), 0);
  std::vector<bool> active(units_.size(), false);
  struct Frame {
    uint32_t base;
    uint32_t label;
    int most;
    int own;  // the leaf that leads here
  };
  std::vector<Frame> stack{{checked_enter(0), 1, 0, 0}};
  active[stack.back().base] = true;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    frame.label = next_label(units_.data(), frame.base, frame.label);
    if (frame.label == 256) {
      const int total = frame.most + frame.own;
      if (frame.most > kMaxMatches) fail_spm(name, "its character map nests too deep");
      matches[frame.base] = static_cast<uint8_t>(1 + frame.most);
      active[frame.base] = false;
      stack.pop_back();
      if (!stack.empty()) stack.back().most = std::max(stack.back().most, total);
      continue;
    }
    const uint32_t position = frame.base ^ frame.label++;
    const bool leaf = has_leaf(units_[position]);
    const uint32_t child = checked_enter(position);
    if (leaf) longest_ = std::max(longest_, checked_text(units_[child], name));
    if (active[child]) fail_spm(name, "its character map has a cycle");
    if (matches[child] != 0) {
      frame.most = std::max(frame.most, matches[child] - 1 + (leaf ? 1 : 0));
      continue;
    }
    active[child] = true;
    stack.push_back({child, 1, 0, leaf ? 1 : 0});
  }
}

// The escaped size of a leaf's text. The search for its end is bounded: a leaf may point to each
// byte of a long text.
size_t CharacterMap::checked_text(uint32_t leaf, std::string_view name) const {
  if (leaf_value(leaf) >= texts_.size())
    fail_spm(name, "its character map points outside its texts");
  const std::string_view rest = texts_.substr(leaf_value(leaf), limits::kMappedBytes + 1);
  const size_t size = rest.find('\0');
  if (size == std::string_view::npos)
    fail_spm(name, concat("its character map has a text of more than ", limits::kMappedBytes,
                          " bytes for one entry"));
  return escaped_bytes(rest.substr(0, size));
}

uint32_t CharacterMap::enter(uint32_t position) const {
  return child_base(position, units_[position]);
}

std::string_view CharacterMap::next(std::string_view text, size_t& position) const {
  const size_t begin = position;
  std::string_view replacement;
  if (!units_.empty()) {
    uint32_t base = enter(0);
    for (size_t at = begin; at < text.size(); ++at) {
      const uint32_t label = static_cast<unsigned char>(text[at]);
      if (label == 0 || !has_label(units_[base ^ label], label)) break;
      const uint32_t node = base ^ label;
      base = enter(node);
      if (!has_leaf(units_[node])) continue;
      position = at + 1;
      replacement = texts_.data() + leaf_value(units_[base]);
    }
  }
  if (position > begin) return replacement;
  next_code_point(text, position);
  const std::string_view character = text.substr(begin, position - begin);
  return character.size() == 1 && static_cast<unsigned char>(character[0]) >= 0x80 ? kReplacement
                                                                                   : character;
}

size_t CharacterMap::normalized_bytes(std::string_view text) const {
  size_t bytes = kEscapedSpaceBytes;  // the dummy prefix or suffix
  for (size_t position = 0; position < text.size();) bytes += escaped_bytes(next(text, position));
  return bytes;
}

std::string without_entry(std::string_view blob, std::string_view text, std::string_view name) {
  const CharacterMap checked(blob, name);
  std::string changed(blob);
  char* const units = changed.data() + sizeof(uint32_t);
  const auto unit_at = [&](uint32_t position) {
    uint32_t unit;
    std::memcpy(&unit, units + position * sizeof unit, sizeof unit);
    return unit;
  };
  uint32_t node = 0, unit = unit_at(0);
  for (const char c : text) {
    const uint32_t label = static_cast<unsigned char>(c);
    node = child_base(node, unit) ^ label;
    unit = unit_at(node);
    if (!has_label(unit, label)) return changed;
  }
  unit &= ~kLeaf;
  std::memcpy(units + node * sizeof unit, &unit, sizeof unit);
  return changed;
}

bool visit_entries(std::string_view blob, std::string_view name, size_t limit,
                   const std::function<bool(std::string_view)>& each) {
  const CharacterMap checked(blob, name);
  uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), blob.data() + sizeof trie_bytes, trie_bytes);

  struct Frame {
    uint32_t base, label;
  };
  std::vector<Frame> stack{{child_base(0, units[0]), 1}};
  std::string text;  // that leads to the innermost node
  for (size_t entries = 0, nodes = 0; !stack.empty();) {
    Frame& frame = stack.back();
    frame.label = next_label(units.data(), frame.base, frame.label);
    if (frame.label == 256) {
      stack.pop_back();
      if (!stack.empty()) text.pop_back();
      continue;
    }
    const uint32_t label = frame.label++, position = frame.base ^ label, unit = units[position];
    if (++nodes > 4 * limit) return false;
    text += static_cast<char>(label);
    if (has_leaf(unit) && (++entries > limit || !each(text))) return false;
    stack.push_back({child_base(position, unit), 1});
  }
  return true;
}

}  // namespace trafo
