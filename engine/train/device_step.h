// Forward and backward of a micro-batch on an accelerator, without a word from the device: batches
// of nearly one size are filled up to one shape, whose memory is planned before it first runs and
// whose work is recorded once and replayed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/meta/meta_backend.h"
#include "engine/data/batcher.h"
#include "engine/models/model.h"
#include "engine/train/batch_bucket.h"
#include "engine/train/micro_batch.h"
#include "engine/train/options.h"

namespace trafo {

// Context, model and objective must outlive it. One thread at a time.
class DeviceStep {
 public:
  // The context's device has a StreamDevice. `sums` is where the losses go.
  DeviceStep(Context& context, Model& model, const Objective& objective,
             const TrainOptions& options, const LossSums& sums);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  // Takes the memory of steps of these shapes, so that they and smaller ones need no more.
  void reserve(std::span<const BatchBucket> shapes);

  // accumulate_gradients() of the batch's share of a mean over `labels`, with the dropout of
  // forward pass `pass`. Returns before it has run, and needs `batch` no longer then.
  void accumulate(const PackedBatchHost& batch, double labels, uint32_t pass, bool first);

 private:
  // Where the arrays of a batch lie in its block, in words of four bytes.
  struct Layout {
    int64_t pass = 0, source_ids = 0, source_positions = 0, source_cu_seqlens = 0, target_in = 0,
            target_out = 0, target_positions = 0, target_cu_seqlens = 0, target_weights = 0,
            words = 0;
    explicit Layout(const BatchBucket& shape);
  };
  // What is known of a shape.
  struct Recorded {
    ArenaPlan plan;
    bool planned = false;
    int64_t runs = 0;
    void* graph = nullptr;
  };

  void fill(const PackedBatchHost& batch, const BatchBucket& shape, const Layout& layout,
            double labels, uint32_t pass, int32_t* block) const;
  Batch view(const Tensor& block, const BatchBucket& shape, const Layout& layout) const;
  void run(Context& context, const Batch& batch, bool first, const LossSums& sums);
  Recorded& plan(const BatchBucket& shape, const Layout& layout, const PackedBatchHost& batch);
  void prepare_memory(size_t arena_bytes, int64_t block_words);
  void record(const BatchBucket& shape, const Batch& batch, Recorded& recorded);
  void forget_graphs() noexcept;
  int32_t* staging(int64_t words);

  Context& context_;
  Model& model_;
  const Objective& objective_;
  TrainOptions options_;
  LossSums sums_;
  StreamDevice& stream_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;

  std::map<BatchBucket, Recorded> shapes_;
  void* arena_ = nullptr;  // the backend's, that graphs were recorded in
  Tensor block_;           // the batch on the device

  struct Staging {
    int32_t* block = nullptr;
    int64_t words = 0;
  };
  std::vector<Staging> staging_;
  size_t next_staging_ = 0;
};

}  // namespace trafo
