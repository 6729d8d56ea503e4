// Where a command computes, and in what.
#pragma once

#include <string>

#include <vector>

#include "commands/trafo_handles.h"
#include "settings/settings.h"

namespace translate_train {

// "auto", "cpu", "cuda", "cuda:1". Throws usage errors.
trafo_context_options context_options(const std::string& device, int64_t threads, bool fused);

// The devices of --devices, one for each rank as "cuda:1" or "cpu", or else of --device. Throws
// usage errors.
std::vector<std::string> devices_of(const Settings& settings);
// For each of them, with the settings of the machine.
std::vector<trafo_context_options> context_options_of(const Settings& settings);

// A context for training in one of kPrecisions. On a CPU, bf16 becomes the matmul precision of its
// options; an error of the library says if the processor lacks it.
Context open_training_context(trafo_context_options& options, const std::string& precision);

inline constexpr const char* kPrecisions[] = {"auto", "fp32", "tf32", "bf16", "fp8"};
// Throws the usage error that says why there is no fp16.
void refuse_fp16(const std::string& precision);
// The number formats that a model is trained in.
struct Precision {
  int32_t dtype;      // TRAFO_FLOAT32 or TRAFO_BFLOAT16
  bool tf32 = false;  // trafo_trainer_options::tf32
  bool fp8 = false;   // trafo_trainer_options::fp8
};
// By one of kPrecisions: auto is bf16 on CUDA, else fp32. Throws a usage error for one that the
// device does not compute in.
Precision training_precision_on(const trafo_context* context, const std::string& precision);
// The dtype of a model that is not trained: without tf32 and fp8.
int32_t precision_on(const trafo_context* context, const std::string& precision);
// "cpu, 2 threads"; "cuda:0 NVIDIA H200, bf16"
std::string device_text(const trafo_context* context, const trafo_context_options& options,
                        Precision precision);

}  // namespace translate_train
