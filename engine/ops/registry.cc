#include <array>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/core/argument_error.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/gradient_kernels.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {

#define TRAFO_OP(name, Name)                                             \
  struct Name##ForwardParams;                                            \
  struct Name##BackwardParams;                                           \
  void name##_forward_cpu(ThreadPool& pool, const Name##ForwardParams&); \
  void name##_backward_cpu(ThreadPool& pool, const Name##BackwardParams&);
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) \
  struct Name##Params;           \
  void name##_cpu(ThreadPool& pool, const Name##Params&);
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE

namespace {

// Gives a typed CPU kernel the C signature of the table.
template <class Params, void (*kernel)(ThreadPool&, const Params&)>
int32_t call(void* stream, const void* params) {
  kernel(*static_cast<ThreadPool*>(stream), *static_cast<const Params*>(params));
  return 0;
}

constexpr std::array<KernelFn, kOpKernelCount> kCpuKernels = {
#define TRAFO_OP(name, Name)                       \
  &call<Name##ForwardParams, &name##_forward_cpu>, \
      &call<Name##BackwardParams, &name##_backward_cpu>,
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) &call<Name##Params, &name##_cpu>,
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
};

constexpr std::array<const char*, kOpKernelCount> kKernelNames = {
#define TRAFO_OP(name, Name) #name "_forward", #name "_backward",
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) #name,
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
};

}  // namespace

const char* op_kernel_name(OpKernel kernel) {
  return kKernelNames[static_cast<size_t>(kernel)];
}

void register_gradient_kernels() {
  static constexpr GradientKernels kGradientKernels{&accumulate_into, &convert_into};
  set_gradient_kernels(&kGradientKernels);
}

std::unique_ptr<Context> make_context(Device device, int threads) {
  require_argument(threads >= 1 && threads <= ThreadPool::kMaxThreads, "context", "threads",
                   " must be 1 to ", ThreadPool::kMaxThreads, ", got ", threads);
  register_gradient_kernels();
  if (device.kind == DeviceKind::cuda)
    return std::make_unique<Context>(make_cuda_backend(device.index, kKernelNames));
  require(device.index == 0, ErrorCode::invalid_argument, "context",
          "the CPU is one device, number 0; got ", device.index);
  std::shared_ptr<Backend> backend = make_cpu_backend(threads);
  backend->set_kernels(kCpuKernels);
  return std::make_unique<Context>(std::move(backend));
}

}  // namespace trafo
