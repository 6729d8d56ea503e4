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

// {{name}} is a text, which is escaped; {{{name}}} is markup. What is between
// {{#name}} and {{/name}} is there for each element of a list, or once for an
// object, a text or true; what is between
// {{^name}} and {{/name}} if there is nothing of that kind. Names are looked up
// from the innermost section outwards; {{.}} is the element itself. Lines lose
// their indentation, and those that have tags of sections alone leave nothing.
// A section has no other section of its name inside.
std::string fill_template(std::string_view text, const nlohmann::ordered_json& data);

}  // namespace translate_train
