#include "engine/models/decode_state.h"

#include <numeric>

#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

// The cache of rows parents[0], parents[1], ... with room for `capacity` tokens each. Only the part
// that is filled is copied.
Tensor gather_cache(Context& context, const DecodeState& state, const Tensor& parents,
                    int64_t capacity) {
  const int64_t columns = state.self_cache.dim(1);
  const int64_t rows = parents.dim(0);
  Tensor cache =
      context.empty({checked_mul(rows, capacity, "decode"), columns}, state.self_cache.dtype());
  GatherRowsParams params{};
  params.dtype = cache.dtype();
  params.x_rows = state.rows;
  params.rows = rows;
  params.width = state.length * columns;
  params.x_stride = state.capacity * columns;
  params.out_stride = capacity * columns;
  params.x = state.self_cache.raw();
  params.index = parents.data<int32_t>();
  params.out = cache.raw();
  launch(context, OpKernel::gather_rows, "decode", params);
  return cache;
}

Tensor row_numbers(Context& context, const std::vector<int32_t>& rows) {
  return context.from_values<int32_t>(rows, {static_cast<int64_t>(rows.size())});
}

bool is_identity(const std::vector<int32_t>& parents, int64_t rows) {
  if (static_cast<int64_t>(parents.size()) != rows) return false;
  for (size_t i = 0; i < parents.size(); ++i)
    if (parents[i] != static_cast<int32_t>(i)) return false;
  return true;
}

}  // namespace

void Model::reorder(Context& context, DecodeState& state, const std::vector<int32_t>& parents) {
  if (is_identity(parents, state.rows)) return;
  for (const int32_t parent : parents)
    require(parent >= 0 && parent < state.rows, ErrorCode::invalid_argument, "decode", "parent ",
            parent, " is not one of the ", state.rows, " rows");
  const Tensor index = row_numbers(context, parents);
  state.self_cache = gather_cache(context, state, index, state.capacity);
  if (state.cross_begin.defined()) {
    state.cross_begin = ops::gather_rows(context, state.cross_begin, index);
    state.cross_end = ops::gather_rows(context, state.cross_end, index);
  }
  state.rows = static_cast<int64_t>(parents.size());
}

void restrict_output(Context& context, const Model& model, DecodeState& state,
                     const std::vector<int32_t>& tokens) {
  const ParameterStore& parameters = model.parameters();
  ParamId weight = parameters.find("output.weight");
  if (weight == kNoParam) weight = parameters.find("embedding.weight");  // tied
  const ParamId bias = parameters.find("output.bias");
  const Tensor index = row_numbers(context, tokens);
  state.output_weight = ops::gather_rows(context, parameters.value(weight), index);
  if (bias != kNoParam)
    state.output_bias = ops::gather_rows(context, parameters.value(bias), index);
}

void grow_cache(Context& context, DecodeState& state, int64_t capacity) {
  require(capacity >= state.length, ErrorCode::invalid_argument, "decode", "a capacity of ",
          capacity, " tokens is less than the ", state.length, " that every row holds");
  if (capacity == state.capacity) return;
  std::vector<int32_t> rows(static_cast<size_t>(state.rows));
  std::iota(rows.begin(), rows.end(), 0);
  state.self_cache = gather_cache(context, state, row_numbers(context, rows), capacity);
  state.capacity = capacity;
}

}  // namespace trafo
