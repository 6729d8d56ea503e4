// A tensor is a view (shape, strides, offset) of shared storage. Copying a Tensor copies the
// handle, not the data.
//
// A tensor that takes part in differentiation has a Variable (engine/autograd/variable.h); a tensor
// without one is a constant. core/ only stores the pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/shape.h"

namespace trafo {

struct Variable;  // engine/autograd/variable.h

// The owner of a block of memory: a backend, or a wrapper of memory from outside the engine.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void release(void* pointer, size_t bytes) noexcept = 0;
};

class Storage {
 public:
  Storage(std::shared_ptr<MemoryOwner> owner, Device device, void* data, size_t bytes)
      : owner_(std::move(owner)), device_(device), data_(data), bytes_(bytes) {}
  ~Storage() {
    if (data_ && owner_) owner_->release(data_, bytes_);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device device() const { return device_; }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Counts the writes to elements that an op may have saved for its backward (SavedValue). Who
  // overwrites elements of a tensor that somebody else has seen calls mark_written().
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void mark_written() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::shared_ptr<MemoryOwner> owner_;
  Device device_;
  void* data_;
  size_t bytes_;
  std::atomic<uint64_t> version_{0};
};

class Tensor {
 public:
  Tensor() = default;
  // A view of `storage`; throws INVALID_ARGUMENT if any element would lie outside it.
  Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, const Strides& strides,
         int64_t offset);

  bool defined() const { return impl_ != nullptr; }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device(); }
  const Shape& shape() const { return impl_->shape; }
  const Strides& strides() const { return impl_->strides; }
  int rank() const { return impl_->shape.rank(); }
  int64_t dim(int i) const { return impl_->shape[i < 0 ? i + rank() : i]; }  // -1 is the last
  int64_t numel() const { return impl_->numel; }
  int64_t offset() const { return impl_->offset; }  // elements from the start of the storage
  size_t bytes() const { return static_cast<size_t>(numel()) * dtype_size(dtype()); }
  bool is_contiguous() const { return impl_->contiguous; }
  const std::shared_ptr<Storage>& storage() const { return impl_->storage; }
  void mark_written() const { impl_->storage->mark_written(); }

  // Address of the first element. Only a CPU tensor's may be dereferenced.
  void* raw() const {
    return static_cast<std::byte*>(impl_->storage->data()) +
           impl_->offset * static_cast<int64_t>(dtype_size(impl_->dtype));
  }
  template <class T>
  T* data() const {
    require(dtype_of<T> == impl_->dtype, ErrorCode::dtype_mismatch, "tensor", "read as ",
            dtype_name(dtype_of<T>), ", holds ", dtype_name(impl_->dtype));
    return static_cast<T*>(raw());
  }

  // Another view of the same storage, without gradient history. `offset` counts from the start of
  // the storage.
  Tensor as_strided(const Shape& shape, const Strides& strides, int64_t offset) const;
  // The same elements with another shape; the tensor must be contiguous. Without gradient history.
  Tensor reshaped(const Shape& shape) const;
  // The same view without gradient history.
  Tensor detach() const;

  const std::shared_ptr<Variable>& variable() const { return impl_->variable; }
  void set_variable(std::shared_ptr<Variable> variable) { impl_->variable = std::move(variable); }

  // True if another handle or view refers to the same memory.
  bool is_shared() const { return impl_.use_count() > 1 || impl_->storage.use_count() > 1; }

  friend bool same_tensor(const Tensor& a, const Tensor& b) { return a.impl_ == b.impl_; }

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    DType dtype;
    Shape shape;
    Strides strides;
    int64_t offset;
    int64_t numel;
    bool contiguous;
    std::shared_ptr<Variable> variable;
  };
  std::shared_ptr<Impl> impl_;
};

}  // namespace trafo
