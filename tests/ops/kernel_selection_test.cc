// The tables that attention and GEMM dispatch by: what they choose, and that
// docs/reference/kernel-selection.md shows them as they are.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/backend/gemm_kernels.h"
#include "engine/core/status.h"
#include "engine/ops/attention/attention_kernels.h"

namespace trafo {
namespace {

AttentionCase on_cuda(DType dtype, int64_t tokens, int64_t head_dim, bool hopper = true) {
  AttentionCase c;
  c.device = DeviceKind::cuda;
  c.hopper = hopper;
  c.shared_memory = hopper ? cuda::kHopperSharedMemory : cuda::kLeastSharedMemory;
  c.dtype = dtype;
  c.head_dim = head_dim;
  c.queries = c.keys = tokens;
  return c;
}

AttentionCase on_cpu(int64_t queries, int64_t keys) {
  AttentionCase c;
  c.dtype = DType::f32;
  c.head_dim = 64;
  c.queries = queries;
  c.keys = keys;
  return c;
}

std::string name_of(AttentionCase c, bool backward) {
  c.backward = backward;
  c.saves_lse = !backward && c.saves_lse;
  const AttentionKernelRow* row = attention_kernel(c);
  return row ? row->name : "none";
}

struct NamedCase {
  const char* text;
  AttentionCase problem;
  const char* forward;
  const char* backward;  // "": no kernel
};

std::vector<NamedCase> common_cases() {
  const auto with = [](AttentionCase c, auto member, auto value) {
    c.*member = value;
    return c;
  };
  constexpr DType kHalf = DType::bf16;
  AttentionCase step = on_cuda(kHalf, 1, 64);
  step.keys = 300;
  AttentionCase training = on_cpu(48, 48);
  training.saves_lse = true;
  return {
      {"48 tokens, bfloat16, head_dim 64, H100", on_cuda(kHalf, 48, 64), "short_mma", "short_mma"},
      {"the same with attention dropout",
       with(on_cuda(kHalf, 48, 64), &AttentionCase::dropout, true), "short_mma", "short_mma"},
      {"the same on an A100", on_cuda(kHalf, 48, 64, false), "short_mma", "short_mma"},
      {"100 tokens, bfloat16, head_dim 64, H100", on_cuda(kHalf, 100, 64), "wgmma_short", "wgmma"},
      {"the same with attention dropout",
       with(on_cuda(kHalf, 100, 64), &AttentionCase::dropout, true), "mma", "mma"},
      {"the same on an A100", on_cuda(kHalf, 100, 64, false), "mma", "mma"},
      {"150 tokens, bfloat16, head_dim 64, H100", on_cuda(kHalf, 150, 64), "wgmma", "wgmma"},
      {"1,024 tokens, bfloat16, head_dim 64, H100", on_cuda(kHalf, 1024, 64), "wgmma_pipeline",
       "wgmma"},
      {"4,096 tokens, causal, bfloat16, head_dim 64, H100",
       with(on_cuda(kHalf, 4096, 64), &AttentionCase::causal, true), "wgmma_pipeline",
       "wgmma_ordered"},
      {"the same with a window of 1,024",
       with(with(on_cuda(kHalf, 4096, 64), &AttentionCase::causal, true), &AttentionCase::window,
            true),
       "wgmma_pipeline", "wgmma_ordered"},
      {"100 tokens with a window of 50, bfloat16, head_dim 64, H100",
       with(on_cuda(kHalf, 100, 64), &AttentionCase::window, true), "wgmma", "wgmma"},
      {"48 tokens with biases of distances, bfloat16, head_dim 64, any GPU",
       with(on_cuda(kHalf, 48, 64), &AttentionCase::bias, true), "cuda_cores", "cuda_cores"},
      {"1,024 tokens with a soft cap of scores, bfloat16, head_dim 128, H100",
       with(on_cuda(kHalf, 1024, 128), &AttentionCase::soft_cap, true), "cuda_cores", "cuda_cores"},
      {"a decode step with a soft cap, any GPU", with(step, &AttentionCase::soft_cap, true),
       "decode", ""},
      {"1,024 tokens, bfloat16, head_dim 128, H100", on_cuda(kHalf, 1024, 128), "wgmma_pipeline",
       "wgmma_pipeline"},
      {"48 tokens, float32, any GPU", on_cuda(DType::f32, 48, 64), "cuda_cores", "cuda_cores"},
      {"48 tokens, bfloat16, head_dim 20, any GPU", on_cuda(kHalf, 48, 20), "cuda_cores",
       "cuda_cores"},
      {"decode step, any GPU", step, "decode", ""},
      {"48 tokens, training on the CPU", training, "tiles", "tiles"},
      {"decode step on the CPU", on_cpu(1, 300), "one_query", ""},
  };
}

TEST(KernelSelection, CommonCasesOfAttention) {
  for (const NamedCase& c : common_cases()) {
    EXPECT_EQ(name_of(c.problem, false), c.forward) << c.text;
    if (*c.backward) {
      EXPECT_EQ(name_of(c.problem, true), c.backward) << c.text;
    }
  }
}

// The conditions before there was a table, as they stood in the dispatch.
std::string chosen_by_hand(const AttentionCase& c) {
  if (c.device == DeviceKind::cpu) {
    if (c.dtype == DType::bf16) return "none";
    return c.queries == 1 && !c.backward && !c.saves_lse && !c.dropout ? "one_query" : "tiles";
  }
  if (c.dtype == DType::f64 || c.head_dim > 256 || c.shared_memory < 101'376) return "none";
  if (!c.backward && c.queries == 1 && !c.dropout) return "decode";
  if (c.bias || c.soft_cap) return "cuda_cores";
  const bool mma = c.dtype == DType::bf16 && c.head_dim % 8 == 0 && c.head_dim <= 128 && c.aligned;
  if (mma && c.queries <= 64 && c.keys <= 64 && !c.window) return "short_mma";
  const bool wgmma = mma && c.hopper && c.shared_memory >= 232'448 && !c.dropout && c.head_dim > 32;
  if (wgmma && !c.backward && c.scale_positive && c.queries > 64) {
    if (!c.tensor_maps || c.keys == 0) return "wgmma";
    if (c.head_dim <= 64 && c.queries <= 128 && c.keys <= 128 && !c.window) return "wgmma_short";
    return c.queries > 192 ? "wgmma_pipeline" : "wgmma";
  }
  if (wgmma && c.backward) {
    const bool long_sequences = c.tensor_maps && c.queries > 192 && c.keys > 192;
    if (long_sequences && c.head_dim > 64) return "wgmma_pipeline";
    const bool longer = c.tensor_maps && c.queries > 1023 && c.keys > 1023;
    return longer && c.causal && c.head_dim == 64 ? "wgmma_ordered" : "wgmma";
  }
  return mma ? "mma" : "cuda_cores";
}

TEST(KernelSelection, EveryCombinationOfConditions) {
  std::set<std::string> met;
  const std::pair<DeviceKind, int64_t> devices[] = {{DeviceKind::cpu, 0},
                                                    {DeviceKind::cuda, 49'152},
                                                    {DeviceKind::cuda, 101'376},
                                                    {DeviceKind::cuda, 232'448}};
  for (const auto& [device, shared_memory] : devices)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const int64_t head_dim : {1, 8, 20, 32, 36, 40, 64, 72, 100, 128, 136, 256, 257})
        for (const int64_t queries : {0, 1, 2, 64, 65, 128, 129, 192, 193, 1023, 1024})
          for (const int64_t keys : {0, 1, 64, 65, 128, 129, 192, 193, 1023, 1024})
            for (uint32_t flags = 0; flags < 1024; ++flags) {
              AttentionCase c;
              c.device = device;
              c.shared_memory = shared_memory;
              c.dtype = dtype;
              c.head_dim = head_dim;
              c.queries = queries;
              c.keys = keys;
              c.backward = (flags & 1) != 0;
              c.hopper = (flags & 2) != 0;
              c.dropout = (flags & 4) != 0;
              c.saves_lse = (flags & 8) != 0;
              c.aligned = (flags & 16) != 0;
              c.scale_positive = (flags & 32) != 0;
              c.tensor_maps = (flags & 64) != 0;
              c.causal = (flags & 128) != 0;
              c.window = (flags & 256) != 0;
              // Either, or both: they have the same kernels.
              c.bias = (flags & 512) != 0 && queries != 65;
              c.soft_cap = (flags & 512) != 0 && queries % 64 == 1;
              const AttentionKernelRow* row = attention_kernel(c);
              const std::string name = row ? row->name : "none";
              met.insert(concat(name, c.backward ? " backward" : ""));
              ASSERT_EQ(name, chosen_by_hand(c))
                  << "device " << static_cast<int>(device) << ", " << shared_memory
                  << " bytes of shared memory, " << dtype_name(dtype) << ", head_dim " << head_dim
                  << ", " << queries << " queries, " << keys << " keys, flags " << flags;
            }
  for (const AttentionKernelRow& row : kAttentionKernels) {
    EXPECT_TRUE(!row.forward || met.contains(row.name)) << row.name << " is never chosen";
    EXPECT_TRUE(!row.backward || met.contains(concat(row.name, " backward")))
        << row.name << " is never chosen";
  }
}

// Forward and backward of every head size find room on every card.
TEST(KernelSelection, TilesOfCudaCoresFitEveryCard) {
  for (const cuda::Card& card : cuda::kCards)
    for (int64_t head_dim = 1; head_dim <= kCudaHeadDim; ++head_dim)
      for (const bool backward : {false, true}) {
        const int64_t memory = card.shared_memory_per_block;
        const int64_t rows = cuda_cores_rows(head_dim, backward, memory);
        ASSERT_LE(cuda_cores_bytes(head_dim, backward, rows), memory)
            << card.major << "." << card.minor << ", head_dim " << head_dim;
        // No smaller than it must be.
        const int64_t most = backward && head_dim > 64 ? 32 : 64;
        ASSERT_TRUE(rows == most || cuda_cores_bytes(head_dim, backward, 2 * rows) > memory)
            << card.major << "." << card.minor << ", head_dim " << head_dim;
        AttentionCase c = on_cuda(DType::f32, 100, head_dim, card.major == 9);
        c.shared_memory = memory;
        ASSERT_EQ(name_of(c, backward), "cuda_cores");
      }
}

TEST(KernelSelection, RowsOfATileOfCudaCores) {
  constexpr int64_t kSmall = 101'376, kA100 = 166'912, kH100 = 232'448;
  EXPECT_EQ(cuda_cores_bytes(64, true, 64), 104'448);
  EXPECT_EQ(cuda_cores_bytes(256, true, 32), 142'336);
  EXPECT_EQ(cuda_cores_bytes(256, false, 64), 150'528);
  EXPECT_EQ(cuda_cores_rows(60, true, kSmall), 64);
  for (const int64_t head_dim : {61, 62, 63, 64}) {
    EXPECT_EQ(cuda_cores_rows(head_dim, true, kSmall), 32) << head_dim;
    EXPECT_EQ(cuda_cores_rows(head_dim, true, kA100), 64) << head_dim;
    EXPECT_EQ(cuda_cores_rows(head_dim, true, kH100), 64) << head_dim;
  }
  EXPECT_EQ(cuda_cores_rows(180, true, kSmall), 32);
  EXPECT_EQ(cuda_cores_rows(181, true, kSmall), 16);
  EXPECT_EQ(cuda_cores_rows(256, true, kSmall), 16);
  EXPECT_EQ(cuda_cores_rows(256, true, kA100), 32);
  EXPECT_EQ(cuda_cores_rows(164, false, kSmall), 64);
  EXPECT_EQ(cuda_cores_rows(165, false, kSmall), 32);
  EXPECT_EQ(cuda_cores_rows(256, false, kSmall), 32);
  EXPECT_EQ(cuda_cores_rows(256, false, kA100), 64);
}

TEST(KernelSelection, Gemm) {
  GemmCase c;
  c.m = 100;
  c.n = c.k = 512;
  c.trans_b = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::blocks);
  c.m = 8;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::dot);
  c.m = 9;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::blocks);
  c.panel_rows = 14;
  c.m = 24;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::dot);
  c.packed_weight = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::packed_weight);
  c.k = 0;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::bias_only);
  c = {};
  c.m = 6;
  c.n = c.k = 512;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::in_place);
  c.m = 7;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::blocks);
  c.m = 1;
  c.trans_a = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::blocks);

