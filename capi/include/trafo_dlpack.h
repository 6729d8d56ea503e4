/*
 * Trafo, tensors of other libraries without copies: DLPack 1.x. Programs include trafo.h, whose beginning says what holds for every
 * call here as well; the struct is that of dlpack.h, which is not needed here.
 *
 * Streams    On CUDA both directions are free of races without a stream of yours: export waits until the elements are there; what
 *            is taken in must be complete when it is given (synchronise the stream that writes it), and its deleter runs after
 *            Trafo's work on it is done. A consumer of exported memory calls the deleter when its own work on it is done.
 * Threads    The deleter of an exported tensor may be called on any thread, also after the context was freed; that of a tensor
 *            taken in is called on the thread that frees the last of what uses the memory.
 */
#ifndef TRAFO_DLPACK_H
#define TRAFO_DLPACK_H

#include "trafo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* uint32_t major, minor (1.x); void *manager_ctx; void (*deleter)(struct DLManagedTensorVersioned *); uint64_t flags (1: read-only,
 * 2: copied); void *data; int32_t device_type (1: host, 2: CUDA, 3: host memory of CUDA, 13: managed by CUDA), device_id; int32_t
 * ndim; uint8_t code (0: integer, 2: float, 4: bfloat), bits; uint16_t lanes; int64_t *shape; int64_t *strides (in elements; NULL:
 * row-major); uint64_t byte_offset. */
struct DLManagedTensorVersioned;

#define TRAFO_COPY_IF_NEEDED 0 /* memory is shared where it can be, else copied */
#define TRAFO_COPY_NEVER 1     /* UNSUPPORTED says why memory cannot be shared */
#define TRAFO_COPY_ALWAYS 2

/* A leaf over the memory of `managed`, which it takes: the deleter is called once, when the last tensor that uses the memory is
 * gone, or before this returns if the elements were copied. After a failure `managed` is still the caller's. float32, float64,
 * bfloat16 and int32; shared is memory of the context's device, or of the host on the CPU. Copied must be what is read-only
 * (tensors can be written), is not aligned to its elements, or has strides that are negative or 0; and host memory for a CUDA
 * context. VERSION: another major version. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_from_dlpack(trafo_context *context,
                                                               struct DLManagedTensorVersioned *managed, int32_t copy,
                                                               trafo_tensor **out);
/* The tensor's memory, strides as they are, kept alive until the consumer calls the deleter; writes are seen by both sides, and no
 * gradient flows through it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_to_dlpack(const trafo_tensor *tensor,
                                                             struct DLManagedTensorVersioned **out);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DLPACK_H */
