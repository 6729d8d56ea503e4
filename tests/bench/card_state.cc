#include "tests/bench/card_state.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <type_traits>

namespace trafo::bench {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(10);

// Names, numbers and the layout of nvmlFieldValue_t are copied from nvml.h.
constexpr int kSuccess = 0;
constexpr int kClockSm = 1;              // NVML_CLOCK_SM
constexpr unsigned kPowerInstant = 186;  // NVML_FI_DEV_POWER_INSTANT, milliwatts
constexpr int kUnsignedInt = 1;          // NVML_VALUE_TYPE_UNSIGNED_INT

struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned_long_long;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

struct Reason {
  unsigned long long bit;  // nvmlClocksEventReason...
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x2, "application clocks"},    {0x4, "power cap"},        {0x8, "hardware slowdown"},
    {0x10, "sync boost"},           {0x20, "software heat"},   {0x40, "hardware heat"},
    {0x80, "hardware power brake"}, {0x100, "display clocks"},
};

// CUDA numbers the cards that CUDA_VISIBLE_DEVICES leaves, NVML all of them: the bus is what both
// know.
bool bus_of(int index, char (&bus)[32], std::string& why) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) {
    why = "libcuda.so.1 cannot be loaded";
    return false;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto name =
      reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetPCIBusId"));
  int card = 0;
  const bool found = init && get && name && init(0) == 0 && get(&card, index) == 0 &&
                     name(bus, static_cast<int>(sizeof bus), card) == 0;
  if (!found) why = "the driver does not name the bus of card " + std::to_string(index);
  return found;  // the driver stays loaded: the engine uses it
}

}  // namespace

struct NvmlLibrary {
  void* library = nullptr;
  bool started = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*fields)(void*, int, FieldValue*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;

  ~NvmlLibrary() {
    if (started) shutdown();
    if (library) dlclose(library);
  }

  // Empty, or what is missing.
  std::string load() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return "libnvidia-ml.so.1 cannot be loaded";
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    // Its older name is there in every driver that CUDA 13 takes.
    const bool complete = find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
                          find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2") &&
                          find(clock, "nvmlDeviceGetClockInfo") &&
                          find(fields, "nvmlDeviceGetFieldValues") &&
                          find(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!complete) return "libnvidia-ml.so.1 lacks a function";
    started = init() == kSuccess;
    return started ? "" : "nvmlInit failed";
  }
};

CardState::CardState(int index) : nvml_(std::make_unique<NvmlLibrary>()) {
  char bus[32] = {};
  why_ = nvml_->load();
  if (!why_.empty() || !bus_of(index, bus, why_)) return;
  if (nvml_->by_bus(bus, &card_) != kSuccess) {
    card_ = nullptr;
    why_ = std::string("NVML does not know the card on bus ") + bus;
  }
}

CardState::~CardState() {
  stop();
}

void CardState::start() {
  stop();
  samples_ = watt_samples_ = 0;
  clocks_ = watts_ = 0;
  reasons_ = 0;
  lowest_ = 0;
  if (!card_) return;
  stopping_ = false;
  sampler_ = std::thread([this] {
    while (!stopping_) {
      sample();
      std::this_thread::sleep_for(kInterval);
    }
  });
}

void CardState::stop() {
  if (!sampler_.joinable()) return;
  stopping_ = true;
  sampler_.join();
}

void CardState::sample() {
  unsigned clock = 0;
  unsigned long long reasons = 0;
  if (nvml_->clock(card_, kClockSm, &clock) != kSuccess ||
      nvml_->reasons(card_, &reasons) != kSuccess)
    return;
  lowest_ = samples_ == 0 ? clock : std::min(lowest_, clock);
  ++samples_;
  clocks_ += clock;
  reasons_ |= reasons;
  FieldValue power{};
  power.field = kPowerInstant;
  if (nvml_->fields(card_, 1, &power) != kSuccess || power.result != kSuccess ||
      power.type != kUnsignedInt)
    return;
  ++watt_samples_;
  watts_ += power.value.as_unsigned / 1e3;
}

void CardState::write(Json& row) const {
  if (samples_ == 0) return;
  row["sm_MHz"] = std::round(clocks_ / samples_);
  row["sm_MHz_low"] = lowest_;
  if (watt_samples_ > 0) row["power_W"] = std::round(watts_ / watt_samples_);
  std::string names;
  for (const Reason& reason : kReasons)
    if (reasons_ & reason.bit) names += (names.empty() ? "" : ", ") + std::string(reason.name);
  row["throttle"] = names.empty() ? "none" : names;
  row["card_samples"] = samples_;
}

std::string CardState::text() const {
  Json row;
  write(row);
  if (row.empty()) return {};
  std::string text = std::to_string(row["sm_MHz"].get<int>()) + " MHz, ";
  if (row.contains("power_W")) text += std::to_string(row["power_W"].get<int>()) + " W, ";
  return text + row["throttle"].get<std::string>();
}

}  // namespace trafo::bench