  c = {};
  c.device = DeviceKind::cuda;
  c.m = c.n = c.k = 64;
  c.has_bias = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt);
  c.bias_in_epilogue = false;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt_then_bias);
  c.c_is_bf16 = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::float32_then_sum);
  c.has_bias = false;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt);
  c.m = 16;
  c.trans_b = c.rows_on_16_bytes = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::few_rows);
  c.m = 17;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt);
  c.m = 1;
  c.trans_b = false;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt);
  c.trans_b = true;
  c.rows_on_16_bytes = false;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::cublaslt);
  c.m = 64;
  c.trans_b = false;
  c.accumulate = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::rank_update);
  c.trans_a = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::float32_then_sum);
  c.trans_a = false;
  c.k = 65;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::float32_then_sum);
  c.k = 0;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::bias_only);
  c.has_term = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::low_rank);
  c.has_epilogue = true;
  EXPECT_EQ(gemm_kernel(c), GemmKernel::epilogue);
}

std::string text_of(const Bounds& bounds) {
  if (bounds.most == Bounds::kNone)
    return bounds.least <= 0 ? "any" : concat(bounds.least, " or more");
  if (bounds.least == bounds.most) return concat(bounds.least);
  return bounds.least <= 0 ? concat("up to ", bounds.most)
                           : concat(bounds.least, " to ", bounds.most);
}

