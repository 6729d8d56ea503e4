#include "commands/trafo_handles.h"

namespace translate_train {
namespace {

int exit_code_of(int32_t code) {
  switch (code) {
    case TRAFO_NON_FINITE:
      return kDiverged;
    case TRAFO_OUT_OF_MEMORY:
    case TRAFO_OUT_OF_DEVICE_MEMORY:
      return kOutOfMemory;
    case TRAFO_IO:
    case TRAFO_INTERNAL:
    case TRAFO_DEVICE_LOST:
    case TRAFO_PEER_LOST:
    case TRAFO_CANCELLED:
      return kFailed;
    default:
      return kUsage;
  }
}

}  // namespace

void check(trafo_error* error, std::string_view context) {
  if (error == nullptr) return;
  const int32_t code = trafo_error_code(error);
  const std::string before = context.empty() ? "" : std::string(context) + ": ";
  const std::string message = trafo_error_message(error), field = trafo_error_field(error);
  trafo_error_free(error);
  throw CliError::of_field(exit_code_of(code), before, message, code, field);
}

std::vector<trafo_string_view> views(const std::vector<std::string>& lines) {
  std::vector<trafo_string_view> result;
  result.reserve(lines.size());
  for (const std::string& line : lines) result.push_back(view(line));
  return result;
}

}  // namespace translate_train
