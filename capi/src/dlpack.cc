#include "capi/src/dlpack.h"

#include <algorithm>
#include <array>

#include "capi/src/handles.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;
namespace dl = trafo::capi::dlpack;

namespace {

struct ElementType {
  DType dtype;
  uint8_t code, bits;
};
constexpr ElementType kTypes[] = {{DType::f32, dl::kFloat, 32},
                                  {DType::f64, dl::kFloat, 64},
                                  {DType::bf16, dl::kBfloat, 16},
                                  {DType::i32, dl::kInteger, 32}};

// Memory of an imported tensor. Its last user calls the deleter, once the import has succeeded.
class ForeignMemory final : public MemoryOwner {
 public:
  explicit ForeignMemory(const Context& context) {
    if (context.device().kind == DeviceKind::cpu) return;
    backend_ = &context.backend();
    keeps_backend_ = context.one(DType::f32);
  }
  void keep(DLManagedTensorVersioned* managed) { managed_ = managed; }
  void release(void*, size_t) noexcept override {
    if (!managed_) return;
    // Kernels that read the memory may still be in flight, but not on a device that is lost.
    try {
      if (backend_) backend_->synchronize();
    } catch (const std::exception&) {
    }
    if (managed_->deleter)
      FreeingCalls::run(
          [](void* argument) {
            auto* managed = static_cast<DLManagedTensorVersioned*>(argument);
            managed->deleter(managed);
          },
          managed_);
  }

 private:
  DLManagedTensorVersioned* managed_ = nullptr;
  Backend* backend_ = nullptr;
  Tensor keeps_backend_;  // for use after the context is freed
};

// The layout of `managed`, checked: no offset of an element overflows.
struct Description {
  DType dtype;
  Shape shape;
  Strides strides;
  int64_t count;
  int64_t extent;    // largest distance of an element from the first, in either direction
  std::byte* first;  // element [0, 0, ...]
  bool on_host;
};

Description describe(const Call& call, const DLManagedTensorVersioned& managed) {
  // With another major version no member after the version may be read.
  require(managed.version.major == dl::kMajor, ErrorCode::version, call.function(),
          "managed is of DLPack ", managed.version.major, ".", managed.version.minor,
          ", this library knows 1.x");
  const auto& t = managed.dl_tensor;
  Description d{};
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const ElementType& e) {
    return e.code == t.dtype.code && e.bits == t.dtype.bits && t.dtype.lanes == 1;
  });
  require(type != std::end(kTypes), ErrorCode::unsupported, call.function(),
          "elements of DLPack type code ", int{t.dtype.code}, " with ", int{t.dtype.bits},
          " bits and ", t.dtype.lanes,
          " lanes; convert them to float32, float64, bfloat16 or int32 first");
  d.dtype = type->dtype;
  d.shape = checked_shape(call, t.shape, t.ndim);
  d.count = element_count(d.shape);
  checked_mul(d.count, static_cast<int64_t>(dtype_size(d.dtype)), call.function());
  d.strides = t.strides ? Strides(std::span<const int64_t>(t.strides, d.shape.rank()))
                        : contiguous_strides(d.shape);
  if (d.count > 0) {
    const Strides packed = contiguous_strides(d.shape);
    for (int i = 0; i < d.shape.rank(); ++i) {
      // The stride of an axis with one element is never used and may be any number.
      if (d.shape[i] == 1) d.strides[i] = packed[i];
      const int64_t step =
          d.strides[i] < 0 ? checked_mul(d.strides[i], int64_t{-1}, call.function()) : d.strides[i];
      d.extent =
          checked_add(d.extent, checked_mul(d.shape[i], step, call.function()), call.function());
    }
    checked_mul(d.extent, static_cast<int64_t>(dtype_size(d.dtype)), call.function());
  }
  if (!t.data && d.count > 0)
    call.refuse_argument("managed", " has no data for its ", d.count, " elements");
  if (t.byte_offset > Call::kAddressSpace)
    call.refuse_argument("managed", "'s byte_offset ", t.byte_offset, " is impossible");
  d.first = static_cast<std::byte*>(t.data) + t.byte_offset;
  d.on_host = t.device.device_type == dl::kCpu || t.device.device_type == dl::kCudaHost;
  require(
      d.on_host || t.device.device_type == dl::kCuda || t.device.device_type == dl::kCudaManaged,
      ErrorCode::unsupported, call.function(), "memory of DLPack device type ",
      t.device.device_type, "; host (1, 3) and CUDA (2, 13) can be taken");
  return d;
}

