#include "engine/data/json_record.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/quote.h"
#include "engine/data/chat_record.h"

namespace trafo {

enum class RecordTexts : uint8_t {
  as_they_are,
  alpaca,  // the source is made by Alpaca's template
  chat,    // conversations
};

struct RecordKind {
  CorpusForm form;
  std::string_view members[3];
  RecordTexts texts = RecordTexts::as_they_are;
  std::string_view list = {};  // the member that is a list of messages; empty: no matter
  bool labelled = false;       // the last member is true or false
};

namespace {

constexpr std::string_view kRecordOrigin = "corpus";
constexpr std::string_view kSpaces = " \t\r\n";

// The first kind whose members a record has.
constexpr RecordKind kRecordKinds[] = {
    {CorpusForm::preferences, {"chosen", "rejected"}, RecordTexts::chat, "chosen"},
    {CorpusForm::preferences, {"prompt", "chosen", "rejected"}},
    {CorpusForm::preferences,
     {"prompt", "completion", "label"},
     RecordTexts::chat,
     "completion",
     true},
    {CorpusForm::preferences,
     {"prompt", "completion", "label"},
     RecordTexts::as_they_are,
     {},
     true},
    {CorpusForm::parallel, {"prompt", "completion"}},
    {CorpusForm::parallel, {"source", "target"}},
    {CorpusForm::parallel, {"instruction", "output"}, RecordTexts::alpaca},
    {CorpusForm::monolingual, {"messages"}, RecordTexts::chat},
    {CorpusForm::monolingual, {"conversations"}, RecordTexts::chat},
    {CorpusForm::monolingual, {"text"}},
};
// The same where the caller says that the records are conversations.
constexpr RecordKind kChatKinds[] = {
    {CorpusForm::preferences, {"chosen", "rejected"}, RecordTexts::chat, "chosen"},
    {CorpusForm::preferences, {"prompt", "chosen", "rejected"}, RecordTexts::chat},
    {CorpusForm::preferences, {"prompt", "completion", "label"}, RecordTexts::chat, {}, true},
    {CorpusForm::monolingual, {"messages"}, RecordTexts::chat},
    {CorpusForm::monolingual, {"conversations"}, RecordTexts::chat},
    {CorpusForm::monolingual, {"prompt", "completion"}, RecordTexts::chat},
    {CorpusForm::monolingual, {"instruction", "output"}, RecordTexts::chat},
};

Json parse_record(std::string_view line, std::string_view label) {
  return parse_json(line, kRecordOrigin, label, {.bytes = line.size()});
}

std::vector<std::string> names_of(const RecordKind& kind) {
  std::vector<std::string> names;
  for (const std::string_view name : kind.members)
    if (!name.empty()) names.emplace_back(name);
  return names;
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

const RecordKind* find_kind(const Json& record, std::span<const RecordKind> kinds = kRecordKinds) {
  const auto fits = [&](const RecordKind& kind) {
    const std::vector<std::string> names = names_of(kind);
    if (!std::ranges::all_of(names, [&](const auto& name) { return record.find(name); }))
      return false;
    return (kind.list.empty() || record.find(kind.list)->as<Json::List>()) &&
           (!kind.labelled || record.find(names.back())->as<bool>());
  };
  const auto found = std::ranges::find_if(kinds, fits);
  return found == kinds.end() ? nullptr : &*found;
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
    return std::ranges::any_of(kRecordKinds, [&](const RecordKind& kind) {
      return std::ranges::all_of(names_of(kind),
                                 [&](const std::string& name) { return names_member(line, name); });
    });
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
  for (const RecordKind& kind : kinds)
    if (kind.list.empty()) wanted += (wanted.empty() ? ": " : "; ") + members_of(kind);
  fail(ErrorCode::corrupt_file, kRecordOrigin, label, ": a JSON object with ",
       found_members(record), chats ? "; conversations are these" : "; training reads these",
       wanted, "; prompts and answers may be lists of messages",
       chats ? "" : "; if it is text, choose the format text");
}

bool are_chats(const RecordKind& kind) noexcept {
  return kind.texts == RecordTexts::chat;
}

bool are_labelled(const RecordKind& kind) noexcept {
  return kind.labelled;
}

CorpusForm form_of(const RecordKind& kind) noexcept {
  return kind.form;
}

std::string members_of(const RecordKind& kind) {
  return joined_names(names_of(kind));
}

namespace {

// The texts of a record that is no conversation. take(name, text) and take_label(name) get a member
// that must be there, has(name) says whether one is.
template <class Take, class TakeLabel, class Has>
PairView texts_of(const RecordKind& kind, PairBuffers& buffers, Take take, TakeLabel take_label,
                  Has has) {
  if (kind.form == CorpusForm::monolingual) {
    take(kind.members[0], buffers.target);
    return {{}, buffers.target};
  }
  take(kind.members[0], buffers.source);
  take(kind.members[1], buffers.target);
  if (kind.labelled) {
    buffers.rejected.clear();
    if (!take_label(kind.members[2])) std::swap(buffers.target, buffers.rejected);
    return {buffers.source, buffers.target, buffers.rejected};
  }
  if (kind.texts == RecordTexts::alpaca) {
    std::string input;
    if (has("input")) take("input", input);
    if (!is_blank(buffers.source)) buffers.source = alpaca_prompt(buffers.source, input);
  }
  if (kind.form == CorpusForm::parallel) return {buffers.source, buffers.target};
  take(kind.members[2], buffers.rejected);
  return {buffers.source, buffers.target, buffers.rejected};
}

}  // namespace

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
  if (are_chats(kind) && kind.form == CorpusForm::preferences) {
    ChatAnswers answers =
        kind.labelled ? labelled_answer_of(record, label) : answers_of(record, label);
    buffers.source = std::move(answers.prompt);
    buffers.target = std::move(answers.chosen);
    buffers.rejected = std::move(answers.rejected);
    return {buffers.source, buffers.target, buffers.rejected};
  }
  if (are_chats(kind)) {
    buffers.target = conversation_of(record, kind.members[0], label);
    return {{}, buffers.target};
  }
  const auto take_label = [&](std::string_view name) {
    bool desirable = false;
    fields.take(name, desirable);
    return desirable;
  };
  const auto has = [&](std::string_view name) {
    const Json* found = record.find(name);
    return found != nullptr && !found->as<std::nullptr_t>();
  };
  return texts_of(kind, buffers, take, take_label, has);
}

const RecordKind& kind_of_columns(const std::vector<std::string>& names, std::string_view label) {
  const auto check = [&](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kRecordOrigin, label, ": ", why...);
  };
  std::vector<std::string> quoted;
  for (const std::string& name : names) {
    check(std::ranges::count(names, name) == 1, "two columns have the name ", quote(name));
    quoted.push_back(quote(name));
  }
  std::string wanted;
  for (const RecordKind& kind : kRecordKinds) {
    if (are_chats(kind)) continue;
    const std::vector<std::string> members = names_of(kind);
    if (std::ranges::all_of(members, [&](const std::string& name) {
          return std::ranges::find(names, name) != names.end();
        }))
      return kind;
    wanted += (wanted.empty() ? "" : "; ") + joined_names(members);
  }
  fail(ErrorCode::corrupt_file, kRecordOrigin, label,
       ": the first line of CSV has the names of the columns, and these are ", joined_names(quoted),
       "; training reads these: ", wanted,
       names.size() == 1 && names[0].find_first_of(";\t") != std::string::npos
           ? "; columns are separated by commas"
           : "");
}

PairView read_fields(const RecordKind& kind, const std::vector<std::string>& names,
                     std::vector<std::string> fields, std::string_view label,
                     PairBuffers& buffers) {
  const auto check = [&](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kRecordOrigin, label, ": ", why...);
  };
  check(fields.size() == names.size(), fields.size(), " fields, the header has ", names.size(),
        " columns");
  const auto has = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto field = [&](std::string_view name) -> std::string& {
    return fields[static_cast<size_t>(std::ranges::find(names, name) - names.begin())];
  };
  const auto take = [&](std::string_view name, std::string& text) {
    text = std::move(field(name));
    check(text.find('\0') == std::string::npos, name, " has a NUL character");
  };
  const auto take_label = [&](std::string_view name) {
    std::string& text = field(name);
    std::ranges::transform(text, text.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const bool desirable = text == "true" || text == "1";
    check(desirable || text == "false" || text == "0", name, " is ", quote(text),
          ", it must be true or false");
    return desirable;
  };
  return texts_of(kind, buffers, take, take_label, has);
}

}  // namespace trafo
