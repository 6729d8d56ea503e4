/*
 * Trafo, tensors shared with other libraries without copies: DLPack 1.x. Include trafo.h; its rules hold here. The struct is the
 * one of dlpack.h, which need not be installed.
 *
 * Streams    On CUDA no stream is passed. Export waits until the elements are written. An imported tensor must be complete when
 *            it is passed: synchronise the stream that writes it. Its deleter runs after Trafo's work on it. The consumer of an
 *            exported tensor calls the deleter after its own work on it.
 * Threads    The deleter of an exported tensor may be called on any thread, also after the context was freed. The deleter of an
 *            imported tensor is called at the end of the call that frees the last tensor over the memory, or, if another thread
 *            is in a call on the context, at the end of that call, on its thread. No lock is held.
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

/* A leaf over the memory of `managed`: float32, float64, bfloat16 or int32. On success Trafo owns `managed` and calls its deleter
 * once: when the last tensor over the memory is freed, or before this returns if the elements were copied. After a failure it still
 * belongs to the caller. Memory is shared if it is on the context's device (on the CPU: in host memory). It has to be copied if it
 * is read-only, not aligned to its elements, has strides that are negative or 0, or is host memory for a CUDA context. VERSION:
 * another major version of DLPack. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_from_dlpack(trafo_context *context,
                                                               struct DLManagedTensorVersioned *managed, int32_t copy,
                                                               trafo_tensor **out);
/* Exports the tensor's memory with its strides. The memory lives until the consumer calls the deleter. Both sides see writes, and no
 * gradient flows through it. After a write of the consumer between forward and backward, call trafo_tensor_mark_written: the library
 * cannot see it. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tensor_to_dlpack(const trafo_tensor *tensor,
                                                             struct DLManagedTensorVersioned **out);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DLPACK_H */
