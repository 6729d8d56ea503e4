// The plugin's side of GemmTuner: which of cuBLASLt's kernels is the fastest for a GEMM.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engine/backend/cuda/gemm.h"
#include "engine/backend/cuda/gemm_plans.h"

namespace trafo::cuda {

namespace {

// A kernel is timed over so many microseconds, or launches if it is short; the shortest of the
// rounds counts. Launches are recorded, so that the host's time is not measured.
constexpr float kSampleUs = 1000;
constexpr float kMostLaunches = 20;
constexpr int kRounds = 3;

// A kernel whose first launch takes longer than this is not timed again. The time of one launch has
// the host's time in it.
float slow(float fastest_us) {
  return 1.5f * fastest_us + 10;
}

// cuBLASLt's first proposal stays unless another needs at most this share of its time: here a GEMM
// meets a cool card and its operands in the cache, and smaller gains were losses in whole steps.
constexpr float kWorthwhile = 0.95f;

struct Candidate {
  GemmPlan plan;
  float once = 0;                   // microseconds of one launch; 0: the kernel does not run
  cudaGraphExec_t graph = nullptr;  // null: not timed again
  float launches = 0;
  float us = 0;  // 0: not measured yet
};

// Events, graphs and memory of one measurement.
struct Measurement {
  DeviceState& device;
  cudaEvent_t begin = nullptr, end = nullptr;
  void* sum = nullptr;  // C of a GEMM that accumulates, while it is measured
  std::vector<Candidate> candidates;
  cudaError_t error = cudaSuccess;

  explicit Measurement(DeviceState& state) : device(state) {
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
  }
  ~Measurement() {
    for (const Candidate& candidate : candidates)
      if (candidate.graph) cudaGraphExecDestroy(candidate.graph);
    if (sum) cudaFree(sum);
    if (end) cudaEventDestroy(end);
    if (begin) cudaEventDestroy(begin);
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  bool check(cudaError_t result) {
    if (error == cudaSuccess) error = result;
    return error == cudaSuccess;
  }

  // Microseconds between the two events around `issue`.
  template <class Issue>
  float time(const Issue& issue) {
    float ms = 0;
    if (!check(cudaEventRecord(begin, device.stream))) return 0;
    issue();
    if (check(cudaEventRecord(end, device.stream)) && check(cudaEventSynchronize(end)))
      check(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1000;
  }

  void launch_once(const GemmParams& p, Candidate& candidate) {
    if (run_plan(device, p, candidate.plan) != CUBLAS_STATUS_SUCCESS) {
      cudaGetLastError();
      return;
    }
    const float once = time([&] { run_plan(device, p, candidate.plan); });
    candidate.once = std::max(once, 1.0f);
  }

  // Records as many launches of the kernel as make a sample.
  void record(const GemmParams& p, Candidate& candidate) {
    candidate.launches = std::clamp(kSampleUs / candidate.once, 1.0f, kMostLaunches);
    candidate.launches = static_cast<float>(static_cast<int>(candidate.launches));
    if (!check(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal))) return;
    bool issued = true;
    for (int i = 0; i < static_cast<int>(candidate.launches); ++i)
      issued &= run_plan(device, p, candidate.plan) == CUBLAS_STATUS_SUCCESS;
    cudaGraph_t recorded = nullptr;
    if (!check(cudaStreamEndCapture(device.stream, &recorded))) return;
    if (issued) check(cudaGraphInstantiate(&candidate.graph, recorded, 0));
    cudaGraphDestroy(recorded);
  }
};

}  // namespace

int32_t measure(DeviceState& device, const GemmParams& params, const Alignments& at, int most,
                double seconds, GemmPlan& plan, GemmTimes* times) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto in_time = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count() < seconds;
  };
  std::vector<Proposal> proposals;
  const cublasStatus_t status = propose(device, at, plan, most, proposals);
  if (status != CUBLAS_STATUS_SUCCESS) return blas_failed(device, status, "preparing a GEMM");
  Measurement m(device);
  GemmParams p = params;
  if (p.accumulate) {
    const auto bytes =
        static_cast<size_t>(((p.batch - 1) * p.stride_c + (p.m - 1) * p.ldc + p.n) * 4);
    const cudaError_t allocated = cudaMalloc(&m.sum, bytes);
    if (allocated != cudaSuccess) return report(device, allocated, "memory to measure in");
    m.check(cudaMemsetAsync(m.sum, 0, bytes, device.stream));
    p.c = m.sum;
  }
  float fastest = INFINITY;
  for (size_t i = 0; i < proposals.size() && in_time(); ++i) {
    Candidate& candidate = m.candidates.emplace_back();
    candidate.plan = plan;
    candidate.plan.algorithm = proposals[i].algorithm;
    candidate.plan.workspace_bytes = proposals[i].workspace_bytes;
    candidate.plan.found = true;
    m.launch_once(p, candidate);
    if (m.error != cudaSuccess) return report(device, m.error, "measuring a GEMM");
    if (candidate.once > 0) fastest = std::min(fastest, candidate.once);
  }
  for (Candidate& candidate : m.candidates) {
    if (candidate.once <= 0 || (!times && candidate.once > slow(fastest))) continue;
    m.record(p, candidate);
    if (m.error != cudaSuccess) return report(device, m.error, "measuring a GEMM");
  }
  // Round by round, so that a slow spell of the device meets all of them.
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate& candidate : m.candidates) {
      if (!candidate.graph || !in_time()) continue;
      const float us = m.time([&] { m.check(cudaGraphLaunch(candidate.graph, device.stream)); }) /
                       candidate.launches;
      if (m.error != cudaSuccess) return report(device, m.error, "measuring a GEMM");
      candidate.us = candidate.us > 0 ? std::min(candidate.us, us) : us;
    }
  }
  const Candidate* best = nullptr;
  for (const Candidate& candidate : m.candidates) {
    if (candidate.us <= 0) continue;
    if (!best || candidate.us < best->us) best = &candidate;
    if (times && times->count < GemmTimes::kMost) times->us[times->count++] = candidate.us;
  }
  if (!best) return kSuccess;
  const Candidate& first = m.candidates.front();
  if (first.us > 0 && best->us > kWorthwhile * first.us) best = &first;
  plan = best->plan;
  return kSuccess;
}

