#include "engine/memory/arena.h"

#include <algorithm>

namespace trafo {

void FittingArena::begin(void* base, const ArenaPlan& plan) {
  require(living() == 0, ErrorCode::internal, "memory plan", living(),
          " tensors of the last step are still in use");
  base_ = static_cast<std::byte*>(base);
  plan_ = &plan;
  next_ = taken_ = freed_ = planned_frees_ = 0;
  follows_plan_ = true;
  is_freed_.assign(plan.places.size(), 0);
  at_offset_.clear();
  for (const auto& place : plan.places) at_offset_.emplace_back(place.offset, 0);
  std::sort(at_offset_.begin(), at_offset_.end());
  at_offset_.erase(std::unique(at_offset_.begin(), at_offset_.end()), at_offset_.end());
}

void* FittingArena::take(size_t bytes) {
  const auto& places = plan_->places;
  follows_plan_ = follows_plan_ && next_ < places.size() && bytes <= places[next_].bytes;
  if (follows_plan_) {
    const size_t wanted = places[next_].frees_before;
    while (planned_frees_ < wanted && is_freed_[plan_->frees[planned_frees_]]) ++planned_frees_;
    follows_plan_ = planned_frees_ == wanted;
  }
  if (!follows_plan_) {
    ++refused_;
    return nullptr;
  }
  const size_t offset = places[next_].offset;
  std::lower_bound(at_offset_.begin(), at_offset_.end(), std::pair{offset, size_t{0}})->second =
      next_;
  ++next_;
  ++taken_;
  return base_ + offset;
}

void FittingArena::released(void* pointer) noexcept {
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - base_);
  const auto found = std::lower_bound(at_offset_.begin(), at_offset_.end(), offset,
                                      [](const auto& each, size_t at) { return each.first < at; });
  if (found == at_offset_.end() || found->first != offset || is_freed_[found->second]) return;
  is_freed_[found->second] = 1;
  ++freed_;
}

}  // namespace trafo
