// Text of strangers on its way to a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace translate_train {

// `text` with what could steer a terminal or forge a line written out: control characters (C0, DEL,
// C1), line and paragraph separators, and the characters that turn the direction of text become
// \u001B and the like; bytes that are no UTF-8 become \u00FF and the like. In a JSON text that
// means the same. File names, keys of configurations and lines of corpora go through here.
std::string terminal_text(std::string_view text);

}  // namespace translate_train
