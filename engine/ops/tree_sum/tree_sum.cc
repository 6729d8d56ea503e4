#include "engine/ops/tree_sum/tree_sum.h"

#include <algorithm>
#include <cstdint>

#include "engine/ops/op_kernel.h"

namespace trafo::ops {
namespace {

constexpr const char* kTreeSumOrigin = "tree_sum";
constexpr size_t kWordsOfATerm = sizeof(TreeTerm) / sizeof(int32_t);
static_assert(sizeof(TreeTerm) == sizeof(void*) + 2 * sizeof(int32_t));  // no padding

// The most sums that are on the stack at once.
int64_t depth_of(std::span<const TreeTerm> terms, DType dtype) {
  int64_t open = 0, most = 0;
  for (const TreeTerm& term : terms) {
    require(term.kind == TermKind::plain || dtype == DType::f32, ErrorCode::invalid_argument,
            kTreeSumOrigin, "terms in bfloat16 are added in float32, not in ", dtype_name(dtype));
    most = std::max(most, ++open);
    require(term.additions >= 0 && term.additions < open, ErrorCode::invalid_argument,
            kTreeSumOrigin, term.additions, " additions of ", open, " sums");
    open -= term.additions;
  }
  require(open == 1, ErrorCode::invalid_argument, kTreeSumOrigin, open, " sums are left, not one");
  return most;
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace

TreeSum::TreeSum(Context& context, size_t most)
    : context_(context),
      most_(most),
      table_(context.zeros({static_cast<int64_t>(most * kWordsOfATerm)}, DType::i32)) {}

void TreeSum::run(std::span<const TreeTerm> terms, DType dtype, int64_t count, void* out) {
  require(!terms.empty() && terms.size() <= most_, ErrorCode::invalid_argument, kTreeSumOrigin,
          "a tree here has 1 to ", most_, " terms, got ", terms.size());
  require(dtype == DType::f32 || dtype == DType::f64, ErrorCode::invalid_argument, kTreeSumOrigin,
          "sums are float32 or float64, not ", dtype_name(dtype));
  const int64_t depth = depth_of(terms, dtype);
  if (count == 0) return;
  if (!std::equal(terms.begin(), terms.end(), copied_.begin(), copied_.end())) {
    copied_.clear();
    context_.backend().copy_from_host(table_.raw(), terms.data(), terms.size_bytes());
    copied_.assign(terms.begin(), terms.end());
  }
  const bool aligned =
      is_aligned(out) &&
      std::all_of(terms.begin(), terms.end(), [](const auto& t) { return is_aligned(t.x); });
  launch(context_, OpKernel::tree_sum, kTreeSumOrigin,
         TreeSumParams{dtype, count, static_cast<const TreeTerm*>(table_.raw()),
                       static_cast<int32_t>(terms.size()), static_cast<int32_t>(depth - 1), aligned,
                       out});
}

}  // namespace trafo::ops
