// Greedy decode steps of an encoder_decoder as CUDA graphs. A step has some fifty small kernels:
// the host takes longer to launch them one by one than the device to run them.
//
// There is a graph for each number of rows. Graphs hold addresses, so keys, values and the indices
// of a step are in memory that stays where it is, from one call of translate_tokens to the next.
// Activations are in the arena of the backend.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

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

  // Storage for the cache of a batch.
  Tensor storage(int64_t slots);
  // Moves what steps read into the memory that stays. Before the first step of a batch, and after
  // its cache has moved.
  void adopt(DecodeState& state);

  // Results of ops::top_k on the host: [rows, k].
  struct Best {
    std::vector<int32_t> ids;
    std::vector<float> log_probabilities;
  };
  // Appends one token to each row and returns the k best next ones. The first step of each number
  // of rows is run kernel by kernel, the second one is captured. All of them compute the bits of
  // Model::decode_step. Tokens and positions must be valid: state.indices_validated.
  Best step(DecodeState& state, std::span<const int32_t> ids, int64_t k,
            std::span<const int32_t> banned);

  // Replayed graphs so far.
  int64_t replays() const { return replays_; }

 private:
  Tensor upload_inputs(DecodeState& state, std::span<const int32_t> ids);
  void plan(PlannedGraph& step, const DecodeState& state, int64_t k,
            std::span<const int32_t> banned);
  void run(Context& context, const DecodeState& state, const Tensor& ids, int64_t k,
           std::span<const int32_t> banned) const;
  void prepare_arena(size_t bytes);
  void release_graphs() noexcept;

  Context& context_;
  const Model& model_;
  StreamDevice& stream_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;
  Tensor storage_;  // keys and values of the cache
  Tensor source_;   // of the encoder
  Tensor indices_;  // of a step
  Tensor best_;     // int32: ids [rows, k], then log-probabilities
  void* arena_ = nullptr;
  int64_t k_ = 0;
  std::vector<int32_t> banned_;
  std::map<int64_t, PlannedGraph> steps_;  // by rows
  int64_t replays_ = 0;
};

}  // namespace trafo
