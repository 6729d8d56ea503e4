// What the opaque handles are, and how an entry point of the C ABI is written.
//
// Every live handle stands in a registry with its kind, so that NULL, a freed handle and a handle
// of another kind are told apart from a good one without touching their memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "capi/include/trafo.h"
#include "capi/src/turns.h"
#include "engine/autograd/context.h"
#include "engine/core/status.h"
#include "engine/core/trace.h"
#include "engine/train/cancel.h"

struct trafo_error {
  trafo::ErrorCode code;
  std::string origin;
  std::string message;
};

struct trafo_context {
  std::shared_ptr<trafo::Context> context;
  std::optional<trafo::Trace> profile = std::nullopt;  // the last one that has ended
};

struct trafo_tensor {
  std::shared_ptr<trafo::Context> context;
  trafo::Tensor tensor;
};

struct trafo_cancel {
  // Shared with the work it was given to, which may outlive the handle.
  std::shared_ptr<trafo::CancelToken> token = std::make_shared<trafo::CancelToken>();
};

namespace trafo::capi {

enum class HandleKind : uint32_t {
  error,
  context,
  tensor,
  cancel,
  adamw,
  tokenizer,
  corpus,
  model,
  trainer,
  translations,
  shortlist,
  // Memory that was handed out, so that a second free of it is harmless too.
  string,
  ids,
};

// Specialised once for each handle type: its kind and its public name.
template <class Handle>
struct HandleTraits;

#define TRAFO_HANDLE(kind_name)                               \
  template <>                                                 \
  struct HandleTraits<trafo_##kind_name> {                    \
    static constexpr HandleKind kind = HandleKind::kind_name; \
    static constexpr const char* name = "trafo_" #kind_name;  \
  };
TRAFO_HANDLE(error)
TRAFO_HANDLE(context)
TRAFO_HANDLE(tensor)
TRAFO_HANDLE(cancel)
TRAFO_HANDLE(adamw)
TRAFO_HANDLE(tokenizer)
TRAFO_HANDLE(corpus)
TRAFO_HANDLE(model)
TRAFO_HANDLE(trainer)
TRAFO_HANDLE(translations)
TRAFO_HANDLE(shortlist)
#undef TRAFO_HANDLE

void register_handle(const void* handle, HandleKind kind);
bool is_live(const void* handle, HandleKind kind) noexcept;
// True of one that was made before the process forked, in the child, and that uses a context: the
// threads and the device of that are the parent's.
bool is_orphaned(const void* handle, HandleKind kind) noexcept;
// A handle that is freed while calls use it, by a callback or another thread, is no handle from
// then on; the object lives until the last of them is done. begin_use: false if it is not live.
bool begin_use(const void* handle, HandleKind kind) noexcept;
void end_use(const void* handle) noexcept;
// Runs `end` on a live handle that nothing uses, or leaves that to the last use.
void end_handle(void* handle, HandleKind kind, void (*end)(void*)) noexcept;
// Zeroed memory from calloc for the caller, and its end; what is not live is left alone.
void* give_memory(size_t bytes, HandleKind kind);
void free_memory(void* memory, HandleKind kind) noexcept;

// Whether a call that has the context may run functions of the caller meanwhile.
enum class CallsBack { no, yes };

inline constexpr size_t kLargestOptions = 65536;  // bytes of a struct with a struct_size

// An entry point in flight: checks its arguments in its own name.
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

  // The object behind a handle argument; it lives as long as this call.
  template <class Handle>
  Handle& handle(Handle* argument, const char* name) const {
    using Plain = std::remove_const_t<Handle>;
    if (!argument) refuse(name, " is NULL");
    require(!is_orphaned(argument, HandleTraits<Plain>::kind), ErrorCode::unsupported, function_,
            name,
            " was made before the process forked, and its threads and device are the "
            "parent's; make a context in the child");
    if (!begin_use(argument, HandleTraits<Plain>::kind))
      refuse(name, " is not a live ", HandleTraits<Plain>::name, ": freed, or of another kind");
    keep(argument);
    return *argument;
  }

  // The context is this call's until it ends. Waits for another thread's call that has it, unless
  // that one may call back: then this one is refused, as the caller's function may wait for it.
  void use(const std::shared_ptr<Context>& context, CallsBack calls_back = CallsBack::no) const;

  // Outputs are never NULL and are zero until the call succeeds.
  template <class T>
  void out(T* argument, const char* name = "out") const {
    if (!argument) refuse(name, " is NULL");
    *argument = T{};
  }

  // The same of a struct of which the caller has so many bytes.
  void out_struct(void* argument, size_t struct_size, const char* name = "out") const {
    if (!argument) refuse(name, " is NULL");
    check_struct_size(struct_size);
    std::memset(argument, 0, struct_size);
  }
  void check_struct_size(size_t struct_size) const {
    if (struct_size < sizeof(size_t) || struct_size > kLargestOptions)
      refuse("struct_size ", struct_size, " is not the size of an options struct");
  }

  // Reserved members are zero, so that a later version can give them a meaning.
  void reserved(int64_t value) const {
    if (value != 0) refuse("a reserved member is ", value, " and must be 0");
  }

  // A switch: 0 or 1, so that other numbers can be given a meaning later.
  bool flag(int32_t value, const char* name) const {
    if (value != 0 && value != 1) refuse(name, " must be 0 or 1, got ", value);
    return value != 0;
  }

  Context& context(trafo_context* argument, CallsBack calls_back = CallsBack::no) const {
    const std::shared_ptr<Context>& context = handle(argument, "context").context;
    use(context, calls_back);
    return *context;
  }
  const Tensor& tensor(const trafo_context* owner, const trafo_tensor* argument,
                       const char* name) const {
    const trafo_tensor& checked = handle(argument, name);
    if (checked.context.get() != owner->context.get()) refuse(name, " belongs to another context");
    return checked.tensor;
  }
  Tensor optional_tensor(const trafo_context* owner, const trafo_tensor* argument,
                         const char* name) const {
    return argument ? tensor(owner, argument, name) : Tensor{};
  }

  std::string_view text(const char* data, size_t length, const char* name) const {
    if (!data && length > 0) refuse(name, " is NULL but its length is ", length);
    if (length > kAddressSpace) refuse(name, "'s length ", length, " is impossible");
    return {data ? data : "", length};
  }
  template <class T>
  void array(const T* data, size_t count, const char* name) const {
    if (!data && count > 0) refuse(name, " is NULL but its count is ", count);
    if (count > kAddressSpace / sizeof(T)) refuse(name, "'s count ", count, " is impossible");
  }

  // More bytes than any process has (47-bit user addresses): negative numbers and INT64_MAX that
  // were taken for sizes are refused, not read.
  static constexpr size_t kAddressSpace =
      sizeof(size_t) > 4 ? size_t{1} << (sizeof(size_t) * 6 - 1) : static_cast<size_t>(PTRDIFF_MAX);

 private:
  void keep(const void* handle) const;

  const char* function_;
  mutable std::array<const void*, 8> in_use_;
  mutable size_t in_use_count_ = 0;
  mutable std::vector<const void*> more_in_use_;
  mutable std::shared_ptr<Context> holds_;
};

