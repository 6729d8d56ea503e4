// The objects of the opaque handles, and the frame of an entry point of the C ABI.
//
// The handle table knows every live handle and its kind, so that NULL, a freed handle and a handle
// of another kind are refused.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/include/trafo.h"
#include "capi/src/context_lock.h"
#include "capi/src/generated/defaults.h"
#include "capi/src/handle_table.h"
#include "engine/core/argument_error.h"
#include "engine/core/call_priority.h"
#include "engine/core/cancel.h"
#include "engine/core/numeric/float_environment.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/os/names.h"
#include "engine/runtime/context.h"
#include "engine/runtime/trace.h"

namespace trafo::capi {

// The objects of handles. The handle types of the public header stay incomplete here too, so that a
// handle cannot be dereferenced by mistake.
struct ErrorObject {
  ErrorCode code;
  std::string origin;
  std::string message;
  std::string field;  // with which the message begins; empty: the error is of no single argument
};

struct ContextObject {
  std::shared_ptr<Context> context;
  std::optional<Trace> profile = std::nullopt;  // the last profile that has ended
};

struct TensorObject {
  std::shared_ptr<Context> context;
  Tensor tensor;
};

// A function that tells the program how far a call is.
struct ProgressCallback {
  trafo_progress_fn function;
  std::shared_ptr<void> user_data;
};

// Both are shared with the calls that got them, which may outlive the handle.
struct CancelObject {
  std::shared_ptr<CancelToken> token = std::make_shared<CancelToken>();
  std::shared_ptr<const ProgressCallback> progress = nullptr;
  mutable std::mutex progress_mutex = {};
};

// Specialised for each handle type: its kind, its object and its public name.
template <class Handle>
struct HandleTraits;

#define TRAFO_HANDLE(kind_name, object_name)                  \
  struct object_name;                                         \
  template <>                                                 \
  struct HandleTraits<trafo_##kind_name> {                    \
    using Object = object_name;                               \
    static constexpr HandleKind kind = HandleKind::kind_name; \
    static constexpr const char* name = "trafo_" #kind_name;  \
  };
TRAFO_HANDLE(error, ErrorObject)
TRAFO_HANDLE(context, ContextObject)
TRAFO_HANDLE(tensor, TensorObject)
TRAFO_HANDLE(cancel, CancelObject)
TRAFO_HANDLE(adamw, AdamwObject)
TRAFO_HANDLE(tokenizer, TokenizerObject)
TRAFO_HANDLE(corpus, CorpusObject)
TRAFO_HANDLE(model, ModelObject)
TRAFO_HANDLE(trainer, TrainerObject)
TRAFO_HANDLE(translations, TranslationsObject)
TRAFO_HANDLE(shortlist, ShortlistObject)
TRAFO_HANDLE(group, GroupObject)
TRAFO_HANDLE(generator, GeneratorObject)
#undef TRAFO_HANDLE

template <class Handle>
using ObjectOf = typename HandleTraits<std::remove_const_t<Handle>>::Object;

// Zeroed memory for the caller, in the handle table. free_memory ignores memory that is not live.
void* give_memory(size_t bytes, HandleKind kind);
void free_memory(void* memory, HandleKind kind) noexcept;

// Whether a call that holds the context may run functions of the program.
enum class CallsBack { no, yes };

inline constexpr size_t kLargestOptions = 65536;  // bytes of an options struct, at most

// A call in flight: checks the arguments and refuses in the name of the entry point.
class Call {
 public:
  explicit Call(const char* function) : function_(function) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const char* function() const { return function_; }

  template <class... Args>
  [[noreturn]] void refuse(const Args&... message) const {
    fail(ErrorCode::invalid_argument, function_, message...);
  }

  // The same about an argument or a member of a struct, which the message begins with.
  template <class... Args>
  [[noreturn]] void refuse_argument(const char* field, const Args&... reason) const {
    trafo::refuse_argument(function_, field, reason...);
  }

  // The object of a handle argument. It stays alive until this call ends.
  template <class Handle>
  auto& handle(Handle* argument, const char* name) const {
    using Traits = HandleTraits<std::remove_const_t<Handle>>;
    if (!argument) refuse_argument(name, " is NULL");
    if (is_orphaned(argument, Traits::kind))
      throw ArgumentError(ErrorCode::unsupported, function_, name,
                          " was made before the process forked, and its threads and device are the "
                          "parent's; make a context in the child");
    auto* object = find(argument);
    if (!object)
      refuse_argument(name, " is not a live ", Traits::name, ": freed, or of another kind");
    return *object;
  }
  // The same, or null if the handle is not live.
  template <class Handle>
  auto* find(Handle* argument) const {
    using Object = ObjectOf<Handle>;
    void* object = begin_use(argument, HandleTraits<std::remove_const_t<Handle>>::kind);
    if (object) keep(argument);
    return static_cast<std::conditional_t<std::is_const_v<Handle>, const Object*, Object*>>(object);
  }

