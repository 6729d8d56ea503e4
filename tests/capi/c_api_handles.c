// Handles that are kept after their _free: refused, whatever has been made since.
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi_check.h"

enum { LATER = 1000 };

// malloc gives the memory of a freed object to the next of its size: with objects for handles, one
// of these would be the old one again.
static void test_freed_tensor(trafo_context* context) {
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  trafo_tensor *old = floats(context, values, 1, shape), *later[LATER], *sum = NULL;
  trafo_tensor_free(old);
  int same = 0;
  for (int i = 0; i < LATER; ++i) {
    later[i] = floats(context, values, 1, shape);
    same += later[i] == old;
  }
  CHECK(same == 0);
  FAILS(trafo_tensor_read(old, (float[2]){0}, 8), TRAFO_INVALID_ARGUMENT,
        "tensor is not a live trafo_tensor: freed");
  FAILS(trafo_op_add(context, later[0], old, &sum), TRAFO_INVALID_ARGUMENT, "b is not a live");
  trafo_tensor_free(old);  // again: nothing happens to any of the others
  for (int i = 0; i < LATER; ++i) VALUES(later[i], 2, 1, 2);
  for (int i = 0; i < LATER; ++i) trafo_tensor_free(later[i]);
}

static void test_freed_error(trafo_context* context) {
  trafo_error* old = trafo_tensor_new(context, 99, NULL, 0, NULL, 0, &(trafo_tensor*){0});
  const int32_t code = trafo_error_code(old);
  CHECK(code == TRAFO_INVALID_ARGUMENT && strstr(trafo_error_message(old), "dtype"));
  trafo_error_free(old);
  trafo_error* later[LATER];
  int same = 0;
  for (int i = 0; i < LATER; ++i) {
    const char* nowhere = "/no/such/file";
    later[i] = trafo_tokenizer_load(nowhere, strlen(nowhere), &(trafo_tokenizer*){0});
    same += later[i] == old;
  }
  CHECK(same == 0);
  CHECK(strstr(trafo_error_message(old), "not live") && !trafo_error_origin(old)[0]);
  trafo_error_free(old);
  int right = 0;
  for (int i = 0; i < LATER; ++i) {
    right += trafo_error_code(later[i]) != TRAFO_INVALID_ARGUMENT &&
             strstr(trafo_error_message(later[i]), "/no/such/file") != NULL;
    trafo_error_free(later[i]);
  }
  CHECK(right == LATER);
}

// A program that takes a handle for its object is stopped at once: it is no address.
static void test_followed(trafo_context* context) {
  CHECK(((uintptr_t)context & (uintptr_t)3 << 62) == (uintptr_t)2 << 62);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    _exit(*(volatile const char*)context == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
}

// Addresses of the program, numbers, and what is next to a handle are refused, not followed.
static void test_never_handles(trafo_context* context) {
  int64_t own[4] = {1, 2, 3, 4};
  const uintptr_t one = (uintptr_t)context;
  const uintptr_t strange[] = {
      1,        4096,      (uintptr_t)own,  UINTPTR_MAX,     INTPTR_MAX,
      one + 1,  one - 1,   one + 16,        one + (1 << 20), one ^ (uintptr_t)1 << 55,
      one << 1, one >> 16, one & UINT32_MAX};
  for (size_t i = 0; i < sizeof strange / sizeof *strange; ++i) {
    trafo_context* wrong = (trafo_context*)strange[i];
    FAILS(trafo_context_set_threads(wrong, 2), TRAFO_INVALID_ARGUMENT, "not a live trafo_context");
    trafo_context_free(wrong);
    trafo_string_free((char*)strange[i]);
    CHECK(trafo_error_code((trafo_error*)strange[i]) == TRAFO_INVALID_ARGUMENT);
  }
  OK(trafo_context_set_threads(context, 2));
}

void test_handles(void) {
  trafo_context* context = new_context(1);
  test_freed_tensor(context);
  test_freed_error(context);
  test_followed(context);
  test_never_handles(context);
  trafo_context_free(context);
}
