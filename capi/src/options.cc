#include "capi/src/options.h"

#include <string>

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

}  // namespace trafo::capi
