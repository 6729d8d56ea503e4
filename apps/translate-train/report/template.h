// Fills the templates of report/template/ with data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace translate_train {

// The files of report/template/, which CMake compiles into the program.
std::string_view report_template();
std::string_view report_style();
std::string_view report_script();

// {{name}} is a text, which is escaped; {{{name}}} is markup. The part between
// {{#name}} and {{/name}} is repeated for each element of a list, and appears
// once for an object, a text or true. The part between {{^name}} and {{/name}}
// appears otherwise. Names are looked up from the innermost section outwards;
// {{.}} is the element itself. Lines lose their indentation, and lines that
// have only tags of sections disappear. A section contains no other section of
// the same name.
std::string fill_template(std::string_view text, const nlohmann::ordered_json& data);

}  // namespace translate_train
