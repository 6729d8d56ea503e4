#include "capi/src/options.h"

#include <algorithm>

namespace trafo::capi {

const Preset& preset(const Call& call, std::string_view name) {
  std::string names;
  for (const Preset& each : presets()) {
    if (name == each.name) return each;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  fail(ErrorCode::not_found, call.function(), "there is no preset \"", name, "\"; there are ",
       names);
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, end));
    if (end + 1 == list.size()) names.emplace_back();  // a comma at the end
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

}  // namespace trafo::capi
