// GradientStep on an accelerator: the host never waits for the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/backend/meta/meta_backend.h"
#include "engine/models/upload.h"
#include "engine/runtime/planned_graph.h"
#include "engine/train/run/options.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {

// Pads each batch to its bucket. A bucket is planned by a dry run before it first runs, captured as
// a graph when it comes a second time, and replayed from then on. Under layer drop, each set of
// skipped layers has separate buckets. Context, model and objective must outlive it.
class DeviceStep final : public GradientStep {
 public:
  // The context's device has a StreamDevice. The losses are added to `sums`.
  DeviceStep(Context& context, Model& model, const Objective& objective,
             const TrainOptions& options, const LossSums& sums);
  ~DeviceStep() override;

  void reserve(std::span<const BatchBucket> buckets) override;
  void drop_graphs() override;
  // Returns before the device has run the step. Without fused kernels it runs the batch unpadded
  // and outside the arena, because the reference ops read values on the host.
  void accumulate(const PackedBatchHost& batch, double labels, uint32_t pass, bool first) override;

 private:
  BatchLayout layout(const BatchBucket& exact) const;
  PlannedGraph& plan(const BatchLayout& layout, const std::vector<bool>& skipped);
  void run(Context& context, const Batch& batch, bool first, const std::vector<bool>& skipped,
           const LossSums& sums);
  void prepare_memory(size_t arena_bytes, int64_t block_words);
  void upload_async(const PackedBatchHost& batch, const BatchLayout& layout, double labels,
                    uint32_t pass);
  void forget_buckets();
  void release_graphs() noexcept;
  int32_t* staging(int64_t words);

  Context& context_;
  Model& model_;
  const Objective& objective_;
  TrainOptions options_;
  LossSums sums_;
  StreamDevice& stream_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;

  // By the sizes and by the layers that layer drop skips. A graph holds the kernels of the others.
  std::map<std::pair<BatchBucket, std::vector<bool>>, PlannedGraph> buckets_;
  void* arena_ = nullptr;  // the backend's arena in which the graphs were captured
  Tensor block_;           // the number of the forward pass, then the batch

  struct Staging {
    int32_t* block = nullptr;
    int64_t words = 0;
  };
  std::vector<Staging> staging_;
  size_t next_staging_ = 0;
};

}  // namespace trafo