std::string attention_table() {
  std::ostringstream out;
  out << "| # | kernel | pass | device | dtype | head_dim | queries | keys | dropout | further "
         "conditions | how it works |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n";
  int number = 0;
  for (const AttentionKernelRow& row : kAttentionKernels) {
    std::string dtypes;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      if ((row.dtypes & dtype_bit(dtype)) != 0)
        dtypes += concat(dtypes.empty() ? "" : ", ", dtype_name(dtype));
    std::string head_dim =
        text_of({row.head_dim.least <= 1 ? 0 : row.head_dim.least, row.head_dim.most});
    if (row.head_dim_step > 1) head_dim += concat(", multiple of ", row.head_dim_step);
    std::string further;
    const auto add = [&](bool holds, const char* text) {
      if (holds) further += concat(further.empty() ? "" : ", ", text);
    };
    add(row.causal, "causal");
    add(row.aligned, "aligned");
    add(row.scale_positive, "scale > 0");
    add(row.tensor_maps, "the driver makes tensor maps");
    add(row.inference_only, "inference only");
    add(!row.window, "no window");
    add(!row.bias, "no biases of distances");
    add(!row.soft_cap, "no soft cap");
    out << "| " << ++number << " | `" << row.name << "` | "
        << (row.forward && row.backward ? "both"
            : row.forward               ? "forward"
                                        : "backward")
        << " | "
        << (row.device == DeviceKind::cpu ? "CPU"
            : row.hopper                  ? "GPU 9.0"
                                          : "GPU")
        << " | " << dtypes << " | " << head_dim << " | " << text_of(row.queries) << " | "
        << text_of(row.keys) << " | " << (row.dropout ? "with or without" : "without") << " | "
        << further << " | " << row.description << " |\n";
  }
  return out.str();
}

