// StepMemory on an accelerator: the host never waits for the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/backend/meta/meta_backend.h"
#include "engine/models/upload.h"
#include "engine/runtime/planned_graph.h"
#include "engine/train/step/step_memory.h"

namespace trafo {

// Pads each batch to its bucket. A bucket is planned by a dry run before it first runs, captured as
// a graph when it comes a second time, and replayed from then on. Under layer drop, each set of
// skipped layers has separate buckets. Context, model and objective must outlive it.
class DeviceStepMemory final : public StepMemory {
 public:
  // The context's device has a StreamDevice.
  DeviceStepMemory(Context& context, Model& model, const Objective& objective,
                   const TrainOptions& options);
  ~DeviceStepMemory() override;

  void reserve(std::span<const BatchBucket> buckets) override;
  // Returns before the device has the batch. Without fused kernels the batch is not padded and its
  // step not planned, because the reference ops read values on the host.
  MicroBatch upload(const PackedBatchHost& batch, uint32_t pass, double units, bool first) override;
  bool has_graph() const override { return uploaded_ != nullptr && !issue_; }
  void replay() override;
  void drop_graphs() override;

 private:
  // Forward and backward of a bucket, while the host issues them.
  struct Issue {
    Issue(Context& context, PlannedGraph& work, bool capture, GemmTuner* tuner,
          const uint32_t* dropout_step);
    ~Issue() { stream.set_dropout_step(nullptr); }
    StreamDevice& stream;
    TuningScope tuning;
    PlannedIssue planned;
  };

  void end(bool failed) noexcept override;
  BatchLayout layout(const BatchBucket& exact) const;
  Batch with_scale(Batch batch, const std::shared_ptr<Storage>& block) const;
  PlannedGraph& plan(const BatchLayout& layout, const std::vector<bool>& skipped);
  void prepare_memory(size_t arena_bytes, int64_t block_words);
  void upload_async(const PackedBatchHost& batch, const BatchLayout& layout, double units,
                    uint32_t pass);
  void forget_buckets();
  void release_graphs() noexcept;
  int32_t* staging(int64_t words);

  StreamDevice& stream_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;

  // By the sizes and by the layers that layer drop skips. A graph holds the kernels of the others.
  std::map<std::pair<BatchBucket, std::vector<bool>>, PlannedGraph> buckets_;
  void* arena_ = nullptr;  // the backend's arena in which the graphs were captured
  Tensor block_;           // the number of the forward pass, the loss scale, then the batch

  PlannedGraph* uploaded_ = nullptr;  // of the batch that was uploaded, until it is replayed
  std::optional<Issue> issue_;

  struct Staging {
    int32_t* block = nullptr;
    int64_t words = 0;
  };
  std::vector<Staging> staging_;
  size_t next_staging_ = 0;
};

}  // namespace trafo
