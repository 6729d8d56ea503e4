#include <algorithm>
#include <thread>
#include <utility>

#include "capi/src/handles.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/io/atomic_file.h"
#include "engine/ops/op_kernel.h"
#include "engine/runtime/trace_report.h"

using namespace trafo;
using namespace trafo::capi;

// CUDA if a context can be created there. If not, that is no error; trafo_device_count tells why.
static std::unique_ptr<Context> make_context_anywhere(int threads) {
  try {
    return make_context({DeviceKind::cuda, 0}, threads);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::version) throw;
    return make_context({DeviceKind::cpu, 0}, threads);
  }
}

// The share is of host threads, which compute nothing for a GPU.
static void set_background_share(const Call& call, const std::shared_ptr<Context>& context,
                                 const char* name, double share) {
  if (!(share >= BackgroundShare::kLeast && share <= 1.0))
    call.refuse_argument(name, " must be ", BackgroundShare::kLeast, " to 1, got ", share);
  if (share < 1.0 && context->device().kind != DeviceKind::cpu)
    throw ArgumentError(ErrorCode::unsupported, call.function(), name,
                        " below 1 is for contexts on the CPU");
  lock_of(context).background_share().set(share);
}

trafo_error* trafo_context_new(const trafo_context_options* options, trafo_context** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const trafo_context_options o = read_options(call, options);
    if (o.device < TRAFO_DEVICE_CPU || o.device > TRAFO_DEVICE_AUTO)
      call.refuse_argument("device", " is unknown: ", o.device);
    if (o.device == TRAFO_DEVICE_AUTO && o.device_index != 0)
      call.refuse_argument("device_index",
                           " is for TRAFO_DEVICE_CUDA; with TRAFO_DEVICE_AUTO it must be 0, got ",
                           o.device_index);
    if (o.matmul_precision != TRAFO_FLOAT32 && o.matmul_precision != TRAFO_BFLOAT16)
      call.refuse_argument("matmul_precision",
                           " must be TRAFO_FLOAT32 (0) or TRAFO_BFLOAT16 (2), got ",
                           o.matmul_precision);
    const bool fused = call.flag(o.fused_kernels, "fused_kernels");
    const bool graphs = call.flag(o.graphs, "graphs");
    if (o.threads < 0)
      call.refuse_argument("threads", " must be 0 (one for each core) to 256, got ", o.threads);
    const int cores = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 256u));
    const int threads = o.threads ? o.threads : cores;
    std::unique_ptr<Context> context =
        o.device == TRAFO_DEVICE_AUTO
            ? make_context_anywhere(threads)
            : make_context({static_cast<DeviceKind>(o.device), o.device_index}, threads);
    context->set_fused_kernels(fused);
    context->set_graphs(graphs);
    set_matmul_precision(context->backend(), DType{o.matmul_precision}, call.function());
    if (o.memory_directory.length != 0)
      set_memory_directory(context->backend(),
                           path_argument(call, o.memory_directory.data, o.memory_directory.length,
                                         "memory_directory"),
                           call.function());
    ContextOwner owner;  // allocates, so it is created while the context still has an owner
    std::shared_ptr<Context> shared(context.release(), std::move(owner));
    set_background_share(call, shared, "background_share", o.background_share);
    *out = new_handle<trafo_context>(std::move(shared));
  });
}

void trafo_context_free(trafo_context* context) {
  free_handle(context);
}

trafo_error* trafo_context_get_device(const trafo_context* context, int32_t* out_device,
                                      int32_t* out_index) {
  return api(__func__, [&](const Call& call) {
    call.out(out_device, "out_device");
    call.out(out_index, "out_index");
    const Device device = call.handle(context, "context").context->device();
    *out_device = static_cast<int32_t>(device.kind);
    *out_index = device.index;
  });
}

trafo_error* trafo_context_set_threads(trafo_context* context, int32_t threads) {
  return api(__func__,
             [&](const Call& call) { call.context(context).backend().set_threads(threads); });
}

trafo_error* trafo_context_set_background_share(trafo_context* context, double share) {
  return api(__func__, [&](const Call& call) {
    call.context(context);
    set_background_share(call, call.owner(), "share", share);
  });
}

trafo_error* trafo_context_memory_stats(trafo_context* context, trafo_memory_stats* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const MemoryStats stats = call.context(context).backend().memory_stats();
    *out = {stats.allocated_bytes, stats.peak_bytes, stats.reserved_bytes};
  });
}

trafo_error* trafo_context_trim_memory(trafo_context* context) {
  return api(__func__, [&](const Call& call) {
    Backend& backend = call.context(context).backend();
    backend.release_cached_memory();
    backend.reset_peak_memory();
  });
}

trafo_error* trafo_context_profile_start(trafo_context* context, int32_t keep_graphs) {
  return api(__func__, [&](const Call& call) {
    ContextObject& owner = call.handle(context, "context");
    call.use(owner.context);
    owner.context->start_profile(call.flag(keep_graphs, "keep_graphs"));
    owner.profile.reset();
  });
}

trafo_error* trafo_context_profile_write(trafo_context* context, const char* path,
                                         size_t path_length, char** out_table) {
  return api(__func__, [&](const Call& call) {
    if (out_table) *out_table = nullptr;
    ContextObject& owner = call.handle(context, "context");
    call.use(owner.context);
    std::optional<std::filesystem::path> file;
    if (!call.text(path, path_length, "path").empty())
      file = path_argument(call, path, path_length, "path");
    if (owner.context->profiling()) owner.profile = owner.context->finish_profile();
    if (!owner.profile)
      call.refuse("no profile was started: call trafo_context_profile_start first");
    if (file) {
      AtomicFile out(*file);
      write_chrome_trace(out, *owner.profile);
      out.commit();
    }
    if (out_table) *out_table = copy_string(trace_table(*owner.profile));
  });
}

trafo_error* trafo_context_set_recording(trafo_context* context, int32_t recording,
                                         int32_t* out_previous) {
  return api(__func__, [&](const Call& call) {
    if (out_previous) *out_previous = 0;
    Context& c = call.context(context);
    const bool wanted = call.flag(recording, "recording");
    if (out_previous) *out_previous = c.recording() ? 1 : 0;
    c.set_recording(wanted);
  });
}

trafo_error* trafo_cancel_new(trafo_cancel** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = new_handle<trafo_cancel>();
  });
}

trafo_error* trafo_cancel_set(const trafo_cancel* cancel) {
  return api(__func__, [&](const Call& call) { call.handle(cancel, "cancel").token->cancel(); });
}

trafo_error* trafo_cancel_reset(const trafo_cancel* cancel) {
  return api(__func__, [&](const Call& call) { call.handle(cancel, "cancel").token->reset(); });
}

trafo_error* trafo_cancel_is_set(const trafo_cancel* cancel, int32_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = call.handle(cancel, "cancel").token->is_cancelled() ? 1 : 0;
  });
}

trafo_error* trafo_cancel_set_progress(trafo_cancel* cancel, trafo_progress_fn progress,
                                       void* user_data, void (*user_data_free)(void*)) {
  return api(__func__, [&](const Call& call) {
    const auto keep = owned(user_data, user_data_free);
    CancelObject& object = call.handle(cancel, "cancel");
    std::shared_ptr<const ProgressCallback> callback;
    if (progress)
      callback = std::make_shared<const ProgressCallback>(ProgressCallback{progress, keep});
    const std::lock_guard lock(object.progress_mutex);
    std::swap(object.progress, callback);  // the old one is freed after the lock
  });
}

void trafo_cancel_free(trafo_cancel* cancel) {
  free_handle(cancel);
}
