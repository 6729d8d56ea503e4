// The gradients of an update's lanes (engine/dist/lanes.h), added in the tree of the lanes.
//
// Each rank adds the lanes that it computes as far as the tree allows. Then every rank sends its
// partial sums of a shard to the rank that updates the shard, which adds them up.
//
// With CommunicationDType::bfloat16 the gradient of each lane is rounded to bfloat16 before it is
// added, on any number of ranks. Then a lane that no other has been added to travels as bfloat16
// with the same bits. Sums of lanes are float32, and travel as float32.
//
// With several ranks on each of several hosts, ranks of a host add their lanes first, each of them
// in the shards of the ranks with its number on all hosts. Then ranks of the same number exchange
// the sums of the hosts. This needs hosts whose lanes are a node of the tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/dist/lanes.h"
#include "engine/nn/parameter_store.h"
#include "engine/ops/tree_sum/tree_sum.h"
#include "engine/train/parallel/gradient_marks.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {

// A rank's message to all others with its gradients. The highest one counts.
enum class Vote : int32_t {
  none = 0,
  stop = 1,    // its callback or cancel token asks for the end
  failed = 2,  // it has no gradients: the update is skipped everywhere
};

class LaneSums {
 public:
  // Context and parameters must outlive it. `sums` are the sums of the step. Of the options,
  // lanes, communication_dtype and recompute matter: regions that are recomputed do not tell what
  // they add to.
  LaneSums(Context& context, ParameterStore& parameters, const StepSums& sums,
           const TrainOptions& options, const TrainingGroup& group);

  int64_t lanes() const { return lanes_; }
  const ElementRange& own() const { return own_; }      // lanes that this rank computes
  const ElementRange& shard() const { return shard_; }  // elements that it updates
  // Allocates what reduce() needs beside the memory of a step, which is idle then.
  void reserve();

  // To be told of the backward passes of lanes, so that what is complete is exchanged beside them;
  // null: nothing is.
  GradientObserver* observer() const { return marks_.get(); }

  // For each lane of own(), in order: the flat gradient and the losses hold the lane's, or clear()
  // has made them zero for a lane without batches. add_lane() takes them.
  void clear();
  void add_lane(int64_t lane);
  // Collective, once all own lanes were added, or with Vote::failed at any time. The flat gradient
  // then has, in the shard, the sum of all lanes. The losses are the sums of all lanes, not a
  // number if a rank has failed. `added`: called for each part of the shard that has its sum, to
  // issue work that may run beside the exchange of the next part.
  using Added = std::function<void(const ElementRange&)>;
  void reduce(Vote vote, const Added& added = {});

  // The votes of the newest reduce() as bytes in device memory, and the highest of them from a copy
  // in host memory.
  const Tensor& votes() const { return rows_; }
  Vote highest_vote(const void* host_copy) const;

 private:
  struct Sum {
    LaneNode node;
    Tensor gradient, step;  // of the step: StepSums::values()
  };
  // Whether a node travels as bfloat16.
  bool is_narrow(const LaneNode& node) const { return rounds_ && node.level == 0; }
  size_t element_of(const LaneNode& node) const;  // bytes
  std::byte* home() const;                        // the flat gradient
  // The whole of own node i, as it was summed.
  std::byte* own_node(size_t i) const;
  size_t own_nodes() const { return nodes_[static_cast<size_t>(group_.rank)].size(); }
  std::byte* staged(int rank, size_t i, size_t element = 0) const;
  void find_hosts();
  void plan_staging();
  void pack(const ElementRange& range) const;
  std::byte* packed(size_t i, int64_t begin) const;
  void write_row(Vote vote);
  struct Pieces;
  void add_piece(int peer, const ElementRange& theirs, const ElementRange& mine, size_t element,
                 Pieces& pieces) const;
  void add_pieces(const ElementRange& range, Pieces& pieces) const;
  void add_rows(Pieces& pieces) const;
  void exchange(Vote vote);
  void exchange_in_two_levels();
  void reduce_in_parts(const Added& added);
  std::byte* host_sum(size_t host) const;
  void add_step_sums();
  void add_nodes(ops::TreeSum& tree, const ElementRange& ranks, const ElementRange& range,
                 size_t staged_element);
  void add_terms(ops::TreeSum& tree, const std::vector<std::pair<LaneNode, TreeTerm>>& nodes,
                 const ElementRange& range);
  void add_shard();
  // In how many parts the shards are exchanged and added.
  int parts() const;

  Context& context_;
  ParameterStore& parameters_;
  StepSums sums_;
  int64_t lanes_;
  bool rounds_;  // lanes, to bfloat16
  TrainingGroup group_;
  ElementRange own_, shard_;
  std::vector<std::vector<LaneNode>> nodes_;  // by rank
  int per_host_ = 1;  // ranks of a host; above 1: two levels, and what follows has one of each host
  ElementRange neighbours_;               // the ranks of this host
  std::vector<LaneNode> host_nodes_;      // the sum of the host's lanes
  std::vector<ElementRange> column_;      // the shard of the host's rank that has this one's number
  std::vector<size_t> column_begins_;     // where it begins when they lie one after the other
  std::vector<ops::TreeSum> host_trees_;  // adds this host's lanes in it
  // Sums that wait for their right half; the sum that ends with the newest lane is in the flat
  // gradient. Sum i is in buffer i.
  std::vector<LaneNode> waiting_;
  std::vector<Sum> buffers_;
  std::vector<ops::TreeSum> lane_trees_;   // of add_lane(), by lane
  std::vector<ops::TreeSum> shard_trees_;  // of the parts of the shard; the first one of all
  // With peers: a row for each rank, its vote and then the step sums of each of its nodes.
  int64_t row_width_ = 0;
  Tensor rows_;
  // By rank and node, the first byte in the staging memory. Of other ranks' nodes it holds the
  // shard of this rank, with two levels column_. Of own nodes that travel as bfloat16 it holds what
  // is outside the shard, with two levels all.
  std::vector<std::vector<size_t>> places_;
  size_t staging_bytes_ = 0;
  Tensor staging_;
  Tensor own_staging_;   // if the memory of a step has no room, or is in use
  bool beside_ = false;  // parts are exchanged beside the backward pass of the rank's only lane
  std::unique_ptr<GradientMarks> marks_;
  bool cleared_ = false;  // no backward pass has set the marks
};

}  // namespace trafo
