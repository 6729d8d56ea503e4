#include "text/markdown_text.h"

#include "text/terminal_text.h"

namespace translate_train {

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : terminal_text(text)) {
    // A colon, an at sign and the dot of "www." make links without brackets.
    const bool is_link = c == ':' || c == '@' || (c == '.' && out.ends_with('w'));
    if (is_link || std::string_view("\\`*_{}[]<>()#+!|~&$^=").find(c) != std::string_view::npos)
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace translate_train
