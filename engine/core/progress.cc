#include "engine/core/progress.h"

#include <algorithm>
#include <utility>

#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr auto kBetweenReports = std::chrono::milliseconds(100);

}  // namespace

WorkProgress::WorkProgress(Work work, int64_t total) : work_(work), total_(total) {
  ProgressScope* const scope = ProgressScope::current_;
  if (scope == nullptr || scope->work_ != nullptr) return;
  scope_ = scope;
  scope->work_ = this;
  tell();
}

WorkProgress::~WorkProgress() {
  if (scope_ != nullptr) scope_->work_ = nullptr;
}

WorkProgress* WorkProgress::current(Work work) noexcept {
  const ProgressScope* const scope = ProgressScope::current_;
  return scope != nullptr && scope->work_ != nullptr && scope->work_->work_ == work ? scope->work_
                                                                                    : nullptr;
}

void WorkProgress::expect(int64_t total) noexcept {
  int64_t unknown = 0;
  total_.compare_exchange_strong(unknown, total);
}

void WorkProgress::count(int64_t amount) {
  done_ += amount;
  if (ProgressScope::current_ == scope_ &&
      std::chrono::steady_clock::now() - scope_->told_ >= kBetweenReports)
    tell();
}

void WorkProgress::finish() {
  if (scope_ == nullptr) return;
  expect(done_);
  done_ = total_.load();
  tell();
  ProgressScope& scope = *std::exchange(scope_, nullptr);
  scope.work_ = nullptr;  // another work may tell
  require(!scope.stopped_, ErrorCode::cancelled, "progress", "cancelled by the caller");
}

void WorkProgress::tell() {
  if (scope_->stopped_) return;  // the call is ending
  const int64_t total = total_, done = done_;
  if (!scope_->tell_(work_, total > 0 ? std::min(done, total) : done, total))
    scope_->stopped_ = true;
  scope_->told_ = std::chrono::steady_clock::now();
}

}  // namespace trafo