  // Locks the context until this call ends. Waits for another thread's call that holds the lock. If
  // that call may run functions of the program, this one is refused, because such a function may
  // wait for it.
  void use(const std::shared_ptr<Context>& context, CallsBack calls_back = CallsBack::no) const;

  // Outputs are never NULL and are zero until the call succeeds.
  template <class T>
  void out(T* argument, const char* name = "out") const {
    if (!argument) refuse_argument(name, " is NULL");
    *argument = T{};
  }

  // The same for a struct of which the caller has struct_size bytes.
  void out_struct(void* argument, size_t struct_size, const char* name = "out") const {
    if (!argument) refuse_argument(name, " is NULL");
    check_struct_size(struct_size);
    std::memset(argument, 0, struct_size);
  }
  void check_struct_size(size_t struct_size) const {
    if (struct_size < sizeof(size_t) || struct_size > kLargestOptions)
      refuse_argument("struct_size", " ", struct_size, " is not the size of an options struct");
  }

  // Reserved members must be 0, so that a later version can use them.
  void reserved(int64_t value, const char* name = "reserved") const {
    if (value != 0) refuse_argument(name, " is ", value, " and must be 0");
  }

  // A switch: 0 or 1. Other numbers are left for later versions.
  bool flag(int32_t value, const char* name) const {
    if (value != 0 && value != 1) refuse_argument(name, " must be 0 or 1, got ", value);
    return value != 0;
  }

  Context& context(trafo_context* argument, CallsBack calls_back = CallsBack::no) const {
    const std::shared_ptr<Context>& context = handle(argument, "context").context;
    use(context, calls_back);
    return *context;
  }
  // The locked context.
  const std::shared_ptr<Context>& owner() const { return holds_; }
  const Tensor& tensor(const trafo_tensor* argument, const char* name) const {
    const TensorObject& checked = handle(argument, name);
    if (checked.context != owner()) refuse_argument(name, " belongs to another context");
    return checked.tensor;
  }
  Tensor optional_tensor(const trafo_tensor* argument, const char* name) const {
    return argument ? tensor(argument, name) : Tensor{};
  }

  std::string_view text(const char* data, size_t length, const char* name) const {
    if (!data && length > 0) refuse_argument(name, " is NULL but its length is ", length);
    if (length > kAddressSpace) refuse_argument(name, "'s length ", length, " is impossible");
    return {data ? data : "", length};
  }
  template <class T>
  void array(const T* data, size_t count, const char* name) const {
    if (!data && count > 0) refuse_argument(name, " is NULL but its count is ", count);
    if (count > kAddressSpace / sizeof(T))
      refuse_argument(name, "'s count ", count, " is impossible");
  }

  // More bytes than any process can address (47-bit user addresses). Sizes above it come from
  // negative numbers or INT64_MAX and are refused.
  static constexpr size_t kAddressSpace =
      sizeof(size_t) > 4 ? size_t{1} << (sizeof(size_t) * 6 - 1) : static_cast<size_t>(PTRDIFF_MAX);

 private:
  void keep(const void* handle) const;

  const char* function_;
  mutable std::array<const void*, 8> in_use_;
  mutable size_t in_use_count_ = 0;
  mutable std::vector<const void*> more_in_use_;
  mutable std::shared_ptr<Context> holds_;
  mutable std::optional<CallPriority> priority_;
};

// Creates an object and adds it to the handle table.
template <class Handle, class... Args>
Handle* new_handle(Args&&... args) {
  std::unique_ptr<ObjectOf<Handle>> object(new ObjectOf<Handle>{std::forward<Args>(args)...});
  void* handle = register_object(object.get(), HandleTraits<Handle>::kind);
  object.release();
  return static_cast<Handle*>(handle);
}

// An object whose destructor uses its context.
template <class Object>
concept UsesContext = !std::is_same_v<Object, ContextObject> && requires(Object object) {
  lock_of(object.context);
};

template <class Handle>
void free_handle(Handle* handle) noexcept {
  using Object = ObjectOf<Handle>;
  end_handle(handle, HandleTraits<Handle>::kind, [](void* ended) {
    constexpr auto destroy = [](void* object) { delete static_cast<Object*>(object); };
    if constexpr (UsesContext<Object>) {
      // The object may hold the last reference to its context.
      const std::shared_ptr<Context> context = static_cast<Object*>(ended)->context;
      lock_of(context).destroy(ended, destroy);
    } else {
      destroy(ended);
    }
  });
}

// Owns a new handle until it is given to the caller: a call with several outputs gives all or none.
template <class Handle>
struct FreeHandle {
  void operator()(Handle* handle) const noexcept { free_handle(handle); }
};
template <class Handle>
using OwnedHandle = std::unique_ptr<Handle, FreeHandle<Handle>>;

// Calls a function that the host has given. The progress of a call that the function makes is not
// the progress of the call that it interrupts.
template <class Function, class... Args>
auto call_host(Function&& function, Args&&... args) {
  const HostFloatEnvironment environment;
  const ProgressPause pause;
  return std::forward<Function>(function)(std::forward<Args>(args)...);
}

