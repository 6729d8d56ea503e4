#include "engine/train/parallel/gradient_marks.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/side_work.h"

namespace trafo {
namespace {

// Fewer elements are not worth a separate exchange: 16 MiB take 0.05 ms on NVLink.
constexpr int64_t kLeastElements = 1 << 22;

}  // namespace

GradientMarks::GradientMarks(const Context& context, const ParameterStore& parameters,
                             Communicator& group, std::function<void(const ElementRange&)> complete)
    : context_(context), group_(group), complete_(std::move(complete)) {
  std::vector<std::pair<int64_t, ParamId>> order;
  for (size_t i = 0; i < parameters.count(); ++i)
    if (const auto id = static_cast<ParamId>(i); parameters.trainable(id))
      order.emplace_back(parameters.offset(id), id);
  std::sort(order.begin(), order.end());
  const int64_t all = parameters.flat_grad().numel();
  const int64_t marks = group.marks();
  const int64_t wanted = std::min(kLeastElements, (all + 1) / 2);
  const int64_t elements = std::max(wanted, (all + marks - 1) / marks);
  for (const auto& [offset, id] : order) {
    const bool full = parts_.empty() || offset - parts_.back().begin >= elements;
    if (full && static_cast<int64_t>(parts_.size()) < marks) {
      if (!parts_.empty()) parts_.back().end = offset;
      parts_.push_back({offset, all});
      counts_.push_back(0);
    }
    ++counts_.back();
    places_[parameters.value(id).variable().get()] = {parts_.size() - 1};
  }
  progress_.resize(parts_.size());
  finished();
}

void GradientMarks::will_add(const Variable& leaf) {
  const auto found = places_.find(&leaf);
  if (found == places_.end()) return;
  Progress& part = progress_[found->second.part];
  ++part.missing;
  if (!std::exchange(found->second.used, true)) --part.absent;
}

// Parameters that this pass does not use keep an older gradient, or get zeros after the pass.
void GradientMarks::added(const Variable& leaf) {
  const auto found = places_.find(&leaf);
  if (found == places_.end()) return;
  Progress& part = progress_[found->second.part];
  if (--part.missing == 0 && part.absent == 0) set(found->second.part);
}

void GradientMarks::set(size_t part) {
  progress_[part].marked = true;
  if (SideWork* const work = context_.step().side_work) work->wait_all();
  if (complete_) complete_(parts_[part]);
  group_.set_mark(static_cast<int>(part));
}

void GradientMarks::finished() {
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!progress_[part].marked) set(part);
    progress_[part] = {counts_[part], 0, false};
  }
  for (auto& [leaf, place] : places_) place.used = false;
}

void GradientMarks::set_all() {
  for (size_t part = 0; part < parts_.size(); ++part) set(part);
  finished();
}

}  // namespace trafo
