//go:build cgo && trafo_dlopen

#define _GNU_SOURCE /* secure_getenv */
#include "dlopen.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#endif

#if defined(_WIN32)
#define ORDINARY_NAME "trafo.dll"
#elif defined(__APPLE__)
#define ORDINARY_NAME "libtrafo.0.dylib"
#else
#define ORDINARY_NAME "libtrafo.so.0"
#endif

/* The error of a library that cannot be loaded. There is one, and nobody frees it. */
static struct {
  int32_t code;
  char message[8192];
} failure;
static int loaded; /* written once, before any call is made */

static void fail(int32_t code, const char* name, const char* reason, const char* advice) {
  failure.code = code;
  snprintf(failure.message, sizeof failure.message, "%s %s; %s", name, reason, advice);
}

#ifdef _WIN32

static void* open_library(char* name, size_t size, char* reason, size_t reason_size) {
  static wchar_t path[32768];
  const DWORD length =
      GetEnvironmentVariableW(L"TRAFO_LIBRARY", path, sizeof path / sizeof path[0]);
  const int given = length > 0 && length < sizeof path / sizeof path[0];
  if (given)
    WideCharToMultiByte(CP_UTF8, 0, path, -1, name, (int)size, NULL, NULL);
  else
    snprintf(name, size, "%s", ORDINARY_NAME);
  /* A bare name is looked up beside the program and in the system's folder, not in the current one. */
  void* library = given ? (void*)LoadLibraryExW(path, NULL, 0)
                        : (void*)LoadLibraryExW(L"" ORDINARY_NAME, NULL,
                                                LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  if (library == NULL)
    snprintf(reason, reason_size, "cannot be loaded (error %lu of Windows)", GetLastError());
  return library;
}

static trafo_go_function find(void* library, const char* name) {
  return (trafo_go_function)(void*)GetProcAddress((HMODULE)library, name);
}

#else

/* Nobody may choose code for a program that has more rights than its caller. */
static const char* trusted_environment(const char* name) {
#ifdef __linux__
  return secure_getenv(name);
#else
  return issetugid() ? NULL : getenv(name);
#endif
}

static void* open_library(char* name, size_t size, char* reason, size_t reason_size) {
  const char* given = trusted_environment("TRAFO_LIBRARY");
  snprintf(name, size, "%s", given != NULL && given[0] != '\0' ? given : ORDINARY_NAME);
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* said = dlerror();
    snprintf(reason, reason_size, "cannot be loaded (%s)",
             said != NULL ? said : "the loader gives no reason");
  }
  return library;
}

static trafo_go_function find(void* library, const char* name) {
  return (trafo_go_function)dlsym(library, name);
}

#endif

static void load(void) {
  static const char* const kMissing =
      "set TRAFO_LIBRARY to the path of the library, or install it where the system looks for "
      "libraries (the package trafo has it)";
  static const char* const kOther =
      "set TRAFO_LIBRARY to the path of a library of this package's release";
  static char name[4096], reason[4096];
  void* library = open_library(name, sizeof name, reason, sizeof reason);
  if (library == NULL) {
    fail(TRAFO_NOT_FOUND, name, reason, kMissing);
    return;
  }
  int32_t (*abi_version)(void) = (int32_t(*)(void))find(library, "trafo_abi_version");
  if (abi_version == NULL) {
    fail(TRAFO_NOT_FOUND, name, "is not a libtrafo: it has no trafo_abi_version", kMissing);
    return;
  }
  if (abi_version() != TRAFO_ABI_VERSION) {
    snprintf(reason, sizeof reason,
             "has version %d of the C ABI, this program was built for version %d",
             (int)abi_version(), TRAFO_ABI_VERSION);
    fail(TRAFO_VERSION, name, reason, kOther);
    return;
  }
  for (size_t i = 0; i < trafo_go_count; ++i) {
    trafo_go_functions[i] = find(library, trafo_go_names[i]);
    if (trafo_go_functions[i] == NULL) {
      snprintf(reason, sizeof reason, "is older than this program: it has no %s",
               trafo_go_names[i]);
      fail(TRAFO_VERSION, name, reason, kOther);
      return;
    }
  }
  loaded = 1;
}

#ifdef _WIN32

static BOOL CALLBACK load_once(PINIT_ONCE once, PVOID parameter, PVOID* context) {
  (void)once, (void)parameter, (void)context;
  load();
  return TRUE;
}

int trafo_go_load(void) {
  static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
  InitOnceExecuteOnce(&once, load_once, NULL, NULL);
  return loaded;
}

#else

int trafo_go_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return loaded;
}

#endif

trafo_error* trafo_go_failure(void) {
  return (trafo_error*)&failure;
}

const char* trafo_go_without_version(void) {
  return "";
}

/* The next call says that there is no library. */
int32_t trafo_go_without_abi_version(void) {
  return TRAFO_ABI_VERSION;
}

int32_t trafo_go_without_error_code(const trafo_error* error) {
  return error != NULL ? failure.code : TRAFO_OK;
}

const char* trafo_go_without_error_message(const trafo_error* error) {
  return error != NULL ? failure.message : "";
}

const char* trafo_go_without_error_origin(const trafo_error* error) {
  return error != NULL ? "dlopen" : "";
}

const char* trafo_go_without_error_field(const trafo_error* error) {
  (void)error;
  return "";
}
