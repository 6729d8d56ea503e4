// Flags of Marian and fairseq that this program does not have, and what serves instead.
#pragma once

#include <span>
#include <string_view>

namespace translate_train {

struct ForeignFlag {
  const char* command;  // "train" or "translate"
  const char* flags;    // separated by commas
  const char* instead;  // follows the flag in a message
};

std::span<const ForeignFlag> foreign_flags();

// The row that `flag` is in; null if it is in none.
const ForeignFlag* find_foreign_flag(std::string_view command, std::string_view flag);

}  // namespace translate_train
