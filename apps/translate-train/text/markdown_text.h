// Text of strangers on its way into a Markdown document.
#pragma once

#include <string>
#include <string_view>

namespace translate_train {

// Markdown that shows `text` as it is, in a line or in the cell of a table: no link, picture, HTML,
// code or end of the cell. What terminal_text() writes out is written out here, too.
std::string markdown_text(std::string_view text);

}  // namespace translate_train
