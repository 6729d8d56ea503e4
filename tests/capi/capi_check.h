// A small harness for C: checks count, a failed one says where and goes on.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trafo.h"

extern int checks_passed, checks_failed;

// With a sanitizer the engine takes ten times as long: what is to last lasts as long with less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsSanitized = 1 };
#else
enum { kIsSanitized = 0 };
#endif

#define CHECK(condition)                                             \
  do {                                                               \
    if (condition) {                                                 \
      ++checks_passed;                                               \
    } else {                                                         \
      ++checks_failed;                                               \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                \
  } while (0)

// The call succeeds.
#define OK(call) check_ok((call), #call, __FILE__, __LINE__)
// The call fails with this code, and its message contains this text.
#define FAILS(call, code, text) check_fails((call), (code), (text), #call, __FILE__, __LINE__)
#define NEAR(actual, expected, tolerance) \
  CHECK(fabs((double)(actual) - (double)(expected)) <= (tolerance))

int check_ok(trafo_error* error, const char* call, const char* file, int line);
void check_fails(trafo_error* error, int32_t code, const char* text, const char* call,
                 const char* file, int line);

trafo_context* new_context(int32_t threads);
trafo_tensor* floats(trafo_context* context, const float* values, int32_t rank,
                     const int64_t* shape);
trafo_tensor* ints(trafo_context* context, const int32_t* values, int64_t count);
// The tensor's elements are these, to within 1e-5; frees the tensor.
void check_values(trafo_tensor* tensor, const float* expected, int64_t count, const char* file,
                  int line);
#define VALUES(tensor, count, ...) \
  check_values((tensor), (const float[]){__VA_ARGS__}, (count), __FILE__, __LINE__)
trafo_string_view view(const char* text);

// A directory of this process for files; removed at the end of main.
const char* work_directory(void);
// work_directory()/name in a buffer that is used again after a few calls.
const char* work_path(const char* name);
void write_file(const char* path, const void* data, size_t bytes);
// The file's bytes, for free().
uint8_t* read_file(const char* path, size_t* bytes);

void test_handles(void);
void test_adamw(void);
void test_ops(void);
void test_options(void);
void test_training(void);
void test_bad_input(void);
void test_dlpack(void);
void test_groups(void);
void test_fields(void);
void test_callbacks(void);
void test_edges(void);
void test_freezing(void);
void test_states_and_logits(void);
void test_ids(void);
void test_generation(void);
void test_cancelling(void);
void test_progress(void);
void test_own_networks(void);
