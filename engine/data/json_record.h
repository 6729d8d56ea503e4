// Records of JSON lines, a JSON object a line, and of CSV: their members or columns are the texts
// of a pair. A record may have other ones, which are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

// The members that the texts of a file's pairs are in.
struct RecordKind;

// Whether a line is a JSON object with a member, or a damaged one that names all members of a kind.
bool is_record(std::string_view line);
// The members by which a line is a record of a kind, for messages; empty if it is text.
std::string record_members(std::string_view line);
// Whether the name of a file says that it has JSON lines: .jsonl, .ndjson or .json, also with .gz.
bool is_json_name(std::string_view path) noexcept;
// The kind of the records of a file that has this line; with `chats`, as conversations.
// CORRUPT_FILE, naming file and line: the line is no record of a kind that can be trained on.
const RecordKind& kind_of_record(std::string_view line, std::string_view file, int64_t number,
                                 bool chats = false);
// Whether the texts of a record are conversations (chat_record.h).
bool are_chats(const RecordKind& kind) noexcept;
// Whether a record has one answer with a label.
bool are_labelled(const RecordKind& kind) noexcept;
CorpusForm form_of(const RecordKind& kind) noexcept;
// Its members, for messages: "prompt and completion".
std::string members_of(const RecordKind& kind);
// The texts of a line, with escapes decoded. Line feeds stay. The views are of `buffers`.
// CORRUPT_FILE, naming file and line: it is no JSON object, a member is missing or no text, or a
// text has a NUL character.
PairView read_record(const RecordKind& kind, std::string_view line, std::string_view file,
                     int64_t number, PairBuffers& buffers);

// The kind of the records of a CSV file whose columns have these names. Conversations are none.
// CORRUPT_FILE, naming `label`: there is no such kind, or a name is there twice.
const RecordKind& kind_of_columns(const std::vector<std::string>& names, std::string_view label);
// The texts of a CSV record. The views are of `buffers`. CORRUPT_FILE, naming `label`: it has more
// or fewer fields than the header, a NUL character, or a label that is not true or false (or 1, 0).
PairView read_fields(const RecordKind& kind, const std::vector<std::string>& names,
                     std::vector<std::string> fields, std::string_view label, PairBuffers& buffers);

}  // namespace trafo
