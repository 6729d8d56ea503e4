// A non-owning reference to anything callable. It is two pointers and never allocates. Use it for
// parameters, not for members: it must not outlive the callable.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace trafo {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_object_v<std::remove_reference_t<F>> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& callable)  // NOLINT: implicit, so that a lambda can be passed directly
      : target_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* target, Args... args) -> R {
          return std::invoke(*static_cast<std::remove_reference_t<F>*>(target),
                             std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  void* target_;
  R (*call_)(void*, Args...);
};

}  // namespace trafo
