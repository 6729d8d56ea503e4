// Text of strangers on its way into a Markdown document.
#pragma once

#include <string>
#include <string_view>

namespace translate_train {

// Markdown that shows `text` as it is, in a line or in the cell of a table: no link, picture, HTML,
// code or end of the cell. Characters that terminal_text() spells out are spelled out here, too.
std::string markdown_text(std::string_view text);

}  // namespace translate_train
