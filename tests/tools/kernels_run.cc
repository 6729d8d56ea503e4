// Linked into a second libtrafo_cuda.so (build folder, kernels_run/): notes which kernels the
// library holds and which were launched, and appends both to the file that TRAFO_KERNELS_RUN names
// when the process ends: a line "holds NAME" or "ran NAME" each. The linker's --wrap puts it
// between the kernels' host stubs and the runtime (crt/host_runtime.h), so nothing slows the
// launches down.
#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

struct Notes {
  std::mutex mutex;
  std::map<const void*, std::string> names;     // of host stubs
  std::map<cudaKernel_t, std::string> kernels;  // that stubs have asked for
  std::set<std::string> ran;
};

// Never destroyed: the last launch may come late.
Notes& notes() {
  static Notes* const all = new Notes;
  return *all;
}

__attribute__((destructor)) void write_notes() {
  const char* path = std::getenv("TRAFO_KERNELS_RUN");
  if (!path || !*path) return;
  Notes& all = notes();
  const std::lock_guard lock(all.mutex);
  std::string text;
  for (const auto& [stub, name] : all.names) text += "holds " + name + "\n";
  for (const std::string& name : all.ran) text += "ran " + name + "\n";
  std::FILE* file = std::fopen(path, "a");
  if (!file) return;
  std::setvbuf(file, nullptr, _IOFBF, text.size() + 1);  // one write: processes share the file
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

}  // namespace

extern "C" {

void __real___cudaRegisterFunction(void** binary, const char* stub, char* function,
                                   const char* name, int threads, uint3* tid, uint3* bid,
                                   dim3* block, dim3* grid, int* warp);
void __wrap___cudaRegisterFunction(void** binary, const char* stub, char* function,
                                   const char* name, int threads, uint3* tid, uint3* bid,
                                   dim3* block, dim3* grid, int* warp) {
  {
    const std::lock_guard lock(notes().mutex);
    notes().names[stub] = name;
  }
  __real___cudaRegisterFunction(binary, stub, function, name, threads, tid, bid, block, grid, warp);
}

cudaError_t __real___cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t __wrap___cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  const cudaError_t result = __real___cudaGetKernel(kernel, stub);
  if (result == cudaSuccess) {
    const std::lock_guard lock(notes().mutex);
    notes().kernels[*kernel] = notes().names[stub];
  }
  return result;
}

cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
  const cudaError_t result =
      __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
  if (result == cudaSuccess) {
    const std::lock_guard lock(notes().mutex);
    notes().ran.insert(notes().kernels[kernel]);
  }
  return result;
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub,
                                       void** arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub,
                                       void** arguments) {
  const cudaError_t result = __real_cudaLaunchKernelExC(config, stub, arguments);
  if (result == cudaSuccess) {
    const std::lock_guard lock(notes().mutex);
    notes().ran.insert(notes().names[stub]);
  }
  return result;
}

}  // extern "C"
