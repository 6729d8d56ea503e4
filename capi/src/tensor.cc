#include "capi/src/handles.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_tensor_new(trafo_context* context, int32_t dtype, const int64_t* shape,
                              int32_t rank, const void* data, size_t bytes, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const DType type = checked_dtype(call, dtype);
    const Shape dims = checked_shape(call, shape, rank);
    if (!data && bytes > 0) call.refuse_argument("data", " is NULL but bytes is ", bytes);
    *out = give_tensor(call.owner(),
                       data ? c.from_host(data, bytes, dims, type) : c.zeros(dims, type));
  });
}

trafo_error* trafo_tensor_clone(const trafo_tensor* tensor, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TensorObject& source = call.handle(tensor, "tensor");
    call.use(source.context);
    Context& c = *source.context;
    NoGrad no_grad(c);
    const Tensor whole = ops::contiguous(c, source.tensor.detach());
    Tensor copy = c.empty(whole.shape(), whole.dtype());
    c.backend().copy(copy.raw(), whole.raw(), whole.bytes());
    *out = give_tensor(source.context, copy);
  });
}

trafo_error* trafo_tensor_detach(const trafo_tensor* tensor, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TensorObject& source = call.handle(tensor, "tensor");
    call.use(source.context);
    *out = give_tensor(source.context, source.tensor.detach());
  });
}

void trafo_tensor_free(trafo_tensor* tensor) {
  free_handle(tensor);
}

trafo_error* trafo_tensor_get_dtype(const trafo_tensor* tensor, int32_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = static_cast<int32_t>(call.handle(tensor, "tensor").tensor.dtype());
  });
}

trafo_error* trafo_tensor_get_shape(const trafo_tensor* tensor, int64_t* shape, int32_t capacity,
                                    int32_t* out_rank) {
  return api(__func__, [&](const Call& call) {
    call.out(out_rank, "out_rank");
    const Shape& dims = call.handle(tensor, "tensor").tensor.shape();
    if (capacity < 0) call.refuse_argument("capacity", " is ", capacity);
    if (capacity > 0 && !shape)
      call.refuse_argument("shape", " is NULL but capacity is ", capacity);
    for (int i = 0; i < dims.rank() && i < capacity; ++i) shape[i] = dims[i];
    *out_rank = dims.rank();
  });
}

trafo_error* trafo_tensor_read(const trafo_tensor* tensor, void* data, size_t bytes) {
  return api(__func__, [&](const Call& call) {
    const TensorObject& source = call.handle(tensor, "tensor");
    if (!data && bytes > 0) call.refuse_argument("data", " is NULL");
    call.use(source.context);
    Context& c = *source.context;
    NoGrad no_grad(c);
    c.to_host(ops::contiguous(c, source.tensor.detach()), data, bytes);
  });
}

trafo_error* trafo_tensor_write(trafo_tensor* tensor, const void* data, size_t bytes) {
  return api(__func__, [&](const Call& call) {
    const TensorObject& target = call.handle(tensor, "tensor");
    const Tensor& t = target.tensor;
    if (!data && bytes > 0) call.refuse_argument("data", " is NULL");
    check_writable(call, t);
    require(bytes == t.bytes(), ErrorCode::shape_mismatch, call.function(), "the tensor takes ",
            t.bytes(), " bytes, got ", bytes);
    call.use(target.context);
    target.context->backend().copy_from_host(t.raw(), data, bytes);
    t.mark_written();
  });
}

trafo_error* trafo_tensor_mark_written(trafo_tensor* tensor) {
  return api(__func__, [&](const Call& call) {
    const TensorObject& target = call.handle(tensor, "tensor");
    call.use(target.context);
    target.tensor.mark_written();
  });
}

trafo_error* trafo_tensor_set_requires_grad(trafo_tensor* tensor, int32_t requires_grad) {
  return api(__func__, [&](const Call& call) {
    TensorObject& target = call.handle(tensor, "tensor");
    call.use(target.context);
    set_requires_grad(target.tensor, call.flag(requires_grad, "requires_grad"));
  });
}

trafo_error* trafo_tensor_get_grad(const trafo_tensor* tensor, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TensorObject& source = call.handle(tensor, "tensor");
    call.use(source.context);
    const Tensor grad = grad_of(source.tensor);
    if (grad.defined()) *out = give_tensor(source.context, grad.detach());
  });
}

trafo_error* trafo_tensor_zero_grad(trafo_tensor* tensor) {
  return api(__func__, [&](const Call& call) {
    const TensorObject& target = call.handle(tensor, "tensor");
    call.use(target.context);
    zero_grad(target.tensor);
  });
}
