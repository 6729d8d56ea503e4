// Work of a step beside its main order, on the second stream of an accelerator (SideStream):
// gradients of weights, which nothing in the backward pass reads.
//
// The memory of a step is planned in the order of the host. A tensor that work on the second stream
// reads or writes is therefore held here until the first stream waits for this work. Only then may
// the planner give its memory to other tensors. At most kMost pieces of work are pending.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/side_stream.h"
#include "engine/runtime/context.h"

namespace trafo {

class SideWork {
 public:
  static constexpr size_t kMost = 3;
  // Collected GEMMs are issued as soon as there are this many, or this many tiles of results.
  static constexpr size_t kMostGemms = 16;
  static constexpr int64_t kTiles = 64, kTileRows = 128, kTileColumns = 256;
  static_assert(kMost < SideStream::kSlots);

  // Until it is destroyed, ops on the context may put work beside the main order. Does nothing if
  // its backend has no second stream, or if the step is too large for it to pay: `products` is the
  // number of weights times the number of tokens. spare_memory: GEMMs are not collected, because
  // their operands would be held. They give the same bits.
  SideWork(Context& context, double products, bool spare_memory = false);
  static constexpr double kMostProducts = 1.5e12;
  // Leaves nothing pending. After an error the work may still run; its graph is then thrown away.
  ~SideWork();
  SideWork(const SideWork&) = delete;
  SideWork& operator=(const SideWork&) = delete;

  // Calls `issue`, whose kernels and GEMMs run after all work issued so far. `reads` and `writes`
  // are the tensors of a step that they use; undefined ones are skipped. Other work must not change
  // what they read, and what they write must not be used before wait(). `issue` allocates no
  // tensors. Returns the number of the work.
  template <class Issue>
  int64_t run(const std::vector<Tensor>& reads, const std::vector<Tensor>& writes, Issue&& issue) {
    if (collects(writes)) issue_collected();
    begin();
    try {
      issue();
    } catch (...) {
      stream_->leave_side(slot(next_));
      throw;
    }
    return end(reads, writes);
  }

  // A GEMM that reads and writes these tensors runs together with others (Backend::grouped_gemm) as
  // soon as they fill the device, or something waits. `rest`, if given, is issued after it.
  void add_gemm(const GemmParams& gemm, const std::vector<Tensor>& reads,
                const std::vector<Tensor>& writes, std::function<void()> rest);

  // Calls `issue`, which launches one kernel to the first stream. Adds up the `partials`
  // (SideStream::begin_partials) of this kernel to `sums` on the second stream.
  template <class Issue>
  void run_sums(const Tensor& partials, const std::vector<Tensor>& sums, Issue&& issue) {
    stream_->begin_partials(partials.raw(), partials.bytes());
    try {
      issue();
    } catch (...) {
      stream_->end_partials();
      throw;
    }
    stream_->end_partials();
    run({partials}, sums, [&] { stream_->add_partials(); });
  }

  // Work that is issued from now on runs after this work and all work before it.
  void wait(int64_t number);
  void wait_all() {
    issue_collected();
    wait(next_ - 1);
  }
  // True if pending work writes to this tensor.
  bool writes(const Tensor& tensor) const;
  // Work issued from now on may use the tensor: waits if pending work of the context writes to it.
  static void settle(const Context& context, const Tensor& tensor);

 private:
  struct Pending {
    std::vector<Tensor> reads, writes;
    bool writes_to(const Tensor& tensor) const;
  };
  struct Collected {
    std::vector<GemmParams> gemms;
    std::vector<std::function<void()>> rest;
    Pending tensors;
    int64_t tiles = 0;
  };
  bool collects(const std::vector<Tensor>& writes) const;
  void issue_collected();
  static int slot(int64_t number) { return static_cast<int>(number % SideStream::kSlots); }
  void begin();
  int64_t end(const std::vector<Tensor>& reads, const std::vector<Tensor>& writes);

  Backend& backend_;
  bool spare_memory_;
  SideStream* stream_ = nullptr;
  Collected collected_;
  std::deque<Pending> pending_;  // oldest first; the last one has number next_ - 1
  int64_t next_ = 0;
  std::optional<StepScope<SideWork*>> in_use_;
};

}  // namespace trafo