std::string gemm_table() {
  std::ostringstream out;
  out << "| # | kernel | device | condition | how it works |\n|---|---|---|---|---|\n";
  int number = 0;
  for (const GemmKernelRow& row : kGemmKernels)
    out << "| " << ++number << " | `" << row.name << "` | "
        << (row.device == DeviceKind::cpu ? "CPU" : "GPU") << " | " << row.when << " | "
        << row.description << " |\n";
  return out.str();
}

// `page` with the lines between "<!-- generated: NAME -->" and "<!-- end -->" replaced.
std::string with_block(const std::string& page, const std::string& name, const std::string& text) {
  const std::string start = "<!-- generated: " + name + " -->\n", end = "<!-- end -->";
  const size_t at = page.find(start);
  if (at == std::string::npos) return page + start + text + end + "\n";
  const size_t stop = page.find(end, at);
  return page.substr(0, at + start.size()) + text +
         (stop == std::string::npos ? end + "\n" : page.substr(stop));
}

TEST(KernelSelection, ThePageShowsTheTables) {
  const std::string path = TRAFO_DOCS_DIR "/reference/kernel-selection.md";
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string wanted = with_block(page, "attention", attention_table());
  wanted = with_block(wanted, "gemm", gemm_table());
  const bool update = std::getenv("TRAFO_UPDATE_DOCS") != nullptr;
  if (update) std::ofstream(path) << wanted;
  EXPECT_EQ(update ? wanted : page, wanted)
      << path << " is stale: run this test with TRAFO_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace trafo
