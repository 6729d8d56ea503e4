// The GPU through libtrafo_cuda.so, found and loaded when it is first asked for. This side sees no
// CUDA header.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cards.h"

namespace trafo {

// Throws UNSUPPORTED saying what is missing (plugin, driver or device) and where it was looked for;
// VERSION if the plugin belongs to another release. Kernels stand at the places of `kernel_names`;
// one the plugin lacks stays null and fails when it is launched.
//
// If TRAFO_CUDA_LIBRARY is set, the plugin is the file that it names, by an absolute path.
// Otherwise it is looked for beside the file this code is part of, and then on the loader's path.
std::shared_ptr<Backend> make_cuda_backend(int32_t index,
                                           std::span<const char* const> kernel_names);

struct CudaDeviceInfo {
  std::string name;
  int32_t compute_major, compute_minor;
  int64_t memory_bytes;
};
// Empty without a device; *why (if not null) says what is missing then. Never throws for a missing
// plugin.
std::vector<CudaDeviceInfo> cuda_devices(std::string* why);
// Bytes of device `index`, all and those nobody has taken. False: there is no such device. Opens
// it.
bool cuda_device_memory(int32_t index, int64_t& total, int64_t& free);

// Something else that the plugin exports. Throws as make_cuda_backend does, and UNSUPPORTED if it
// does not.
struct PluginSymbol {
  void* address;
  std::string path;  // of the plugin: absolute, or a name that the loader has looked up
};
PluginSymbol cuda_plugin_symbol(const char* name);

// Calls on this backend are in the background or, as at first, in the foreground: on CUDA, their
// work has the lowest or the highest priority of the card's. Waits for work that was issued. Does
// nothing on another device.
void set_background(Backend& backend, bool background);

// Kernels of this CUDA backend are chosen as on `card` from now on; null: as on its own card. For
// tests. Throws UNSUPPORTED if these kernels do not run on its own card, which may have less shared
// memory or not the instructions of 9.0. Only the choice is the other card's: its machine code is
// not run.
void choose_kernels_as_on(Backend& backend, const cuda::Card* card);

}  // namespace trafo
