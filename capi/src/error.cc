#include "capi/src/handles.h"
#include "engine/core/version.h"

using namespace trafo;
using namespace trafo::capi;

const char* trafo_version(void) {
  return kVersion;
}

int32_t trafo_abi_version(void) {
  return TRAFO_ABI_VERSION;
}

int32_t trafo_error_code(const trafo_error* error) {
  if (!error) return TRAFO_OK;
  const ErrorObject* live = find_error(error);
  return live ? static_cast<int32_t>(live->code) : TRAFO_INVALID_ARGUMENT;
}

const char* trafo_error_message(const trafo_error* error) {
  if (!error) return "";
  const ErrorObject* live = find_error(error);
  return live ? live->message.c_str() : "the error object is not live: freed";
}

const char* trafo_error_origin(const trafo_error* error) {
  const ErrorObject* live = error ? find_error(error) : nullptr;
  return live ? live->origin.c_str() : "";
}

const char* trafo_error_field(const trafo_error* error) {
  const ErrorObject* live = error ? find_error(error) : nullptr;
  return live ? live->field.c_str() : "";
}

const char* trafo_error_code_name(int32_t code) {
  return error_code_name(static_cast<ErrorCode>(code));
}

void trafo_error_free(trafo_error* error) {
  free_handle(error);
}

void trafo_string_free(char* string) {
  free_memory(string, HandleKind::string);
}
void trafo_ids_free(int32_t* ids) {
  free_memory(ids, HandleKind::ids);
}
