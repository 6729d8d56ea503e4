// Decode steps as CUDA graphs. A step has some fifty small kernels, or a few hundred: the host
// takes longer to launch them one by one than the device to run them.
//
// There is a graph for each number of tokens. Graphs hold addresses: the indices and the logits of
// a step are in memory that stays where it is, and so may be the keys and values of one batch after
// the other (storage). Activations are in the arena of the backend.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "engine/backend/meta/meta_backend.h"
#include "engine/models/model.h"
#include "engine/runtime/planned_graph.h"

namespace trafo {

// Context and model must outlive it. One thread at a time. While it is in use, nobody else may use
// the arena of the backend, and no tensor may be alive in it.
class StepGraphs {
 public:
  // The context's device has a StreamDevice.
  StepGraphs(Context& context, const Model& model);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // False if steps are launched kernel by kernel: reference ops read values on the host, and
  // relative position biases have a column for each distance in the row.
  static bool usable(const Context& context, const Model& model);

  // Memory for the cache of a batch, which later batches use again. Without a call of it, graphs
  // follow the cache and are captured anew where it has moved.
  Tensor storage(int64_t slots);
  // Moves what steps read into the memory that stays, if there is any. Before the first step of a
  // batch, and after its cache may have moved.
  void adopt(DecodeState& state);

  // Appends one token to each row with counts[r] = 1, none where that is 0, and returns the logits
  // of the next ones, [ids.size(), vocabulary], in memory that the next step overwrites. The first
  // step of each number of tokens is run kernel by kernel, the second one is captured. All of them
  // compute the bits of Model::decode_step. Tokens and positions must be valid:
  // state.indices_validated.
  Tensor step(DecodeState& state, std::span<const int32_t> ids, std::span<const int32_t> counts);

  // Replayed graphs so far.
  int64_t replays() const { return replays_; }

 private:
  Tensor upload_inputs(DecodeState& state, std::span<const int32_t> ids,
                       std::span<const int32_t> counts);
  void plan(PlannedGraph& step, const DecodeState& state, int64_t tokens);
  void run(Context& context, const DecodeState& state, const Tensor& ids) const;
  void prepare_arena(size_t bytes);
  void release_graphs() noexcept;

  Context& context_;
  const Model& model_;
  StreamDevice& stream_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;
  Tensor storage_;  // of caches; undefined: they stay where they are
  Tensor source_;   // of the encoder
  Tensor indices_;  // of a step
  Tensor logits_;   // of a step, [at least the most tokens, vocabulary]
  void* arena_ = nullptr;
  // The keys and values that the graphs read: where they are, and their slots.
  std::pair<const void*, int64_t> cache_{nullptr, 0};
  std::map<int64_t, PlannedGraph> steps_;  // by tokens
  int64_t replays_ = 0;
};

}  // namespace trafo
