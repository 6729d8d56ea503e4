// Records of JSON lines as conversations, in the form that ChatTemplate reads: an object with
// "messages", a list of objects with "role" and "content", and with "tools", if the record has it.
// Members of "chat_template_kwargs" become members, which are variables of the template.
//
// Aliases: "conversations" with "from" and "value" (ShareGPT); "prompt" and "completion";
// "instruction", "input" and "output" (Alpaca), where an empty line goes before the input.
//
// A preference pair is a conversation, the prompt, and two lists of messages that continue it. In a
// record they are "prompt", "chosen" and "rejected". Without "prompt", or with one that is a text
// beside lists, the prompt is what both lists begin with (the implicit prompt of trl).
#pragma once

#include <string>
#include <string_view>

#include "engine/core/strings/json.h"

namespace trafo {

// A record that has the member `kind`, the first one of an alias, as a conversation: JSON in one
// line. Empty if all messages of the assistant, or all of the others, are empty or white space.
// CORRUPT_FILE names `label`, the message and the fault.
std::string conversation_of(const Json& record, std::string_view kind, std::string_view label);

// The parts of a preference pair, each as JSON in one line: an object as conversation_of() makes
// it, and two lists of messages. A part is empty if none of its messages says anything.
struct ChatAnswers {
  std::string prompt, chosen, rejected;
};
// A text in place of a list of messages is one message of the user, in an answer of the assistant.
// CORRUPT_FILE names `label`, the message and the fault.
ChatAnswers answers_of(const Json& record, std::string_view label);
// The same of a labelled answer: "prompt", "completion" and "label", which is true or false. The
// answer is the chosen or the rejected one, and the other one is empty.
ChatAnswers labelled_answer_of(const Json& record, std::string_view label);

}  // namespace trafo
