// Whole training steps (forward, backward, clip, AdamW) on the workloads of the PyTorch comparison
// script.
//
//   bench_step [--device cpu|cuda|cuda:N] [--precision f32|bf16|fp8] [--threads N] [--steps N]
//              [--recompute none|selective|full] [--optimizer-states fp32|8bit]
//              [--unfused] [--no-graphs] [--on-device] [--tune] [--no-epilogues]
//              [--no-bias-sums] [--output-bias|--no-output-bias]
//              [--ranks N [--nccl] [--overlap]] [--communication-dtype fp32|bf16] [--profile FILE]
//              [--quantize-bits 8|4] [--layer-drop P] [--sentences N] [--positions N]
//              [--vocabulary N] [--baseline FILE] [WORKLOAD ...]
//
// Workloads: tiny small iwslt on a CPU; on a GPU hw3 iwslt iwslt-s32B512 base base-B800 big
// gpt2-124M gpt2-124M-B64 gpt2-350M gpt2-1558M llama-1B llama-1B-lora llama-1B-qlora
// llama-8B-qlora qwen-0.5B-lora, and tiny and small too. llama-1B: Llama's form, 16 layers, 8 KV
// heads; llama-8B: the sizes of Llama 3.1; -lora: a frozen model whose adapter of rank 16 on all
// projections is trained; -qlora: the same with matrices in NF4. --sentences, --positions and
// --vocabulary replace those of a workload. Translation: B sentences of S positions a side,
// lengths drawn uniformly from S/2..S; tok_s counts B x S for everyone (sentences a second in other
// units); packed, so only real tokens are computed. Every step takes its batch from host memory, as
// training does, and where the trainer works ahead of the device so does this; --on-device: the
// batch is on the device before the first step, as the peer's does.
// --ranks: N threads train one model, each with the batch of the workload; on GPUs each has its
// own, from --device on. Copy engines move bytes between them, with --nccl NCCL does, and with
// --overlap beside the backward pass. tok_s is the sum over all. --communication-dtype: what
// gradients are rounded to, and travel in. --quantize-bits and --layer-drop: as of train.
// --output-bias, --no-output-bias: whether logits have a bias. Without either, those of language
// models have none, as GPT-2, Llama and their peers, and those of translation models have one.
// --steps: timed steps, by default 5 on a CPU, 50 on a GPU; the median is over single steps below
// 10, else over five runs of steps. cpu_ms, on a CPU: mean processor time of a step, all threads
// together. A JSON object a row on stdout, a table on stderr; on CUDA each row has the clock and
// the power of the card during its timed steps, and why the driver held the clock back
// (card_state.h). --profile FILE: after the timed steps three more are profiled, on a GPU kernel by
// kernel, into FILE (of several workloads FILE.NAME) and as a table on stderr.
// --baseline FILE: rows of an earlier run; exit status 1 when a figure is more than 5 % worse.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cuda/copy_link.h"
#include "engine/backend/cuda/nccl_link.h"
#include "engine/core/numeric/philox.h"
#include "engine/dist/linked_group.h"
#include "engine/dist/local_group.h"
#include "engine/io/atomic_file.h"
#include "engine/models/adapter.h"
#include "engine/models/model.h"
#include "engine/models/upload.h"
#include "engine/ops/op_kernel.h"
#include "engine/runtime/trace_report.h"
#include "engine/train/step/gemm_tuning.h"
#include "engine/train/step/trainer.h"
#include "tests/bench/bench.h"
#include "tests/bench/card_state.h"