// The reason why the memory cannot be shared with this device; null if it can.
const char* obstacle(const Description& d) {
  if (reinterpret_cast<uintptr_t>(d.first) % dtype_size(d.dtype) != 0)
    return "its elements are not aligned";
  for (int i = 0; i < d.shape.rank(); ++i)
    if (d.shape[i] > 1 && d.strides[i] <= 0)
      return d.strides[i] == 0 ? "elements share memory (a stride is 0)" : "a stride is negative";
  // Elements must not overlap: each stride steps over the reach of all smaller ones.
  for (int i = 0; i < d.shape.rank(); ++i) {
    int64_t reach = 0;  // at most the extent
    for (int j = 0; j < d.shape.rank(); ++j)
      if (d.shape[j] > 1 &&
          (d.strides[j] < d.strides[i] || (d.strides[j] == d.strides[i] && j < i)))
        reach += (d.shape[j] - 1) * d.strides[j];
    if (d.shape[i] > 1 && d.strides[i] <= reach) return "elements share memory (strides overlap)";
  }
  return nullptr;
}

// A row-major copy of host memory with any strides and alignment.
std::vector<std::byte> gather(const Description& d) {
  const size_t size = dtype_size(d.dtype);
  std::vector<std::byte> elements(static_cast<size_t>(d.count) * size);
  std::array<int64_t, kMaxRank> at{};
  int64_t offset = 0;
  for (int64_t i = 0; i < d.count; ++i) {
    std::memcpy(&elements[static_cast<size_t>(i) * size],
                d.first + offset * static_cast<int64_t>(size), size);
    for (int axis = d.shape.rank() - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      offset += d.strides[axis];
      if (++at[a] < d.shape[axis]) break;
      offset -= d.strides[axis] * d.shape[axis];
      at[a] = 0;
    }
  }
  return elements;
}

Tensor share(const Context& context, const Description& d,
             const std::shared_ptr<ForeignMemory>& memory) {
  size_t bytes = dtype_size(d.dtype);
  for (int i = 0; i < d.shape.rank(); ++i)
    bytes += static_cast<size_t>((d.shape[i] - 1) * d.strides[i]) * dtype_size(d.dtype);
  auto storage = std::make_shared<Storage>(memory, context.device(), d.first, bytes);
  return Tensor(std::move(storage), d.dtype, d.shape, d.strides, 0);
}

Tensor copy_of(Context& context, const Tensor& tensor) {
  NoGrad no_grad(context);
  const Tensor whole = ops::contiguous(context, tensor);
  Tensor copy = context.empty(whole.shape(), whole.dtype());
  context.backend().copy(copy.raw(), whole.raw(), whole.bytes());
  context.backend().synchronize();
  return copy;
}

// An exported tensor, alive until the consumer calls the deleter of the struct in it.
struct Loan {
  DLManagedTensorVersioned managed{};
  Tensor tensor;
  const Backend* backend = nullptr;  // the tensor keeps it alive
  Shape shape;
  Strides strides;
};

void end_loan(DLManagedTensorVersioned* managed) {
  delete static_cast<Loan*>(managed->manager_ctx);
}

// The tensor of this context whose memory `managed` still describes, or null. An import shares its
// storage, so that both count writes together (Storage::version).
const Tensor* lent_tensor(const Context& context, const DLManagedTensorVersioned& managed,
                          const Description& d) {
  if (managed.deleter != end_loan) return nullptr;
  const auto& loan = *static_cast<const Loan*>(managed.manager_ctx);
  const bool same = loan.backend == &context.backend() && loan.tensor.raw() == d.first &&
                    loan.tensor.dtype() == d.dtype;
  return same ? &loan.tensor : nullptr;
}

}  // namespace

