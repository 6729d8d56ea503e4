// Parts of parameters: what the rows of a matrix hold, and where in the model they are used. The
// module that declares a parameter says it, because it decides the layout. Adapters, pruning and
// file formats read it.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace trafo {

enum class Stack : uint8_t { none, encoder, decoder };
enum class Sublayer : uint8_t { none, attention, cross_attention, feed_forward };

// The purpose of a projection, a norm or a table. The first seven belong to sublayers; adapters
// list them in this order. `logits` is an output projection that is not tied to an embedding.
enum class Role : uint8_t {
  query,
  key,
  value,
  output,
  gate,
  up,
  down,
  norm,
  embedding,
  positions,
  logits,
  query_norm,  // of queries and keys, see AttentionSpec::qk_norm
  key_norm,
  embedding_norm,
  output_norm,  // of what a sublayer gives, in a block that also has a norm of its input
  token_types,
  pooler,  // of an encoder, as the next two
  head,
  head_norm,
  distance_bias  // of scores of self-attention, a row for each bucket of distances
};

// The tensor of its module that a parameter is. `weight` is also the outer factor of a factorized
// matrix: both have the rows of the matrix.
enum class Piece : uint8_t { weight, bias, inner_factor };

struct Place {
  Stack stack = Stack::none;
  int64_t layer = -1;  // of the stack, from 0; the first of layers that share it; -1: of no layer
  Sublayer sublayer = Sublayer::none;

  Place of_layer(int64_t number) const { return {stack, number, sublayer}; }
  friend auto operator<=>(const Place&, const Place&) = default;
};

// Consecutive rows of a parameter.
struct Part {
  Role role = Role::norm;
  Place place = {};
  int64_t rows = 0;
  // Equal runs of rows that pruning keeps or removes whole: heads (with grouped queries, key heads
  // and the queries of each), or columns of a feed-forward sublayer. 0: rows that always stay.
  int64_t units = 0;
  int64_t first = 0;  // row of the parameter; set_parts() fills it in
};

struct ParameterParts {
  Piece piece = Piece::weight;
  std::vector<Part> rows = {};  // all rows of the parameter, in order
  int64_t column_units = 0;  // Part::units of the columns, which belong to the first part's place
};

}  // namespace trafo
