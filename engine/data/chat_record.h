// Records of JSON lines as conversations, in the form that ChatTemplate reads: an object with
// "messages", a list of objects with "role" and "content", and with "tools", if the record has it.
// Members of "chat_template_kwargs" become members, which are variables of the template.
//
// Aliases: "conversations" with "from" and "value" (ShareGPT); "prompt" and "completion";
// "instruction", "input" and "output" (Alpaca), where an empty line goes before the input.
#pragma once

#include <string>
#include <string_view>

#include "engine/core/strings/json.h"

namespace trafo {

// A record that has the member `kind`, the first one of an alias, as a conversation: JSON in one
// line. Empty if all messages of the assistant, or all of the others, are empty or white space.
// CORRUPT_FILE names `label`, the message and the fault.
std::string conversation_of(const Json& record, std::string_view kind, std::string_view label);

}  // namespace trafo