namespace {

int32_t tell(Why why, int32_t result, const char* text) {
  if (why.text && why.size > 0) std::snprintf(why.text, why.size, "%s", text);
  return result;
}

int32_t measure_gemm(void* device, const GemmParams* params, GemmTimes* times, Why why) {
  DeviceState& state = enter(device);
  times->count = 0;
  const GemmParams p = normalised(*params);
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0) return kSuccess;
  Alignments at;
  const bool tf32 = plans_of(state).multiplies_in_tf32(p);
  const PlanKey key = key_of(p, tf32, at);
  GemmPlan plan{};
  const cublasStatus_t status = describe(p, tf32, plan);
  const int32_t result = status == CUBLAS_STATUS_SUCCESS
                             ? measure(state, p, at, GemmTimes::kMost, INFINITY, plan, times)
                             : blas_failed(state, status, "preparing a GEMM");
  if (result != kSuccess) return tell(why, result, state.error.c_str());
  if (!plan.found) return kSuccess;
  GemmPlans& plans = plans_of(state);
  plans.by_key[key] = plan;
  std::memcpy(plans.choices[key].data(), &plan.algorithm, sizeof plan.algorithm);
  return kSuccess;
}

GemmPlans& plans_of(void* device) {
  return plans_of(*static_cast<DeviceState*>(device));
}

void set_gemm_tuning(void* device, int32_t on) {
  plans_of(device).tuning = on != 0;
}

void set_gemm_tuning_budget(void* device, double seconds) {
  plans_of(device).budget = seconds;
  plans_of(device).cost = {};
}

void gemm_tuning_cost(void* device, GemmTuningCost* cost) {
  *cost = plans_of(device).cost;
}

void gemm_library(void* device, Why text) {
  cudaDeviceProp properties{};
  const DeviceState& state = enter(device);
  if (cudaGetDeviceProperties(&properties, state.index) != cudaSuccess)
    std::snprintf(properties.name, sizeof properties.name, "unknown device");
  if (text.text && text.size > 0)
    std::snprintf(text.text, text.size, "%.200s, sm_%d%d, %d multiprocessors, cuBLASLt %zu",
                  properties.name, properties.major, properties.minor,
                  properties.multiProcessorCount, cublasLtGetVersion());
}

int32_t gemm_choices(void* device, GemmChoice* choices, int32_t most) {
  const GemmPlans& plans = plans_of(device);
  int32_t count = 0;
  for (const auto& [key, algorithm] : plans.choices) {
    if (count >= most) break;
    std::memcpy(choices[count].gemm, key.data(), sizeof key);
    std::memcpy(choices[count].kernel, algorithm.data(), sizeof algorithm);
    ++count;
  }
  return static_cast<int32_t>(plans.choices.size());
}

void set_gemm_choices(void* device, const GemmChoice* choices, int32_t count,
                      int32_t refused_fails) {
  GemmPlans& plans = plans_of(device);
  plans.by_key.clear();
  plans.choices.clear();
  plans.refused_choice_fails = refused_fails != 0;
  for (int32_t i = 0; i < count; ++i) {
    PlanKey key;
    std::memcpy(key.data(), choices[i].gemm, sizeof key);
    std::memcpy(plans.choices[key].data(), choices[i].kernel, sizeof choices[i].kernel);
  }
}

}  // namespace

void fill_tuning_functions(PluginTable& table) {
  table.measure_gemm = &measure_gemm;
  table.set_gemm_tuning = &set_gemm_tuning;
  table.set_gemm_tuning_budget = &set_gemm_tuning_budget;
  table.gemm_tuning_cost = &gemm_tuning_cost;
  table.gemm_library = &gemm_library;
  table.gemm_choices = &gemm_choices;
  table.set_gemm_choices = &set_gemm_choices;
}

}  // namespace trafo::cuda
