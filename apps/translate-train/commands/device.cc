#include "commands/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

namespace translate_train {
namespace {

struct Place {
  int32_t device = 0, index = 0;
};

Place place_of(const trafo_context* context) {
  Place place;
  check(trafo_context_get_device(context, &place.device, &place.index));
  return place;
}

}  // namespace

trafo_context_options context_options(const std::string& device, int64_t threads, bool fused) {
  auto options = with_defaults<trafo_context_options>(trafo_context_options_init);
  if (device == "auto") {
    options.device = TRAFO_DEVICE_AUTO;
  } else if (device.starts_with("cuda")) {
    options.device = TRAFO_DEVICE_CUDA;
    const char* begin = device.data() + std::min<size_t>(5, device.size());
    const char* end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(begin, end, options.device_index);
    if (device != "cuda" && (device[4] != ':' || error != std::errc() || stop != end))
      usage_error(fmt::format("--device: wants auto, cpu, cuda or cuda:N, got '{}'", device));
  } else if (device != "cpu") {
    usage_error(fmt::format("--device: wants auto, cpu, cuda or cuda:N, got '{}'", device));
  }
  if (threads < 0 || threads > 256)
    usage_error(fmt::format("--cpu-threads: wants 0 (every core) to 256, got {}", threads));
  options.threads = static_cast<int32_t>(threads);
  options.fused_kernels = fused;
  return options;
}

std::vector<std::string> devices_of(const Settings& settings) {
  if (!settings.has(Setting::devices))
    return {settings.has(Setting::device) ? settings.program.device : std::string("auto")};
  std::vector<std::string> devices;
  for (const std::string& word : settings.program.devices) {
    for (size_t begin = 0; begin <= word.size();) {
      const size_t comma = std::min(word.find(',', begin), word.size());
      const std::string name = word.substr(begin, comma - begin);
      begin = comma + 1;
      const std::string_view digits =
          name.starts_with("cuda:") ? std::string_view(name).substr(5) : name;
      int32_t index = -1;
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), index);
      const bool is_number = error == std::errc() && stop == digits.data() + digits.size();
      if (name != "cpu" && (!is_number || index < 0))
        settings.refuse(Setting::devices,
                        fmt::format("wants numbers of GPUs as 0,1, or cpu,cpu; got '{}'", name));
      devices.push_back(name == "cpu" ? name : fmt::format("cuda:{}", index));
    }
  }
  for (auto each = devices.begin(); each != devices.end(); ++each) {
    if ((*each == "cpu") != (devices[0] == "cpu"))
      settings.refuse(Setting::devices, "wants GPUs or the CPU, not both");
    if (*each != "cpu" && std::find(devices.begin(), each, *each) != each)
      settings.refuse(Setting::devices, fmt::format("has {} twice", *each));
  }
  return devices;
}

std::vector<trafo_context_options> context_options_of(const Settings& settings) {
  const std::vector<std::string> devices = devices_of(settings);
  const ProgramSettings& given = settings.program;
  int64_t threads = settings.has(Setting::cpu_threads) ? given.cpu_threads : 0;
  if (threads == 0 && devices.size() > 1)  // each its share of the cores
    threads = std::max<int64_t>(1, std::min(256u, std::thread::hardware_concurrency()) /
                                       static_cast<int64_t>(devices.size()));
  std::vector<trafo_context_options> all;
  for (const std::string& device : devices) {
    all.push_back(context_options(
        device, threads, !settings.has(Setting::fused_kernels) || given.fused_kernels != 0));
    all.back().graphs = !settings.has(Setting::cuda_graphs) || given.cuda_graphs != 0;
  }
  return all;
}

Context open_training_context(trafo_context_options& options, const std::string& precision) {
  auto context = make<Context>(trafo_context_new, &options);
  if (precision != "bf16" || place_of(context.get()).device != TRAFO_DEVICE_CPU) return context;
  options.device = TRAFO_DEVICE_CPU;
  options.matmul_precision = TRAFO_BFLOAT16;
  return make<Context>(trafo_context_new, &options);
}

void refuse_fp16(const std::string& precision) {
  if (precision == "fp16")
    usage_error(
        "--precision: fp16 is not built, because every GPU that is supported (compute capability "
        "8.0 and above) computes in bf16, whose range needs no loss scaling: use bf16");
}

namespace {

bool is_precision(const std::string& text) {
  return std::find(std::begin(kPrecisions), std::end(kPrecisions), text) != std::end(kPrecisions);
}

}  // namespace

Precision training_precision_on(const trafo_context* context, const std::string& precision) {
  refuse_fp16(precision);
  if (!is_precision(precision))
    usage_error(
        fmt::format("--precision: wants auto, fp32, tf32, bf16 or fp8, got '{}'", precision));
  const bool cuda = place_of(context).device == TRAFO_DEVICE_CUDA;
  if (precision == "fp8" && !cuda)
    usage_error(
        "--precision: fp8 needs a CUDA device of compute capability 8.9 or newer; this would "
        "compute on the CPU");
  if (precision == "tf32" && !cuda)
    usage_error("--precision: tf32 is for CUDA; this would compute on the CPU");
  const bool fp8 = precision == "fp8";
  const bool bf16 = fp8 || (precision == "bf16" && cuda) || (precision == "auto" && cuda);
  return {bf16 ? TRAFO_BFLOAT16 : TRAFO_FLOAT32, precision == "tf32", fp8};
}

int32_t precision_on(const trafo_context* context, const std::string& precision) {
  refuse_fp16(precision);
  if (precision == "tf32" || precision == "fp8")
    usage_error(fmt::format(
        "--precision: {} is for training; this command wants auto, fp32 or bf16", precision));
  if (!is_precision(precision))
    usage_error(fmt::format("--precision: wants auto, fp32 or bf16, got '{}'", precision));
  if (precision == "bf16" && place_of(context).device != TRAFO_DEVICE_CUDA)
    usage_error(
        "--precision: bf16 is for CUDA and for training; this command would compute on the CPU");
  return training_precision_on(context, precision).dtype;
}

std::string device_text(const trafo_context* context, const trafo_context_options& options,
                        Precision precision) {
  const Place place = place_of(context);
  if (place.device == TRAFO_DEVICE_CPU) {
    const unsigned threads = options.threads > 0
                                 ? static_cast<unsigned>(options.threads)
                                 : std::clamp(std::thread::hardware_concurrency(), 1u, 256u);
    return fmt::format("cpu, {} thread{}{}", threads, threads == 1 ? "" : "s",
                       options.matmul_precision == TRAFO_BFLOAT16 ? ", bf16" : "");
  }
  trafo_device_info info;
  check(trafo_device_get_info(place.device, place.index, &info, sizeof info));
  return fmt::format("cuda:{} {}, {}", place.index, info.name,
                     precision.fp8                       ? "fp8"
                     : precision.dtype == TRAFO_BFLOAT16 ? "bf16"
                     : precision.tf32                    ? "tf32"
                                                         : "fp32");
}

}  // namespace translate_train
