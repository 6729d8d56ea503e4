#include "engine/runtime/profiler.h"

#include <cmath>

namespace trafo {
namespace {

// Marks that may be unread at a time. A device keeps an event for each.
constexpr int64_t kMostMarks = 1 << 15;

// Differences of marks are 32-bit floats in milliseconds. Over a second they are exact to 0.1 us.
constexpr double kFarMilliseconds = 1000;

// Makes room for one more element, so that adding it cannot fail.
template <class T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 64);
}

int64_t nanoseconds(double milliseconds) {
  return std::llround(milliseconds * 1e6);
}

}  // namespace

void Profiler::look_for_tools() {
  StreamDevice* device = backend_.stream_device();
  names_ = device && device->annotates() ? device : nullptr;
}

void Profiler::start(bool graphs) {
  recording_ = false;
  ++profile_;
  graphs_ = graphs;
  trace_ = {};
  trace_.device = backend_.device();
  open_.clear();
  marks_.clear();
  unread_ = 0;
  backward_ = 0;
  begin_ = Clock::now();
  device_ = backend_.stream_device();
  if (device_) calibrate();
  recording_ = true;
}

Trace Profiler::finish() {
  require(recording_, ErrorCode::invalid_argument, "profile", "no profile is being recorded");
  while (!open_.empty()) end({open_.back(), profile_, false, false});
  recording_ = false;
  if (device_) read_marks();
  trace_.duration = now();
  device_ = nullptr;
  return std::exchange(trace_, {});
}

// Issues a mark and finds its time on the host's clock.
void Profiler::calibrate() {
  backend_.synchronize();
  device_->forget_times();
  marks_issued_ = 0;
  int64_t tightest = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = now();
    const int64_t mark = device_->record_time();
    device_->elapsed(mark, mark);  // waits for it
    const int64_t after = now();
    ++marks_issued_;
    if (after - before >= tightest) continue;
    tightest = after - before;
    anchor_ = mark;
    anchor_time_ = before + tightest / 2;
  }
}

void Profiler::read_marks() {
  const auto time_of = [&](int64_t mark) {
    const double since = device_->elapsed(anchor_, mark);
    const int64_t at = anchor_time_ + nanoseconds(since);
    if (since > kFarMilliseconds) {
      anchor_ = mark;
      anchor_time_ = at;
    }
    return at;
  };
  // Reads every mark once and in stream order, so that the anchor only moves forward.
  std::vector<int64_t> times(static_cast<size_t>(marks_issued_), -1);
  for (int64_t mark = anchor_; mark < marks_issued_; ++mark)
    times[static_cast<size_t>(mark)] = time_of(mark);
  for (size_t i = 0; i < marks_.size(); ++i) {
    const auto [first, last] = marks_[i];
    if (first < 0 || last < 0) continue;
    TraceRange& range = trace_.ranges[unread_ + i];
    range.device_begin = times[static_cast<size_t>(first)];
    range.device_end = times[static_cast<size_t>(last)];
  }
  unread_ = trace_.ranges.size();
  marks_.clear();
}

Profiler::Token Profiler::begin(const char* name, TraceKind kind, bool on_device) {
  Token token;
  token.profile = profile_;
  if (recording_ && open_.empty() && device_ && marks_issued_ > kMostMarks) {
    read_marks();
    calibrate();
  }
  if (recording_ && trace_.ranges.size() >= kMaxRanges) {
    ++trace_.left_out;
  } else if (recording_) {
    TraceRange range;
    range.name = name;
    range.kind = kind == TraceKind::forward && backward_ > 0 ? TraceKind::recompute : kind;
    range.parent = open_.empty() ? -1 : open_.back();
    range.first_input = static_cast<int64_t>(trace_.inputs.size());
    make_room(open_);
    make_room(marks_);
    make_room(trace_.ranges);
    range.host_begin = now();
    int64_t mark = -1;
    if (on_device && device_) {
      mark = device_->record_time();
      ++marks_issued_;
    }
    token.index = static_cast<int64_t>(trace_.ranges.size());
    trace_.ranges.push_back(range);
    marks_.emplace_back(mark, -1);
    open_.push_back(token.index);
    token.backward = kind == TraceKind::backward;
    backward_ += token.backward;
  }
  if (names_) {
    names_->push_name(name, trace_kind_name(kind));
    token.named = true;
  }
  return token;
}

void Profiler::add_input(const Token& token, const Shape& shape, DType dtype) {
  if (token.index < 0 || token.profile != profile_ || !recording_) return;
  trace_.inputs.push_back({shape, dtype});
  ++trace_.ranges[static_cast<size_t>(token.index)].inputs;
}

void Profiler::set_kernel(const char* name) {
  if (recording_ && !open_.empty()) trace_.ranges[static_cast<size_t>(open_.back())].kernel = name;
}

void Profiler::end(const Token& token) noexcept {
  if (token.named && names_) names_->pop_name();
  // The profile may have ended, or another one begun, since the range began.
  if (token.index < 0 || !recording_ || token.profile != profile_ || open_.empty()) return;
  open_.pop_back();
  backward_ -= token.backward;
  const auto index = static_cast<size_t>(token.index);
  auto& marks = marks_[index - unread_];
  if (marks.first >= 0 && device_) {
    try {
      marks.second = device_->record_time();
      ++marks_issued_;
    } catch (const Error&) {  // the device is lost; the work itself will fail
    }
  }
  trace_.ranges[index].host_end = now();
}

}  // namespace trafo
