/* For the build tag trafo_dlopen. dlopen.c loads the library, dlopen.generated.c has the functions
 * of trafo.h, which call it. */
#ifndef TRAFO_GO_DLOPEN_H
#define TRAFO_GO_DLOPEN_H

#ifndef _WIN32
/* The program does not export these functions: a libtrafo that is loaded calls its own. */
#define visibility(kind) visibility("hidden")
#endif
#include "trafo.h"
#ifndef _WIN32
#undef visibility
#endif

typedef void (*trafo_go_function)(void);

/* Names of all functions of trafo.h, and their addresses in the library once it is loaded. */
extern const char* const trafo_go_names[];
extern const size_t trafo_go_count;
extern trafo_go_function trafo_go_functions[];

/* Loads the library at the first call, on any thread. 0: it cannot be loaded, and every call
 * returns trafo_go_failure(). */
int trafo_go_load(void);
trafo_error* trafo_go_failure(void);

/* Functions that return no error, without a library. */
const char* trafo_go_without_version(void);
int32_t trafo_go_without_abi_version(void);
int32_t trafo_go_without_error_code(const trafo_error* error);
const char* trafo_go_without_error_message(const trafo_error* error);
const char* trafo_go_without_error_origin(const trafo_error* error);
const char* trafo_go_without_error_field(const trafo_error* error);
const char* trafo_go_without_error_code_name(int32_t code);

#endif
