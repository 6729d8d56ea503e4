#include "engine/runtime/side_work.h"

#include <algorithm>
#include <utility>

namespace trafo {

// kMostProducts lies between steps that gain on an H200 (1.2e12) and steps that do not (2.6e12 and
// more, docs/lab/performance-notes.md). In those each GEMM fills the card, and the power limit sets
// the speed of whatever runs.
SideWork::SideWork(Context& context, double products, bool spare_memory)
    : backend_(context.backend()), spare_memory_(spare_memory) {
  SideStream* const stream = products > kMostProducts ? nullptr : backend_.side_stream();
  if (!stream) return;
  require(!stream->in_use_, ErrorCode::internal, "side work",
          "two steps run on one device at the same time");
  stream_ = stream;
  stream_->in_use_ = true;
  in_use_.emplace(context, &StepContext::side_work, this);
}

SideWork::~SideWork() {
  if (stream_) stream_->in_use_ = false;
}

void SideWork::begin() {
  if (pending_.size() == kMost) wait(next_ - static_cast<int64_t>(kMost));
  stream_->enter_side();
}

int64_t SideWork::end(const std::vector<Tensor>& reads, const std::vector<Tensor>& writes) {
  stream_->leave_side(slot(next_));
  pending_.push_back({reads, writes});
  return next_++;
}

void SideWork::wait(int64_t number) {
  const int64_t oldest = next_ - static_cast<int64_t>(pending_.size());
  if (number < oldest) return;
  stream_->await_side(slot(number));
  pending_.erase(pending_.begin(), pending_.begin() + (number - oldest + 1));
}

bool SideWork::Pending::writes_to(const Tensor& tensor) const {
  return tensor.defined() && std::any_of(writes.begin(), writes.end(), [&](const Tensor& written) {
           return written.defined() && written.raw() == tensor.raw();
         });
}

bool SideWork::writes(const Tensor& tensor) const {
  return collected_.tensors.writes_to(tensor) ||
         std::any_of(pending_.begin(), pending_.end(),
                     [&](const Pending& work) { return work.writes_to(tensor); });
}

bool SideWork::collects(const std::vector<Tensor>& writes) const {
  return std::any_of(writes.begin(), writes.end(),
                     [&](const Tensor& tensor) { return collected_.tensors.writes_to(tensor); });
}

void SideWork::add_gemm(const GemmParams& gemm, const std::vector<Tensor>& reads,
                        const std::vector<Tensor>& writes, std::function<void()> rest) {
  if (collects(writes)) issue_collected();
  collected_.gemms.push_back(gemm);
  if (rest) collected_.rest.push_back(std::move(rest));
  Pending& tensors = collected_.tensors;
  tensors.reads.insert(tensors.reads.end(), reads.begin(), reads.end());
  tensors.writes.insert(tensors.writes.end(), writes.begin(), writes.end());
  collected_.tiles +=
      (gemm.m + kTileRows - 1) / kTileRows * ((gemm.n + kTileColumns - 1) / kTileColumns);
  if (spare_memory_ || collected_.tiles >= kTiles || collected_.gemms.size() == kMostGemms)
    issue_collected();
}

void SideWork::issue_collected() {
  if (collected_.gemms.empty()) return;
  const Collected work = std::exchange(collected_, {});
  run(work.tensors.reads, work.tensors.writes, [&] {
    backend_.grouped_gemm(work.gemms);
    for (const auto& rest : work.rest) rest();
  });
}

void SideWork::settle(const Context& context, const Tensor& tensor) {
  SideWork* const work = context.step().side_work;
  if (work && work->writes(tensor)) work->wait_all();
}

}  // namespace trafo
