#include "report/template.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "report/report_files.h"
#include "report/report_text.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

bool is_section_tag(std::string_view line) {
  while (line.starts_with("{{#") || line.starts_with("{{^") || line.starts_with("{{/")) {
    const size_t end = line.find("}}");
    if (end == std::string_view::npos) return false;
    line.remove_prefix(end + 2);
  }
  return line.empty();
}

std::string compact_lines(std::string_view text) {
  std::string compact;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const bool ends = line.ends_with('\n');
    if (is_section_tag(line.substr(0, line.size() - (ends ? 1 : 0))))
      compact += line.substr(0, line.size() - (ends ? 1 : 0));
    else
      compact += line;
  }
  return compact;
}

class Filler {
 public:
  explicit Filler(const Json& data) : context_{&data} {}

  void fill(std::string_view text) {
    while (true) {
      const size_t begin = text.find("{{");
      page_ += text.substr(0, begin);
      if (begin == std::string_view::npos) return;
      text.remove_prefix(begin + 2);
      const bool is_markup = text.starts_with('{');
      if (is_markup) text.remove_prefix(1);
      const std::string_view tag = until(text, is_markup ? "}}}" : "}}");
      if (tag.starts_with('#') || tag.starts_with('^')) {
        const std::string_view name = tag.substr(1);
        section(find(name), tag[0] == '#', until(text, "{{/" + std::string(name) + "}}"));
      } else {
        const Json* value = find(tag);
        if (value == nullptr || !value->is_string()) missing(tag);
        const auto& string = value->get_ref<const std::string&>();
        page_ += is_markup ? string : html(string);
      }
    }
  }
  std::string page() && { return std::move(page_); }

 private:
  [[noreturn]] static void missing(std::string_view what) {
    throw std::logic_error("the template of reports: " + std::string(what));
  }

  // The text before `end`; what is left begins after it.
  static std::string_view until(std::string_view& text, std::string_view end) {
    const size_t at = text.find(end);
    if (at == std::string_view::npos) missing(end);
    const std::string_view before = text.substr(0, at);
    text.remove_prefix(at + end.size());
    return before;
  }

  const Json* find(std::string_view name) const {
    if (name == ".") return context_.back();
    for (auto scope = context_.rbegin(); scope != context_.rend(); ++scope)
      if ((*scope)->is_object())
        if (const auto found = (*scope)->find(name); found != (*scope)->end()) return &*found;
    return nullptr;
  }

  void section(const Json* value, bool wanted, std::string_view body) {
    const bool is_there = value != nullptr && !value->is_null() &&
                          !(value->is_boolean() && !value->get<bool>()) &&
                          !(value->is_array() && value->empty());
    if (is_there != wanted) return;
    if (!is_there) return fill(body);
    if (!value->is_array()) return fill_with(*value, body);
    for (const Json& element : *value) fill_with(element, body);
  }
  void fill_with(const Json& element, std::string_view body) {
    context_.push_back(&element);
    fill(body);
    context_.pop_back();
  }

  std::vector<const Json*> context_;
  std::string page_;
};

}  // namespace

std::string_view report_template() {
  return kReportTemplate;
}
std::string_view report_style() {
  return kReportStyle;
}
std::string_view report_script() {
  return kReportScript;
}

std::string fill_template(std::string_view text, const Json& data) {
  Filler filler(data);
  filler.fill(compact_lines(text));
  return std::move(filler).page();
}

}  // namespace translate_train