namespace trafo::bench {
namespace {

using Clock = std::chrono::steady_clock;

enum class Where { cpu, gpu, both };

struct Workload {
  const char* name;
  Where where;
  Architecture architecture;
  int64_t layers, width, heads, ffn, vocabulary;
  double dropout;
  int64_t sentences, positions;
  int64_t kv_heads = 0;  // above 0: Llama's form (RMS norm, rotary positions, SwiGLU, no biases)
  int64_t adapter_rank = 0;  // above 0: all but an adapter on all projections is frozen
  BasePrecision base = BasePrecision::none;
  bool tied_embeddings = true;
};

constexpr Architecture kS2S = Architecture::encoder_decoder, kLm = Architecture::decoder_lm;
constexpr Workload kWorkloads[] = {
    {"tiny", Where::both, kS2S, 4, 128, 4, 256, 8000, 0.3, 128, 32},
    {"small", Where::both, kS2S, 4, 256, 4, 1024, 8000, 0.3, 128, 32},
    {"iwslt", Where::cpu, kS2S, 6, 512, 4, 1024, 10000, 0.3, 128, 32},
    {"hw3", Where::both, kLm, 4, 256, 8, 1024, 10000, 0.1, 128, 40},
    {"iwslt", Where::gpu, kS2S, 6, 512, 4, 1024, 10000, 0.3, 160, 25},
    {"iwslt-s32B512", Where::gpu, kS2S, 6, 512, 4, 1024, 10000, 0.3, 512, 32},
    {"base", Where::both, kS2S, 6, 512, 8, 2048, 32000, 0.1, 256, 32},
    {"base-B800", Where::gpu, kS2S, 6, 512, 8, 2048, 32000, 0.1, 800, 32},
    {"big", Where::gpu, kS2S, 6, 1024, 16, 4096, 32000, 0.3, 512, 32},
    {"gpt2-124M", Where::gpu, kLm, 12, 768, 12, 3072, 50304, 0, 32, 1024},
    {"gpt2-124M-B64", Where::gpu, kLm, 12, 768, 12, 3072, 50304, 0, 64, 1024},
    {"gpt2-350M", Where::gpu, kLm, 24, 1024, 16, 4096, 50304, 0, 16, 1024},
    {"gpt2-1558M", Where::gpu, kLm, 48, 1600, 25, 6400, 50304, 0, 8, 1024},
    {"llama-1B", Where::gpu, kLm, 16, 2048, 32, 8192, 6000, 0, 8, 2048, 8},
    {"llama-1B-lora", Where::gpu, kLm, 16, 2048, 32, 8192, 6000, 0, 8, 2048, 8, 16},
    {"llama-1B-qlora", Where::gpu, kLm, 16, 2048, 32, 8192, 6000, 0, 8, 2048, 8, 16,
     BasePrecision::nf4},
    {"llama-8B-qlora", Where::gpu, kLm, 32, 4096, 32, 14336, 128256, 0, 1, 2048, 8, 16,
     BasePrecision::nf4, false},
    {"qwen-0.5B-lora", Where::gpu, kLm, 24, 896, 14, 4864, 151936, 0, 8, 2048, 2, 16},
};

struct StepOptions {
  Device device;
  DType precision = DType::f32;
  bool fp8 = false;  // TrainOptions::fp8, with bfloat16
  int threads = 2;
  int steps = 0;  // 0: the default of the device
  bool fused = true, graphs = true;
  Recompute recompute = Recompute::none;
  bool tune = false;                // TrainOptions::autotune_gemm
  bool epilogues = true;            // Context::gemm_epilogues
  bool bias_sums = true;            // Context::bias_sums_in_gemms
  std::optional<bool> output_bias;  // none: as the model's form has it
  OptimizerStates states = OptimizerStates::float32;
  bool resident = false;  // the batch is on the device
  int ranks = 1;
  bool nccl = false;
  Overlap overlap = Overlap::between_hosts;
  CommunicationDType communication = CommunicationDType::float32;
  int64_t quantize_bits = 0;
  double layer_drop = 0;
  int64_t sentences = 0, positions = 0, vocabulary = 0;  // 0: as the workload has them
  std::string profile;                                   // where a trace goes; empty: nowhere

