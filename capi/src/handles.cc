#include "capi/src/handles.h"

#include <span>

namespace trafo::capi {
namespace {

// Returned when there is no memory for an error object. No other handle has its number.
const ErrorObject& out_of_memory_error() {
  static const auto* error = new ErrorObject{ErrorCode::out_of_memory, "", "out of memory", ""};
  return *error;
}
trafo_error* out_of_memory_handle() {
  return static_cast<trafo_error*>(to_handle(0));
}
// Made while the library loads, when there still is memory.
[[maybe_unused]] const ErrorObject* const kPrepared = &out_of_memory_error();

}  // namespace

Call::~Call() {
  priority_.reset();
  if (holds_) lock_of(holds_).end();
  for (size_t i = 0; i < in_use_count_; ++i) end_use(in_use_[i]);
  for (const void* handle : more_in_use_) end_use(handle);
}

void Call::keep(const void* handle) const {
  if (in_use_count_ < in_use_.size()) {
    in_use_[in_use_count_++] = handle;
    return;
  }
  try {
    more_in_use_.push_back(handle);
  } catch (...) {
    end_use(handle);
    throw;
  }
}

void Call::use(const std::shared_ptr<Context>& context, CallsBack calls_back) const {
  if (holds_) return;
  ContextLock& lock = lock_of(context);
  if (!lock.begin(calls_back == CallsBack::yes))
    refuse(lock.is_mine() ? "a progress function cannot use the context of the call that it is "
                            "told of"
                          : "the context is at work on another thread, in a call that may call "
                            "back; wait for its end, or use a context of your own");
  holds_ = context;
  priority_.emplace(lock.background_share());
}

CancelArgument::CancelArgument(const Call& call, const trafo_cancel* cancel, Tells tells) {
  if (cancel == nullptr) return;
  const CancelObject& object = call.handle(cancel, "cancel");
  token_ = object.token;
  if (tells == Tells::no) return;
  {
    const std::lock_guard lock(object.progress_mutex);
    progress_ = object.progress;
  }
  if (!progress_) return;
  if (call.owner()) {
    lock_of(call.owner()).begin(true);  // this thread holds it
    context_ = call.owner();
  }
  scope_.emplace(
      [this](Work work, int64_t done, int64_t total) { return tell(work, done, total); });
}

CancelArgument::~CancelArgument() {
  if (context_) lock_of(context_).end();
}

bool CancelArgument::tell(Work work, int64_t done, int64_t total) const {
  std::optional<ContextLock::Closed> closed;
  if (context_) closed.emplace(lock_of(context_));
  const int32_t result = call_host(progress_->function, progress_->user_data.get(),
                                   static_cast<int32_t>(work), done, total);
  if (result != 0) token_->cancel();
  return result == 0;
}

void* give_memory(size_t bytes, HandleKind kind) {
  void* memory = std::calloc(1, bytes);
  if (!memory) throw std::bad_alloc();
  try {
    register_memory(memory, kind);
  } catch (...) {
    std::free(memory);
    throw;
  }
  return memory;
}

void free_memory(void* memory, HandleKind kind) noexcept {
  end_handle(memory, kind, [](void* ended) { std::free(ended); });
}

trafo_error* make_error(ErrorCode code, const char* origin, const char* message,
                        const char* field) noexcept {
  try {
    // The message may quote a file, and the program may print it to a terminal.
    std::string shown = message;
    std::replace_if(
        shown.begin(), shown.end(),
        [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f; },
        '?');
    return new_handle<trafo_error>(code, std::string(origin), std::move(shown), std::string(field));
  } catch (...) {
    return out_of_memory_handle();
  }
}

trafo_error* make_error(const Error& error) noexcept {
  const auto* of_argument = dynamic_cast<const ArgumentError*>(&error);
  return make_error(error.code(), error.origin().c_str(), error.message().c_str(),
                    of_argument ? of_argument->field().c_str() : "");
}

ErrorCode code_of(const std::system_error& error) noexcept {
  if (error.code() == std::errc::not_enough_memory ||
      error.code() == std::errc::resource_unavailable_try_again)
    return ErrorCode::out_of_memory;
  const bool files = dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
  return files ? ErrorCode::io : ErrorCode::internal;
}

const ErrorObject* find_error(const trafo_error* error) noexcept {
  if (error == out_of_memory_handle()) return &out_of_memory_error();
  return static_cast<const ErrorObject*>(find_object(error, HandleKind::error));
}

char* copy_string(std::string_view text) {
  auto* copy = static_cast<char*>(give_memory(text.size() + 1, HandleKind::string));
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

trafo_tensor* give_tensor(const std::shared_ptr<Context>& owner, Tensor tensor) {
  return new_handle<trafo_tensor>(owner, std::move(tensor));
}

void check_writable(const Call& call, const Tensor& tensor) {
  if (requires_grad(tensor) && !tensor.variable()->leaf)
    call.refuse("the tensor is the result of an op; only leaves can be overwritten");
  if (!tensor.is_contiguous()) call.refuse("the tensor is a strided view; write to what it views");
}

DType checked_dtype(const Call& call, int32_t dtype) {
  if (dtype < 0 || dtype >= kDTypeCount) call.refuse_argument("dtype", " is unknown: ", dtype);
  return static_cast<DType>(dtype);
}

Shape checked_shape(const Call& call, const int64_t* shape, int32_t rank) {
  if (rank < 0 || rank > kMaxRank)
    call.refuse_argument("rank", " must be 0 to ", kMaxRank, ", got ", rank);
  call.array(shape, static_cast<size_t>(rank), "shape");
  return Shape(std::span<const int64_t>(shape, static_cast<size_t>(rank)));
}

}  // namespace trafo::capi