trafo_error* trafo_tensor_from_dlpack(trafo_context* context, DLManagedTensorVersioned* managed,
                                      int32_t copy, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context, CallsBack::yes);
    if (!managed) call.refuse_argument("managed", " is NULL");
    if (copy < TRAFO_COPY_IF_NEEDED || copy > TRAFO_COPY_ALWAYS)
      call.refuse_argument(
          "copy", " must be TRAFO_COPY_IF_NEEDED (0), _NEVER (1) or _ALWAYS (2), got ", copy);
    const Description d = describe(call, *managed);
    const Device device = c.device();
    const bool cuda = device.kind == DeviceKind::cuda;
    require(d.on_host || (cuda && managed->dl_tensor.device.device_id == device.index),
            ErrorCode::unsupported, call.function(), "the memory is of CUDA device ",
            managed->dl_tensor.device.device_id, "; take it into a context of that device");
    const char* why = d.count > 0 ? obstacle(d) : nullptr;
    if (d.on_host && cuda) why = "the memory is the host's";
    if ((managed->flags & dl::kReadOnly) && !why)
      why = "it is read-only, and tensors can be written";
    const bool copies = d.count == 0 || copy == TRAFO_COPY_ALWAYS || why;
    require(d.count == 0 || !why || copy != TRAFO_COPY_NEVER, ErrorCode::unsupported,
            call.function(), "the memory cannot be shared: ", why);

    // A failure must not call the deleter: the memory still belongs to the caller.
    const auto memory = std::make_shared<ForeignMemory>(c);
    const Tensor* lent = lent_tensor(c, *managed, d);
    Tensor tensor;
    if (d.count == 0) {
      tensor = c.zeros(d.shape, d.dtype);
    } else if (d.on_host && copies) {
      const std::vector<std::byte> elements = gather(d);
      tensor = c.from_host(elements.data(), elements.size(), d.shape, d.dtype);
      if (cuda) c.backend().synchronize();
    } else if (copies) {
      require(!obstacle(d), ErrorCode::unsupported, call.function(),
              "memory of a CUDA device cannot be taken: ", obstacle(d));
      tensor = copy_of(c, share(c, d, memory));
    } else {
      tensor = lent ? lent->as_strided(d.shape, d.strides, lent->offset()) : share(c, d, memory);
    }
    *out = give_tensor(call.owner(), std::move(tensor));
    if (!copies && !lent)
      memory->keep(managed);
    else if (managed->deleter)
      call_host(managed->deleter, managed);
  });
}

trafo_error* trafo_tensor_to_dlpack(const trafo_tensor* tensor, DLManagedTensorVersioned** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TensorObject& source = call.handle(tensor, "tensor");
    call.use(source.context);
    auto loan = std::make_unique<Loan>();
    loan->tensor = source.tensor.detach();
    loan->backend = &source.context->backend();
    loan->shape = loan->tensor.shape();
    loan->strides = loan->tensor.strides();
    const Device device = loan->tensor.device();
    const bool cuda = device.kind == DeviceKind::cuda;
    const auto* type =
        std::find_if(std::begin(kTypes), std::end(kTypes),
                     [&](const ElementType& e) { return e.dtype == loan->tensor.dtype(); });
    loan->managed.version = {dl::kMajor, 0};
    loan->managed.manager_ctx = loan.get();
    loan->managed.deleter = end_loan;
    auto& t = loan->managed.dl_tensor;
    t.data = loan->tensor.numel() > 0 ? loan->tensor.raw() : nullptr;
    t.device = {cuda ? dl::kCuda : dl::kCpu, cuda ? device.index : 0};
    t.ndim = loan->shape.rank();
    t.dtype = {type->code, type->bits, 1};
    t.shape = const_cast<int64_t*>(loan->shape.begin());
    t.strides = const_cast<int64_t*>(loan->strides.begin());
    if (cuda) source.context->backend().synchronize();
    *out = &loan.release()->managed;
  });
}