  bool on_cpu() const { return device.kind == DeviceKind::cpu; }
  // The CPU stores float32, and multiplies in bfloat16.
  DType model_dtype() const {
    return on_cpu() && precision == DType::bf16 ? DType::f32 : precision;
  }
  const char* precision_name() const { return fp8 ? "fp8" : dtype_name(precision); }
};

const Workload* find(const std::string& name, bool on_cpu) {
  for (const Workload& workload : kWorkloads)
    if (name == workload.name && workload.where != (on_cpu ? Where::gpu : Where::cpu))
      return &workload;
  return nullptr;
}

PackedBatchHost make_batch(const Workload& w) {
  PhiloxStream random(7, 1);
  const auto draw = [&](int64_t low, int64_t high) {  // inclusive
    return low + static_cast<int64_t>(random.next_u32() % static_cast<uint32_t>(high - low + 1));
  };
  PackedBatchHost batch;
  const bool lm = w.architecture == Architecture::decoder_lm;
  if (!lm) batch.source_cu_seqlens.push_back(0);
  batch.target_cu_seqlens.push_back(0);
  for (int64_t s = 0; s < w.sentences; ++s) {
    const auto token = [&] { return static_cast<int32_t>(draw(4, w.vocabulary - 1)); };
    if (!lm) {
      const int64_t length = draw(w.positions / 2, w.positions);
      for (int64_t i = 0; i < length; ++i) {
        batch.source_ids.push_back(token());
        batch.source_positions.push_back(static_cast<int32_t>(i));
      }
      batch.source_cu_seqlens.push_back(static_cast<int32_t>(batch.source_ids.size()));
    }
    const int64_t length = lm ? w.positions : draw(w.positions / 2, w.positions);
    for (int64_t i = 0; i < length; ++i) {
      batch.target_in.push_back(token());
      batch.target_out.push_back(token());
      batch.target_positions.push_back(static_cast<int32_t>(i));
    }
    batch.target_cu_seqlens.push_back(static_cast<int32_t>(batch.target_in.size()));
    batch.sentence_ids.push_back(s);
  }
  if (lm) batch.target_weights.assign(batch.target_in.size(), 1.0f);
  batch.label_count = static_cast<int64_t>(batch.target_in.size());
  return batch;
}

ModelConfig model_config(const Workload& w, std::optional<bool> output_bias) {
  ModelConfig config;
  config.architecture = w.architecture;
  config.vocabulary = w.vocabulary;
  config.encoder_layers = config.decoder_layers = w.layers;
  config.width = w.width;
  config.ffn_width = w.ffn;
  config.heads = w.heads;
  config.max_positions = w.positions;
  config.dropout = w.dropout;
  const bool lm = w.architecture == Architecture::decoder_lm;
  config.ffn_dropout = lm ? 0 : w.dropout;
  config.activation = lm ? Activation::gelu : Activation::relu;
  config.output_bias = output_bias.value_or(!lm);
  config.base_precision = w.base;
  config.tied_embeddings = w.tied_embeddings;
  if (w.kv_heads > 0) {
    config.kv_heads = w.kv_heads;
    config.norm = Norm::rms;
    config.positions = Positions::rotary;
    config.ffn = FeedForward::swiglu;
    config.activation = Activation::silu;
    config.biases = false;
  }
  return config;
}

// Steps with a batch from the host, as many in flight as the trainer takes. The loss of the last
// one.
double steps_from_host(Trainer& trainer, std::span<const PackedBatchHost> batches, int count) {
  const size_t most = trainer.works_ahead() ? Trainer::kMaxInFlight : 1;
  double loss = 0;
  for (int i = 0; i < count; ++i) {
    if (trainer.in_flight() == most) trainer.await();
    trainer.submit(batches);
  }
  while (trainer.in_flight() > 0) loss = trainer.await().loss;
  return loss;
}

// Milliseconds a step.
double time_steps(Context& context, int steps, const std::function<void(int)>& run_steps) {
  const int runs = steps < 10 ? steps : 5, steps_a_run = steps / runs;
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    context.backend().synchronize();
    const auto begin = Clock::now();
    run_steps(steps_a_run);
    context.backend().synchronize();
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    times.push_back(took.count() / steps_a_run);
  }
  return median(std::move(times));
}

// On one rank of a group, or alone if it is null.
Json measure(const Workload& w, const StepOptions& o, CardState* card, Json row,
             Communicator* group = nullptr) {
  const auto context = make_context(o.device, o.threads);
  context->set_fused_kernels(o.fused);
  context->set_gemm_epilogues(o.epilogues);
  context->set_bias_sums_in_gemms(o.bias_sums);
  context->set_graphs(o.graphs);
  if (o.on_cpu()) set_matmul_precision(context->backend(), o.precision, "bench_step");
  const auto model = make_model(*context, model_config(w, o.output_bias), 1, o.model_dtype());
  if (w.adapter_rank > 0)
    add_adapter(*context, *model, {w.adapter_rank, 2.0 * static_cast<double>(w.adapter_rank)}, 1);
  const bool lm = w.architecture == Architecture::decoder_lm;
  TrainOptions options;
  options.learning_rate = 1e-4;
  options.label_smoothing = lm ? 0 : 0.1;
  options.recompute = o.recompute;
  options.autotune_gemm = o.tune;
  options.optimizer_states = o.states;
  options.fp8 = o.fp8;
  options.lanes = o.ranks;
  options.communication_dtype = o.communication;
  options.quantize_bits = o.quantize_bits;
  options.layer_drop = o.layer_drop;
  Trainer trainer(*context, *model, options, TrainingGroup(group));
  const std::vector<PackedBatchHost> hosts(static_cast<size_t>(o.ranks), make_batch(w));
  const PackedBatchHost& host = hosts[0];
  Batch batch;
  if (o.resident) batch = upload(*context, host, model->spec(), o.model_dtype());
  double loss = 0;
  const auto run_steps = [&](int count) {
    if (!o.resident) loss = steps_from_host(trainer, hosts, count);
    for (int i = 0; o.resident && i < count; ++i) loss = trainer.step({&batch, 1}).loss;
  };
  GemmTuner* tuner = o.tune ? context->backend().gemm_tuner() : nullptr;
  if (tuner) tuner->set_tuning_budget(GemmTuning::kSeconds);
  const auto begin = Clock::now();
  run_steps(1);
  context->backend().synchronize();
  const std::chrono::duration<double> first = Clock::now() - begin;
  if (tuner) {
    row["tuned_gemms"] = tuner->tuning_cost().measured;
    row["tuning_s"] = tuner->tuning_cost().seconds;
  }
  run_steps(o.on_cpu() ? 1 : 4);
  context->backend().reset_peak_memory();
  const int steps = o.steps > 0 ? o.steps : o.on_cpu() ? 5 : 50;
  if (card) card->start();
  const std::clock_t cpu = std::clock();
  const double ms = time_steps(*context, steps, run_steps);
  const double cpu_ms = static_cast<double>(std::clock() - cpu) * 1e3 / CLOCKS_PER_SEC / steps;
  if (card) card->stop();

  const MemoryStats memory = context->backend().memory_stats();
  if (!o.profile.empty()) {
    context->start_profile();
    run_steps(3);
    const Trace trace = context->finish_profile();
    AtomicFile file(o.profile);
    write_chrome_trace(file, trace);
    file.commit();
    std::fprintf(stderr, "three steps of %s: %s\n%s", w.name, o.profile.c_str(),
                 trace_table(trace).c_str());
  }

  const auto parameters = static_cast<double>(model->parameters().parameter_count());
  const double units = static_cast<double>(w.sentences * w.positions);
  if (o.vocabulary > 0) row["vocabulary"] = w.vocabulary;
  row["params"] = model->parameters().parameter_count();
  row["steps"] = steps;
  row["ms"] = ms;
  if (o.on_cpu()) row["cpu_ms"] = cpu_ms;
  row["tok_s"] = units * o.ranks / ms * 1e3;
  row["real_target_tok_s"] = static_cast<double>(host.label_count) * o.ranks / ms * 1e3;
  // As the peer counts them; 989.5 TFLOP/s: bfloat16 of an H200.
  if (lm && !o.on_cpu() && w.adapter_rank == 0) {
    const double flops = 6 * parameters + 12.0 * static_cast<double>(w.layers * w.positions) *
                                              static_cast<double>(w.width);
    row["MFU_989"] = flops * units / ms / 1e9 / 989.5;
  }
  row["loss"] = loss;
  row["peak_MiB"] = static_cast<double>(memory.peak_bytes) / 1048576.0;
  row["peak_GiB"] = static_cast<double>(memory.peak_bytes) / 1073741824.0;
  row["reserved_MiB"] = static_cast<double>(memory.reserved_bytes) / 1048576.0;
  row["first_step_s"] = first.count();
  if (card) card->write(row);
  return row;
}

// The row of rank 0.
Json measure_ranks(const Workload& w, const StepOptions& o, CardState* card, const Json& row) {
  const GroupId id = new_local_group();
  std::vector<Json> rows(static_cast<size_t>(o.ranks));
  std::vector<std::exception_ptr> errors(rows.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < o.ranks; ++rank)
    threads.emplace_back([&, rank, at = static_cast<size_t>(rank)] {
      try {
        StepOptions own = o;
        if (!o.on_cpu()) own.device.index += rank;
        std::unique_ptr<Communicator> group = join_local_group(id, rank, o.ranks, {});
        if (!o.on_cpu())
          group = join_linked_group(std::move(group),
                                    o.nccl ? make_nccl_links() : make_copy_links(), {}, o.overlap);
        rows[at] = measure(w, own, rank == 0 ? card : nullptr, row, group.get());
      } catch (...) {
        errors[at] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return rows[0];
}

void run(const Workload& w, const StepOptions& o, CardState* card, Report& report) {
  const bool lm = w.architecture == Architecture::decoder_lm;
  Json row{{"sec", "train"}};
  row["model"] = std::string(w.name) + " B" + std::to_string(w.sentences) + (lm ? " T" : " S") +
                 std::to_string(w.positions);
  row["mode"] = std::string("ours") + (o.resident ? ", batch on device" : "") +
                (o.states == OptimizerStates::eight_bit ? ", 8-bit states" : "");
  row["device"] = device_name(o.device);
  row["dt"] = o.precision_name();
  row["fused"] = o.fused;
  row["recompute"] = static_cast<int>(o.recompute);
  if (o.tune) row["tuned"] = true;
  if (!o.epilogues) row["epilogues"] = false;
  if (!o.bias_sums) row["bias_sums"] = false;
  if (o.output_bias) row["output_bias"] = *o.output_bias;
  if (o.on_cpu()) row["threads"] = o.threads;
  if (o.ranks > 1) row["ranks"] = o.ranks;
  if (o.ranks > 1 && o.nccl) row["nccl"] = true;
  if (o.communication != CommunicationDType::float32)
    row["communication"] = enum_name(o.communication);
  if (o.quantize_bits > 0) row["quantize_bits"] = o.quantize_bits;
  if (o.layer_drop > 0) row["layer_drop"] = o.layer_drop;
  try {
    row = o.ranks > 1 ? measure_ranks(w, o, card, row) : measure(w, o, card, row);
    const std::string state = card ? card->text() : "";
    std::fprintf(stderr, "%-24s %-8s %-9s %-8s %9.2f ms %12.0f tok/s %9.1f MiB, loss %.4f%s%s\n",
                 row["model"].get<std::string>().c_str(), device_name(o.device).c_str(),
                 o.precision_name(), o.fused ? "fused" : "reference", row["ms"].get<double>(),
                 row["tok_s"].get<double>(), row["peak_MiB"].get<double>(),
                 row["loss"].get<double>(), state.empty() ? "" : "; ", state.c_str());
  } catch (const Error& error) {
    row["err"] = error.what();
    report.add_failure();
    std::fprintf(stderr, "%s: %s\n", w.name, error.what());
  }
  report.add(row);
}

constexpr const char* kUsage =
    "usage: bench_step [--device cpu|cuda|cuda:N] [--precision f32|bf16|fp8] [--threads N] [--steps"
    " N]"
    " [--recompute none|selective|full] [--optimizer-states fp32|8bit] [--unfused] [--no-graphs]"
    " [--on-device] [--tune] [--no-epilogues] [--no-bias-sums] [--output-bias|--no-output-bias]"
    " [--ranks N [--nccl] [--overlap]]"
    " [--communication-dtype fp32|bf16] [--quantize-bits 8|4] [--layer-drop P] [--profile FILE]"
    " [--sentences N] [--positions N] [--vocabulary N] [--baseline FILE] [WORKLOAD ...]\n";

int run(int argc, char** argv) {
  StepOptions o;
  std::string baseline;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--device" && has_value) {
      o.device = parse_device(argv[++i]);
    } else if (word == "--precision" && has_value) {
      o.fp8 = std::string(argv[++i]) == "fp8";
      o.precision = o.fp8 ? DType::bf16 : parse_dtypes(argv[i])[0];
    } else if (word == "--threads" && has_value) {
      o.threads = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--steps" && has_value) {
      o.steps = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--baseline" && has_value) {
      baseline = argv[++i];
    } else if (word == "--ranks" && has_value) {
      o.ranks = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--quantize-bits" && has_value) {
      o.quantize_bits = std::atoi(argv[++i]);
    } else if (word == "--layer-drop" && has_value) {
      o.layer_drop = std::atof(argv[++i]);
    } else if (word == "--sentences" && has_value) {
      o.sentences = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--positions" && has_value) {
      o.positions = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--vocabulary" && has_value) {
      o.vocabulary = std::max(8, std::atoi(argv[++i]));
    } else if (word == "--nccl") {
      o.nccl = true;
    } else if (word == "--overlap") {
      o.overlap = Overlap::always;
    } else if (word == "--communication-dtype" && has_value) {
      const std::string name = argv[++i];
      if (name != "fp32" && name != "bf16") {
        std::fprintf(stderr, "bench_step: no communication dtype %s\n%s", name.c_str(), kUsage);
        return 2;
      }
      o.communication = name == "bf16" ? CommunicationDType::bfloat16 : CommunicationDType::float32;
    } else if (word == "--profile" && has_value) {
      o.profile = argv[++i];
    } else if (word == "--unfused") {
      o.fused = false;
    } else if (word == "--no-graphs") {
      o.graphs = false;
    } else if (word == "--tune") {
      o.tune = true;
    } else if (word == "--no-epilogues") {
      o.epilogues = false;
    } else if (word == "--no-bias-sums") {
      o.bias_sums = false;
    } else if (word == "--output-bias" || word == "--no-output-bias") {
      o.output_bias = word == "--output-bias";
    } else if (word == "--recompute" && has_value) {
      const std::string policy = argv[++i];
      if (policy != "none" && policy != "selective" && policy != "full") {
        std::fprintf(stderr, "bench_step: no recompute policy %s\n%s", policy.c_str(), kUsage);
        return 2;
      }
      o.recompute = policy == "full"        ? Recompute::full
                    : policy == "selective" ? Recompute::selective
                                            : Recompute::none;
    } else if (word == "--optimizer-states" && has_value) {
      const std::string states = argv[++i];
      if (states != "fp32" && states != "8bit") {
        std::fprintf(stderr, "bench_step: no optimizer states %s\n%s", states.c_str(), kUsage);
        return 2;
      }
      o.states = states == "8bit" ? OptimizerStates::eight_bit : OptimizerStates::float32;
    } else if (word == "--on-device") {
      o.resident = true;
    } else {
      names.push_back(word);
    }
  }
  if (o.ranks > 1 && (o.tune || o.resident || !o.profile.empty())) {
    std::fprintf(stderr, "bench_step: --ranks has no --tune, --on-device and --profile\n");
    return 2;
  }
  if (names.empty()) {
    names = {"tiny", "small", "iwslt"};
    if (!o.on_cpu())
      names = {"hw3", "iwslt",     "iwslt-s32B512", "base",      "base-B800",
               "big", "gpt2-124M", "gpt2-124M-B64", "gpt2-350M", "gpt2-1558M"};
  }
  std::vector<const Workload*> workloads;
  for (const std::string& name : names) {
    workloads.push_back(find(name, o.on_cpu()));
    if (workloads.back()) continue;
    std::fprintf(stderr, "bench_step: no workload %s on %s\n%s", name.c_str(),
                 device_name(o.device).c_str(), kUsage);
    return 2;
  }
  std::unique_ptr<CardState> card;
  if (o.device.kind == DeviceKind::cuda) {
    card = std::make_unique<CardState>(o.device.index);
    if (!card->why().empty())
      std::fprintf(stderr, "bench_step: rows say nothing of the card: %s\n", card->why().c_str());
  }
  Report report;
  for (const Workload* workload : workloads) {
    StepOptions own = o;
    if (!o.profile.empty() && workloads.size() > 1) own.profile += concat(".", workload->name);
    Workload form = *workload;
    if (o.sentences > 0) form.sentences = o.sentences;
    if (o.positions > 0) form.positions = o.positions;
    if (o.vocabulary > 0) form.vocabulary = o.vocabulary;
    run(form, own, card.get(), report);
  }
  return finish(report, baseline);
}

}  // namespace
}  // namespace trafo::bench

int main(int argc, char** argv) {
  return trafo::bench::run_program("bench_step", &trafo::bench::run, argc, argv);
}