// Owns user_data: runs user_data_free once, after the last copy is gone, also after a failure.
inline std::shared_ptr<void> owned(void* user_data, void (*user_data_free)(void*)) {
  return {user_data, [user_data_free](void* pointer) {
            if (user_data_free) FreeingCalls::run(user_data_free, pointer);
          }};
}

// Null if the handle was freed or is not an error.
const ErrorObject* find_error(const trafo_error* error) noexcept;
trafo_error* make_error(ErrorCode code, const char* origin, const char* message,
                        const char* field = "") noexcept;
trafo_error* make_error(const Error& error) noexcept;

// The code for a thread that could not be started, or for an error of the file system.
ErrorCode code_of(const std::system_error& error) noexcept;

// Runs the body of an entry point and turns exceptions into errors.
template <class Body>
trafo_error* api(const char* function, Body&& body) noexcept {
  const DefaultFloatEnvironment environment;
  try {
    body(Call(function));
    return nullptr;
  } catch (const Error& error) {
    return make_error(error);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, function, "out of memory");
  } catch (const std::length_error&) {
    return make_error(ErrorCode::out_of_memory, function,
                      "more was asked for than any memory holds");
  } catch (const std::system_error& error) {
    return make_error(code_of(error), function, error.what());
  } catch (const std::exception& error) {
    return make_error(ErrorCode::internal, function, error.what());
  } catch (...) {
    return make_error(ErrorCode::internal, function, "an unknown exception");
  }
}

// Options structs. Only the caller's struct_size bytes are read; other members keep their defaults.
// A longer struct must end in zeros.
template <class Options>
void init_options(const Call& call, Options* options, size_t struct_size, Options filled) {
  if (!options) call.refuse_argument("options", " is NULL");
  call.check_struct_size(struct_size);
  filled.struct_size = struct_size;
  std::memset(static_cast<void*>(options), 0, struct_size);
  std::memcpy(static_cast<void*>(options), &filled, std::min(struct_size, sizeof(Options)));
}

template <class Options>
Options read_options(const Call& call, const Options* options) {
  Options result = defaults(options);
  if (!options) return result;
  const size_t size = options->struct_size;
  if (size < sizeof(size_t) || size > kLargestOptions)
    call.refuse_argument("struct_size", " ", size,
                         " is not the size of an options struct; call its _init first");
  std::memcpy(static_cast<void*>(&result), options, std::min(size, sizeof(Options)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (size_t i = sizeof(Options); i < size; ++i)
    if (bytes[i] != 0)
      call.refuse(
          "the options struct is newer than this library and sets something it does not know");
  return result;
}

inline std::filesystem::path path_argument(const Call& call, const char* data, size_t length,
                                           const char* name) {
  const std::string_view text = call.text(data, length, name);
  if (text.empty()) call.refuse_argument(name, " is empty");
  if (text.find('\0') != std::string_view::npos) call.refuse_argument(name, " contains a NUL byte");
  return os::path_of(std::string(text));
}

// A NUL-terminated copy for the caller.
char* copy_string(std::string_view text);

trafo_tensor* give_tensor(const std::shared_ptr<Context>& owner, Tensor tensor);

// The tensors that a call returns: the caller gets all of them or none.
class NewTensors {
 public:
  NewTensors(const std::shared_ptr<Context>& owner, const std::vector<Tensor>& tensors) {
    handles_.reserve(tensors.size());  // so that no handle is lost if memory runs out
    for (const Tensor& tensor : tensors) handles_.emplace_back(give_tensor(owner, tensor));
  }
  void hand_over(std::initializer_list<trafo_tensor**> outputs) {
    auto handle = handles_.begin();
    for (trafo_tensor** output : outputs) *output = (handle++)->release();
  }
  void hand_over(trafo_tensor** outputs) {
    for (auto& handle : handles_) *outputs++ = handle.release();
  }

 private:
  std::vector<OwnedHandle<trafo_tensor>> handles_;
};

// Refuses the result of an op and a strided view.
void check_writable(const Call& call, const Tensor& tensor);
DType checked_dtype(const Call& call, int32_t dtype);
Shape checked_shape(const Call& call, const int64_t* shape, int32_t rank);

// Whether a call tells the progress function of its cancel handle how far it is.
enum class Tells : bool { no, yes };

// The cancel handle of a call, which may be NULL. Make it after the context is locked. If it has a
// progress function, the call is one that may call back, and work of this thread tells how far it
// is.
class CancelArgument {
 public:
  CancelArgument(const Call& call, const trafo_cancel* cancel, Tells tells = Tells::yes);
  ~CancelArgument();
  CancelArgument(const CancelArgument&) = delete;
  CancelArgument& operator=(const CancelArgument&) = delete;
  const CancelToken* get() const { return token_.get(); }

 private:
  bool tell(Work work, int64_t done, int64_t total) const;

  std::shared_ptr<CancelToken> token_;
  std::shared_ptr<const ProgressCallback> progress_;
  std::shared_ptr<Context> context_;
  std::optional<ProgressScope> scope_;
};

}  // namespace trafo::capi
