// Checks that the fused and the reference attention share.
#pragma once

#include <string_view>

#include "engine/ops/attention/attention.h"

namespace trafo {

// Sizes of the sequences, on the host.
struct AttentionRanges {
  int64_t sequences = 0;
  int64_t max_queries = 0, max_keys = 0;
};

// Rows of each sequence on the device, [sequences] each.
struct AttentionRows {
  const int32_t* query_begin;
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
};

// Throws unless q, k and v are [rows, width] of one compute dtype with the columns that the options
// ask for, and the options make sense.
void check_attention_inputs(const Context& context, std::string_view op,
                            const ops::AttentionInput& q, const ops::AttentionInput& k,
                            const ops::AttentionInput& v, const ops::AttentionOptions& options);

// Throws unless both hold [B + 1] row numbers that rise from 0 to the number of rows and agree with
// the lengths that the options give. An accelerator's values are only read where a length is not
// given.
AttentionRanges packed_ranges(const Context& context, std::string_view op,
                              const Tensor& cu_seqlens_q, int64_t query_rows,
                              const Tensor& cu_seqlens_k, int64_t key_rows,
                              const ops::AttentionOptions& options);

// Throws unless begin and end are [sequences], 0 <= begin <= end <= key_rows, and cu_seqlens_q has
// the query rows of as many sequences, one each where no more are allowed; reads them as above.
AttentionRanges decode_ranges(const Context& context, std::string_view op, int64_t query_rows,
                              const Tensor& cu_seqlens_q, const Tensor& key_begin,
                              const Tensor& key_end, int64_t key_rows,
                              const ops::AttentionOptions& options);

// Throws unless the mask of the options is undefined or fits `ranges`.
void check_attention_mask(const Context& context, std::string_view op, DType dtype,
                          const AttentionRanges& ranges, const ops::AttentionOptions& options);

// Throws unless the biases of distances in the options are undefined or fit `ranges`.
void check_distance_bias(const Context& context, std::string_view op, DType dtype,
                         const AttentionRanges& ranges, const ops::AttentionOptions& options);

double attention_scale(const ops::AttentionOptions& options);

namespace ops {

// The reference: padded rows, batched GEMMs and a softmax over scores [sequences, heads, queries,
// keys]. Returns [query rows, heads * head_dim].
Tensor attention_padded(Context& context, const AttentionInput& q, const AttentionInput& k,
                        const AttentionInput& v, const AttentionRanges& ranges,
                        const AttentionRows& rows, const AttentionOptions& options);

}  // namespace ops
}  // namespace trafo
