// Whole training steps on the workloads of the PyTorch peer script: B sentences of S positions a
// side, lengths drawn uniformly from S/2..S, tok_s counts B x S for everyone (sentences a second in
// other units). Packed, so only real tokens are computed.
//
//   bench_step [--threads N] [--steps N] [--unfused] [WORKLOAD ...]      workloads: tiny small
//   iwslt base lm
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/core/philox.h"
#include "engine/models/model.h"
#include "engine/ops/op_kernel.h"
#include "engine/train/trainer.h"

namespace trafo {
namespace {

struct Workload {
  const char* name;
  Architecture architecture;
  int64_t layers, width, heads, ffn, vocabulary;
  double dropout;
  int64_t sentences, positions;
};

constexpr Workload kWorkloads[] = {
    {"tiny", Architecture::encoder_decoder, 4, 128, 4, 256, 8000, 0.3, 128, 32},
    {"small", Architecture::encoder_decoder, 4, 256, 4, 1024, 8000, 0.3, 128, 32},
    {"iwslt", Architecture::encoder_decoder, 6, 512, 4, 1024, 10000, 0.3, 128, 32},
    {"base", Architecture::encoder_decoder, 6, 512, 8, 2048, 32000, 0.1, 256, 32},
    {"lm", Architecture::decoder_lm, 4, 256, 8, 256, 10000, 0.1, 128, 40},
};

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

void run(const Workload& w, int threads, int steps, bool fused) {
  const auto context = make_context({DeviceKind::cpu, 0}, threads);
  context->set_fused_kernels(fused);
  ModelConfig config;
  config.architecture = w.architecture;
  config.vocabulary = w.vocabulary;
  config.encoder_layers = config.decoder_layers = w.layers;
  config.width = w.width;
  config.ffn_width = w.ffn;
  config.heads = w.heads;
  config.max_positions = 256;
  config.dropout = w.dropout;
  config.ffn_dropout = w.dropout;
  if (w.architecture == Architecture::decoder_lm) config.activation = Activation::gelu;
  const auto model = make_model(*context, config, 1);
  TrainOptions options;
  options.learn_rate = 1e-4;
  Trainer trainer(*context, *model, options);
  const PackedBatchHost batch = make_batch(w);
  std::vector<double> milliseconds;
  double loss = 0;
  for (int i = 0; i < steps + 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    loss = trainer.step({&batch, 1}).loss;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i >= 2) milliseconds.push_back(took.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = milliseconds[milliseconds.size() / 2];
  const double units = static_cast<double>(w.sentences * w.positions);
  std::printf(
      "{\"sec\": \"train\", \"model\": \"%s\", \"threads\": %d, \"fused\": %s, \"ms\": %.1f, "
      "\"tok_s\": %.0f, "
      "\"real_target_tok_s\": %.0f, \"loss\": %.4f, \"peak_MiB\": %.1f}\n",
      w.name, threads, fused ? "true" : "false", median, units / median * 1e3,
      static_cast<double>(batch.label_count) / median * 1e3, loss,
      static_cast<double>(context->backend().memory_stats().peak_bytes) / 1048576.0);
  std::fflush(stdout);
}

}  // namespace
}  // namespace trafo

int main(int argc, char** argv) {
  int threads = 2, steps = 5;
  bool fused = true;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--threads") && i + 1 < argc)
      threads = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--steps") && i + 1 < argc)
      steps = std::max(1, std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--unfused"))
      fused = false;
    else
      names.emplace_back(argv[i]);
  }
  if (names.empty()) names = {"tiny", "small", "iwslt"};
  for (const std::string& name : names) {
    bool known = false;
    for (const auto& workload : trafo::kWorkloads)
      if (name == workload.name) trafo::run(workload, threads, steps, fused), known = true;
    if (!known) {
      std::fprintf(stderr, "unknown workload %s\n", name.c_str());
      return 2;
    }
  }
}
