#include "engine/data/json_record.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/data/chat_record.h"

namespace trafo {

struct RecordKind {
  CorpusForm form;
  std::string_view members[3];  // as many as the form has texts
  bool alpaca = false;          // the source is made of them by Alpaca's template
  int members_of_chat = 0;      // a conversation is made of so many; 0: none is
};

namespace {

constexpr std::string_view kRecordOrigin = "corpus";
constexpr std::string_view kSpaces = " \t\r\n";

// The first kind whose members a record has.
constexpr RecordKind kRecordKinds[] = {
    {CorpusForm::preferences, {"prompt", "chosen", "rejected"}},
    {CorpusForm::parallel, {"prompt", "completion"}},
    {CorpusForm::parallel, {"source", "target"}},
    {CorpusForm::parallel, {"instruction", "output"}, true},
    {CorpusForm::monolingual, {"messages"}, false, 1},
    {CorpusForm::monolingual, {"conversations"}, false, 1},
    {CorpusForm::monolingual, {"text"}},
};
// The same where the caller says that the records are conversations.
constexpr RecordKind kChatKinds[] = {
    {CorpusForm::monolingual, {"messages"}, false, 1},
    {CorpusForm::monolingual, {"conversations"}, false, 1},
    {CorpusForm::monolingual, {"prompt", "completion"}, false, 2},
    {CorpusForm::monolingual, {"instruction", "output"}, false, 2},
};

Json parse_record(std::string_view line, std::string_view label) {
  return parse_json(line, kRecordOrigin, label, {.bytes = line.size()});
}

std::vector<std::string> names_of(const RecordKind& kind) {
  const int count = are_chats(kind) ? kind.members_of_chat : static_cast<int>(kind.form);
  return {std::begin(kind.members), std::begin(kind.members) + count};
}

// Whether a line begins as an object with a member does.
bool begins_record(std::string_view line) noexcept {
  const auto skip_spaces = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
  };
  const auto skip = [&](char expected) {
    skip_spaces();
    if (!line.starts_with(expected)) return false;
    line.remove_prefix(1);
    return true;
  };
  if (!skip('{') || !skip('"')) return false;
  size_t end = 0;
  while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
  if (end >= line.size()) return false;
  line.remove_prefix(end + 1);
  return skip(':');
}

// Whether "name": is in a line.
bool names_member(std::string_view line, const std::string& name) {
  const std::string quoted = concat('"', name, '"');
  for (size_t at = line.find(quoted); at != std::string_view::npos; at = line.find(quoted, at)) {
    at += quoted.size();
    const size_t next = line.find_first_not_of(kSpaces, at);
    if (next != std::string_view::npos && line[next] == ':') return true;
  }
  return false;
}

// The first kind whose members all satisfy has(name), null if there is none.
template <class Has>
const RecordKind* kind_where(Has has, std::span<const RecordKind> kinds = kRecordKinds) {
  for (const RecordKind& kind : kinds)
    if (std::ranges::all_of(names_of(kind), has)) return &kind;
  return nullptr;
}
const RecordKind* find_kind(const Json& record, std::span<const RecordKind> kinds = kRecordKinds) {
  return kind_where([&](const std::string& name) { return record.find(name) != nullptr; }, kinds);
}
// Members of a record, for messages. The file chooses their names and their number.
std::string found_members(const Json& record) {
  constexpr size_t kMost = 8;
  const Json::Object& members = *record.as<Json::Object>();
  if (members.empty()) return "no members";
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(members.size(), kMost); ++i)
    names.push_back(quote(members[i].key));
  return concat("the members ", joined_names(names),
                members.size() > kMost ? concat(" and ", members.size() - kMost, " others") : "");
}

// The prompt of Alpaca's training program: github.com/tatsu-lab/stanford_alpaca, train.py.
std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  std::string prompt = "Below is an instruction that describes a task";
  prompt += input.empty() ? ". " : ", paired with an input that provides further context. ";
  prompt += "Write a response that appropriately completes the request.\n\n### Instruction:\n";
  prompt += instruction;
  if (!input.empty()) prompt += concat("\n\n### Input:\n", input);
  return prompt + "\n\n### Response:";
}

}  // namespace

bool is_record(std::string_view line) {
  if (!begins_record(line)) return false;
  try {
    parse_record(line, {});
    return true;
  } catch (const Error&) {
    return kind_where([&](const std::string& name) { return names_member(line, name); }) != nullptr;
  }
}

std::string record_members(std::string_view line) {
  if (!begins_record(line)) return {};
  try {
    const Json record = parse_record(line, {});
    const RecordKind* kind = find_kind(record);
    return kind != nullptr ? members_of(*kind) : std::string();
  } catch (const Error&) {
    return {};
  }
}

bool is_json_name(std::string_view path) noexcept {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || path.ends_with(".json");
}

const RecordKind& kind_of_record(std::string_view line, std::string_view file, int64_t number,
                                 bool chats) {
  const std::span<const RecordKind> kinds =
      chats ? std::span<const RecordKind>(kChatKinds) : kRecordKinds;
  const std::string label = concat(file, ":", number);
  const auto check = [&](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kRecordOrigin, label, ": ", why...);
  };
  const size_t begin = line.find_first_not_of(kSpaces);
  check(begin == std::string_view::npos || line[begin] != '[',
        "it is a JSON array, not an object a line: jq -c '.[]' writes JSON lines");
  const Json record = parse_record(line, label);
  check(record.as<Json::Object>() != nullptr, "no JSON object");
  if (const RecordKind* kind = find_kind(record, kinds)) return *kind;
  std::string wanted;
  for (const RecordKind& kind : kinds) wanted += (wanted.empty() ? ": " : "; ") + members_of(kind);
  fail(ErrorCode::corrupt_file, kRecordOrigin, label, ": a JSON object with ",
       found_members(record), chats ? "; conversations are these" : "; training reads these",
       wanted, chats ? "" : "; if it is text, choose the format text");
}

bool are_chats(const RecordKind& kind) noexcept {
  return kind.members_of_chat > 0;
}

CorpusForm form_of(const RecordKind& kind) noexcept {
  return kind.form;
}

std::string members_of(const RecordKind& kind) {
  return joined_names(names_of(kind));
}

PairView read_record(const RecordKind& kind, std::string_view line, std::string_view file,
                     int64_t number, PairBuffers& buffers) {
  const std::string label = concat(file, ":", number);
  const Json record = parse_record(line, label);
  const JsonFields fields(record, kRecordOrigin, label);
  const auto take = [&](std::string_view name, std::string& text) {
    fields.take(name, text);
    require(text.find('\0') == std::string::npos, ErrorCode::corrupt_file, kRecordOrigin, label,
            ": ", name, " has a NUL character");
  };
  if (are_chats(kind)) {
    buffers.target = conversation_of(record, kind.members[0], label);
    return {{}, buffers.target};
  }
  if (kind.form == CorpusForm::monolingual) {
    take(kind.members[0], buffers.target);
    return {{}, buffers.target};
  }
  take(kind.members[0], buffers.source);
  take(kind.members[1], buffers.target);
  if (kind.alpaca) {
    std::string input;
    if (const Json* found = record.find("input"); found && !found->as<std::nullptr_t>())
      take("input", input);
    if (!is_blank(buffers.source)) buffers.source = alpaca_prompt(buffers.source, input);
  }
  if (kind.form == CorpusForm::parallel) return {buffers.source, buffers.target};
  take(kind.members[2], buffers.rejected);
  return {buffers.source, buffers.target, buffers.rejected};
}

}  // namespace trafo
