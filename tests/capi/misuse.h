// The machinery of misuse_test: calls a function of the C ABI with its good arguments but one.
//
// For each parameter of a function the good arguments are replaced by
//   handle in:   NULL, a freed handle, a handle of another kind
//   pointer:     NULL
//   integer:     minimum, -1, 0, 12345 (an unknown enum), maximum
//   double:      NaN, -1, 0, infinity
// Wrong handles must be refused; NULL must be refused unless the parameter is listed as optional.
// A crash ends the test binary, which is the failure.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dlpack_layout.h"
#include "trafo.h"

namespace misuse {

inline int passed = 0, failed = 0;
inline std::set<std::string> covered;

inline void check(bool right, const std::string& what) {
  ++(right ? passed : failed);
  if (!right) std::printf("failed: %s\n", what.c_str());
}

inline void must(trafo_error* error) {
  if (!error) return;
  std::printf("set-up failed: %s [%s]\n", trafo_error_message(error), trafo_error_origin(error));
  std::exit(1);
}

// Handles of each kind that are no more, and one of a kind that no call but its own takes.
inline trafo_cancel* other_kind;
inline trafo_corpus* another_kind;
template <class T>
inline T* freed = nullptr;

template <class T>
inline constexpr bool is_handle =
    std::is_same_v<T, trafo_context> || std::is_same_v<T, trafo_tensor> ||
    std::is_same_v<T, trafo_cancel> || std::is_same_v<T, trafo_adamw> ||
    std::is_same_v<T, trafo_tokenizer> || std::is_same_v<T, trafo_corpus> ||
    std::is_same_v<T, trafo_model> || std::is_same_v<T, trafo_trainer> ||
    std::is_same_v<T, trafo_translations>;

template <class T>
T* wrong_kind() {
  if constexpr (std::is_same_v<T, trafo_cancel>)
    return reinterpret_cast<T*>(another_kind);
  else
    return reinterpret_cast<T*>(other_kind);
}

// What a success has handed out goes again.
inline void release(trafo_context** p) {
  trafo_context_free(*p);
}
inline void release(trafo_tensor** p) {
  trafo_tensor_free(*p);
}
inline void release(trafo_cancel** p) {
  trafo_cancel_free(*p);
}
inline void release(trafo_adamw** p) {
  trafo_adamw_free(*p);
}
inline void release(trafo_tokenizer** p) {
  trafo_tokenizer_free(*p);
}
inline void release(trafo_corpus** p) {
  trafo_corpus_free(*p);
}
inline void release(trafo_model** p) {
  trafo_model_free(*p);
}
inline void release(trafo_trainer** p) {
  trafo_trainer_free(*p);
}
inline void release(trafo_translations** p) {
  trafo_translations_free(*p);
}
inline void release(DLManagedTensorVersioned** p) {
  if (*p) (*p)->deleter(*p);
}
inline void release(char** p) {
  trafo_string_free(*p);
}
inline void release(int32_t** p) {
  trafo_ids_free(*p);
}

template <class T>
void reset_output(T& argument, bool give_back) {
  if constexpr (requires { release(argument); }) {
    if (!argument) return;
    if (give_back) release(argument);
    *argument = nullptr;
  }
}

// `optional`: positions (from 0) of pointers that may be NULL.
template <class... Args>
class Misuse {
 public:
  Misuse(const char* name, trafo_error* (*function)(Args...), std::set<size_t> optional,
         std::type_identity_t<Args>... good)
      : name_(name), function_(function), optional_(std::move(optional)), good_(good...) {
    covered.insert(name);
    each(std::index_sequence_for<Args...>{});
  }

 private:
  template <size_t... I>
  void each(std::index_sequence<I...>) {
    (replace<I>(), ...);
  }

  template <size_t I>
  void replace() {
    using T = std::tuple_element_t<I, std::tuple<Args...>>;
    if constexpr (std::is_pointer_v<T>) {
      using Pointee = std::remove_const_t<std::remove_pointer_t<T>>;
      attempt<I>(nullptr, "NULL", optional_.count(I) == 0);
      if constexpr (is_handle<Pointee>) {
        attempt<I>(freed<Pointee>, "a freed handle", true);
        attempt<I>(wrong_kind<Pointee>(), "a handle of another kind", true);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      for (T value : {T(NAN), T(-1), T(0), T(INFINITY)}) attempt<I>(value, "a double", false);
    } else {
      using Limits = std::numeric_limits<T>;
      const T largest = static_cast<T>(std::numeric_limits<std::make_signed_t<T>>::max());
      for (T value : {Limits::min(), T(-1), T(0), T(12345), largest})
        // An array's length is only wrong where no array is that long.
        if (!(sizeof(T) == 8 && std::is_unsigned_v<T> && value == T(12345)))
          attempt<I>(value, std::to_string(value), false);
    }
  }

  template <size_t I, class Value>
  void attempt(Value value, const std::string& description, bool refused) {
    std::apply([](auto&... each) { (reset_output(each, false), ...); }, good_);
    auto arguments = good_;
    std::get<I>(arguments) = value;
    trafo_error* error = std::apply(function_, arguments);
    const std::string what =
        std::string(name_) + ", argument " + std::to_string(I) + " = " + description;
    if (error) {
      const int32_t code = trafo_error_code(error);
      check(code > 0 && code < TRAFO_INTERNAL,
            what + ": code " + trafo_error_code_name(code) + ": " + trafo_error_message(error));
      check(trafo_error_message(error)[0] && trafo_error_origin(error)[0], what + ": no message");
      trafo_error_free(error);
    } else {
      check(!refused, what + ": was accepted");
    }
    std::apply([](auto&... each) { (reset_output(each, true), ...); }, arguments);
  }

  const char* name_;
  trafo_error* (*function_)(Args...);
  std::set<size_t> optional_;
  std::tuple<Args...> good_;
};

#define MISUSE(function, ...) Misuse(#function, function, __VA_ARGS__)

template <class T>
void misuse_free(const char* name, void (*function)(T*)) {
  covered.insert(name);
  function(nullptr);
  if constexpr (is_handle<T>) {
    function(freed<T>);
    function(wrong_kind<T>());
  }
  check(true, name);
}
#define MISUSE_FREE(function) misuse_free(#function, function)

template <class Options>
Options defaults(trafo_error* (*init)(Options*, size_t)) {
  Options options;
  must(init(&options, sizeof options));
  return options;
}
#define MISUSE_INIT(function, options) MISUSE(function, {}, &options, sizeof options)

}  // namespace misuse
