#include "engine/dist/process_world.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "engine/core/library_thread.h"

namespace trafo::process {
namespace {

constexpr double kFlushSeconds = 0.5;
constexpr size_t kMostNoticeText =
    2000;  // bytes, below what a wire sends without the receiver's help

// A notice as bytes. Both sides are of one release and one kind of machine.
constexpr size_t kNoticeHead = sizeof(uint8_t) + sizeof(uint32_t) + sizeof(uint64_t);

std::string bytes_of(const Notice& notice) {
  std::string bytes(kNoticeHead, '\0');
  bytes[0] = static_cast<char>(notice.kind);
  std::memcpy(bytes.data() + 1, &notice.group, sizeof notice.group);
  std::memcpy(bytes.data() + 1 + sizeof notice.group, &notice.calls, sizeof notice.calls);
  return bytes + notice.text.substr(0, kMostNoticeText);
}

Notice notice_of(const std::string& bytes, int from, const char* origin) {
  Notice notice;
  notice.from = from;
  require(bytes.size() >= kNoticeHead && static_cast<uint8_t>(bytes[0]) <= Notice::came,
          ErrorCode::internal, origin, "rank ", from, " sent a notice that cannot be read");
  notice.kind = static_cast<Notice::Kind>(bytes[0]);
  std::memcpy(&notice.group, bytes.data() + 1, sizeof notice.group);
  std::memcpy(&notice.calls, bytes.data() + 1 + sizeof notice.group, sizeof notice.calls);
  notice.text = bytes.substr(kNoticeHead);
  return notice;
}

}  // namespace

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void WorkThread::loop() {
  constexpr auto kIdleInterval = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  auto idled = Clock::now();
  while (true) {
    const auto has_work = [this] { return !work_.empty() || stopping_; };
    // Also between pieces of work that come without a pause.
    while (idle_ && (!wake_.wait_for(lock, kIdleInterval, has_work) ||
                     Clock::now() - idled >= kIdleInterval)) {
      lock.unlock();
      idle_();
      lock.lock();
      idled = Clock::now();
    }
    wake_.wait(lock, has_work);
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

void WorkThread::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread([this] { loop(); });
  work_.push_back(std::move(work));
  wake_.notify_one();
}

void WorkThread::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool WorkThread::run(std::function<void()> work, double seconds) {
  struct Result {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::exception_ptr error;
  };
  const auto result = std::make_shared<Result>();
  post([result, work = std::move(work)] {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(result->mutex);
    result->error = std::move(error);  // one owner at a time: the caller may read it to its end
    result->done = true;
    result->ended.notify_one();
  });
  std::unique_lock lock(result->mutex);
  if (!result->ended.wait_until(lock, after(seconds), [&] { return result->done; })) return false;
  if (result->error) std::rethrow_exception(std::exchange(result->error, nullptr));
  return true;
}

ProcessWorld::ProcessWorld(const char* origin, bool in_background)
    : origin_(origin),
      thread_(in_background ? std::function<void()>([this] {
        if (!wire_) return;
        try {
          wire_->wait(0);
          progress();
        } catch (const std::exception& error) {
          end(error.what());
        }
      })
                            : nullptr) {}

// The wire closes what the thread uses.
ProcessWorld::~ProcessWorld() {
  thread_.stop();
}

std::string ProcessWorld::why_ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void ProcessWorld::fail_if_ended() {
  const std::string reason = why_ended();
  if (!reason.empty()) fail(ErrorCode::peer_lost, origin_, reason);
}

void ProcessWorld::end(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = reason;
}

void ProcessWorld::begin(std::unique_ptr<ProcessWire> wire) {
  const std::lock_guard lock(mutex_);
  came_.resize(static_cast<size_t>(wire->size()));
  wire_ = std::move(wire);
}

Request* ProcessWorld::send(const void* data, size_t bytes, int peer, Tag tag) {
  return wire_->send(data, bytes, peer, tag);
}

Request* ProcessWorld::receive(void* data, size_t bytes, int peer, Tag tag) {
  return wire_->receive(data, bytes, peer, tag);
}

bool ProcessWorld::test(Request* request, size_t expected, bool is_receive) {
  int64_t received = 0;
  if (!wire_->test(request, is_receive ? &received : nullptr)) return false;
  if (is_receive)
    require(received == static_cast<int64_t>(expected), ErrorCode::internal, origin_,
            "ranks exchange different pieces: ", received, " bytes came instead of ", expected);
  return true;
}

int64_t ProcessWorld::probe(int peer, Tag tag) {
  const std::optional<ProcessWire::Message> message = wire_->probe(peer, tag);
  return message ? message->bytes : -1;
}

void ProcessWorld::tell(const Notice& notice) {
  const auto bytes = std::make_shared<const std::string>(bytes_of(notice));
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      outgoing_.push_back({bytes, send(bytes->data(), bytes->size(), peer, kNoticeTag)});
}

void ProcessWorld::take_in(Notice notice) {
  {
    const std::lock_guard lock(mutex_);
    if (notice.kind == Notice::came) {
      uint64_t& came = came_[static_cast<size_t>(notice.from)];
      came = std::max(came, notice.calls);
      return;
    }
    left_.emplace_back(notice.group, notice.text);
  }
  notices_.push_back(std::move(notice));
}

void ProcessWorld::progress() {
  std::erase_if(outgoing_, [this](const Outgoing& each) { return test(each.request, 0, false); });
  // Messages of a lost rank arrive before it is known to be lost.
  std::vector<ProcessWire::Lost> lost;
  while (auto each = wire_->next_lost()) lost.push_back(std::move(*each));
  while (const auto message = wire_->probe(kAnyPeer, kNoticeTag)) {
    std::string bytes(static_cast<size_t>(message->bytes), '\0');
    Request* const request = receive(bytes.data(), bytes.size(), message->from, kNoticeTag);
    // It is here already, and short: no other process is needed.
    for (int times = 0; !test(request, bytes.size(), true);) wait(times++);
    take_in(notice_of(bytes, message->from, origin_));
  }
  for (const ProcessWire::Lost& each : lost) {
    const auto is_its_own = [&](const Notice& notice) { return notice.from == each.peer; };
    if (std::none_of(notices_.begin(), notices_.end(), is_its_own))
      take_in(
          {Notice::ended, 0, 0, concat("rank ", each.peer, " has left: ", each.reason), each.peer});
  }
}

void ProcessWorld::flush() {
  const auto deadline = after(kFlushSeconds);
  for (int times = 0; !outgoing_.empty() && Clock::now() < deadline; wait(times++)) progress();
}

std::string ProcessWorld::why_left(uint32_t group) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, reason] : left_)
    if (number == group || number == 0) return reason;
  return {};
}

int ProcessWorld::rank_behind(uint64_t exchange) {
  const std::lock_guard lock(mutex_);
  for (size_t rank = 0; rank < came_.size(); ++rank)
    if (came_[rank] < exchange) return static_cast<int>(rank);
  return -1;
}

void ProcessWorld::come_to(uint64_t exchange) {
  const std::lock_guard lock(mutex_);
  uint64_t& came = came_[static_cast<size_t>(rank())];
  came = std::max(came, exchange);
}

}  // namespace trafo::process