// Hands a new object to the caller.
template <class Handle, class... Args>
Handle* new_handle(Args&&... args) {
  auto object = std::unique_ptr<Handle>(new Handle{std::forward<Args>(args)...});
  register_handle(object.get(), HandleTraits<Handle>::kind);
  return object.release();
}

// Whose destructor works with the context.
template <class Handle>
concept UsesContext = !std::is_same_v<Handle, trafo_context> && requires(Handle handle) {
  turns_of(handle.context);
};

template <class Handle>
void free_handle(Handle* handle) noexcept {
  end_handle(handle, HandleTraits<Handle>::kind, [](void* ended) {
    constexpr auto destroy = [](void* object) { delete static_cast<Handle*>(object); };
    if constexpr (UsesContext<Handle>) {
      // Outlives the object, which may be the last that holds it.
      const std::shared_ptr<Context> context = static_cast<Handle*>(ended)->context;
      turns_of(context).destroy(ended, destroy);
    } else {
      destroy(ended);
    }
  });
}

// A new object until it is handed out: with several of one call, all or none are.
template <class Handle>
struct FreeHandle {
  void operator()(Handle* handle) const noexcept { free_handle(handle); }
};
template <class Handle>
using OwnedHandle = std::unique_ptr<Handle, FreeHandle<Handle>>;

// A caller's pointer, given back when nothing uses it any more, also if this fails.
inline std::shared_ptr<void> owned(void* user_data, void (*user_data_free)(void*)) {
  return {user_data, [user_data_free](void* pointer) {
            if (user_data_free) user_data_free(pointer);
          }};
}

bool is_live_error(const trafo_error* error) noexcept;
trafo_error* make_error(ErrorCode code, const char* origin, const char* message) noexcept;

// Of a thread that could not be started, or of the file system.
ErrorCode code_of(const std::system_error& error) noexcept;

// Runs the body of an entry point; nothing is thrown through the C ABI.
template <class Body>
trafo_error* api(const char* function, Body&& body) noexcept {
  try {
    body(Call(function));
    return nullptr;
  } catch (const Error& error) {
    return make_error(error.code(), error.origin().c_str(), error.message().c_str());
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

// Option structs: only the caller's struct_size bytes are read, the rest keeps its default; a
// longer struct must end in zeros.
template <class Options>
void init_options(const Call& call, Options* options, size_t struct_size, Options defaults) {
  if (!options) call.refuse("options is NULL");
  call.check_struct_size(struct_size);
  defaults.struct_size = struct_size;
  std::memset(static_cast<void*>(options), 0, struct_size);
  std::memcpy(static_cast<void*>(options), &defaults, std::min(struct_size, sizeof(Options)));
}

template <class Options>
Options read_options(const Call& call, const Options* options, Options defaults) {
  if (!options) return defaults;
  const size_t size = options->struct_size;
  if (size < sizeof(size_t) || size > kLargestOptions)
    call.refuse("struct_size ", size,
                " is not the size of an options struct; call its _init first");
  std::memcpy(static_cast<void*>(&defaults), options, std::min(size, sizeof(Options)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (size_t i = sizeof(Options); i < size; ++i)
    if (bytes[i] != 0)
      call.refuse(
          "the options struct is newer than this library and sets something it does not know");
  return defaults;
}

inline std::filesystem::path path_argument(const Call& call, const char* data, size_t length,
                                           const char* name) {
  const std::string_view text = call.text(data, length, name);
  if (text.empty()) call.refuse(name, " is empty");
  if (text.find('\0') != std::string_view::npos) call.refuse(name, " contains a NUL byte");
  return std::filesystem::path(text);
}

// A NUL-terminated copy for the caller.
char* copy_string(std::string_view text);

trafo_tensor* give_tensor(const trafo_context* owner, Tensor tensor);
trafo_tensor* give_tensor(const std::shared_ptr<Context>& owner, Tensor tensor);

// The results of one call: handed over together or not at all.
class NewTensors {
 public:
  NewTensors(const std::shared_ptr<Context>& owner, const std::vector<Tensor>& tensors) {
    handles_.reserve(tensors.size());  // a handle is in it as soon as it is made
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

DType checked_dtype(const Call& call, int32_t dtype);
Shape checked_shape(const Call& call, const int64_t* shape, int32_t rank);

}  // namespace trafo::capi
