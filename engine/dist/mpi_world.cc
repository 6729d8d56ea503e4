#include "engine/dist/mpi_world.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "engine/core/plugin_library.h"

namespace trafo::mpi {
namespace {

constexpr double kFlushSeconds = 0.5;
constexpr size_t kMostNoticeText = 2000;  // bytes, below what MPI sends without the receiver's help

constexpr PluginLibrary kMpiPlugin{kMpiOrigin, "MPI plugin", "libtrafo_mpi.so", "TRAFO_MPI_LIBRARY",
                                   nullptr};

// A notice as bytes. Both sides are of one release and one kind of machine.
constexpr size_t kNoticeHead = sizeof(uint8_t) + sizeof(uint32_t) + sizeof(uint64_t);

std::string bytes_of(const Notice& notice) {
  std::string bytes(kNoticeHead, '\0');
  bytes[0] = static_cast<char>(notice.kind);
  std::memcpy(bytes.data() + 1, &notice.group, sizeof notice.group);
  std::memcpy(bytes.data() + 1 + sizeof notice.group, &notice.calls, sizeof notice.calls);
  return bytes + notice.text.substr(0, kMostNoticeText);
}

Notice notice_of(const std::string& bytes, int from) {
  Notice notice;
  notice.from = from;
  require(bytes.size() >= kNoticeHead && static_cast<uint8_t>(bytes[0]) <= Notice::goodbye,
          ErrorCode::internal, kMpiOrigin, "rank ", from, " sent a notice that cannot be read");
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

void MpiThread::loop() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !work_.empty(); });
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

void MpiThread::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!begun_) std::thread([this] { loop(); }).detach();
  begun_ = true;
  work_.push_back(std::move(work));
  wake_.notify_one();
}

bool MpiThread::run(std::function<void()> work, double seconds) {
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

void Pause::operator()() {
  constexpr int kYields = 50, kShortest = 20, kLongest = 500;  // microseconds
  if (times_ < kYields) {
    ++times_;
    sched_yield();
    return;
  }
  const int doublings = std::min(times_++ - kYields, 10);
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::min(kLongest, kShortest << doublings)));
}

MpiWorld& MpiWorld::the() {
  static auto* const world = new MpiWorld;
  return *world;
}

std::string MpiWorld::why_ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void MpiWorld::fail_if_ended() {
  const std::string reason = why_ended();
  if (!reason.empty()) fail(ErrorCode::peer_lost, kMpiOrigin, reason);
}

void MpiWorld::end(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = reason;
}

void MpiWorld::check(int32_t result) {
  if (result != 0) fail(ErrorCode::peer_lost, kMpiOrigin, why_.text);
}

void MpiWorld::start() {
  if (table_.version == 0) {
    const OpenPlugin open = open_plugin(kMpiPlugin);
    const auto entry =
        reinterpret_cast<PluginEntry>(plugin_symbol(kMpiPlugin, open, kPluginEntryName));
    PluginTable table{};
    entry(&table);
    require_same_release(kMpiPlugin, open, table.version, kPluginVersion, table.engine_version);
    table_ = table;
  }
  int32_t size = 0;
  if (table_.start(&rank_, &size, &is_ours_, why_.why()) != 0)
    fail(ErrorCode::unsupported, kMpiOrigin, why_.text);
  size_ = size;
}

Request* MpiWorld::send(const void* data, size_t bytes, int peer, Tag tag) {
  Request* request = nullptr;
  check(table_.send(data, static_cast<int64_t>(bytes), peer, tag, &request, why_.why()));
  return request;
}

Request* MpiWorld::receive(void* data, size_t bytes, int peer, Tag tag) {
  Request* request = nullptr;
  check(table_.receive(data, static_cast<int64_t>(bytes), peer, tag, &request, why_.why()));
  return request;
}

bool MpiWorld::test(Request* request, size_t expected, bool is_receive) {
  int32_t done = 0;
  int64_t received = 0;
  check(table_.test(request, &done, is_receive ? &received : nullptr, why_.why()));
  if (done != 0 && is_receive)
    require(received == static_cast<int64_t>(expected), ErrorCode::internal, kMpiOrigin,
            "ranks exchange different pieces: ", received, " bytes came instead of ", expected);
  return done != 0;
}

int64_t MpiWorld::probe(int peer, Tag tag) {
  int32_t from = kNoPeer;
  int64_t bytes = 0;
  check(table_.probe(peer, tag, &from, &bytes, why_.why()));
  return from == kNoPeer ? -1 : bytes;
}

void MpiWorld::tell(const Notice& notice) {
  const auto bytes = std::make_shared<const std::string>(bytes_of(notice));
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      outgoing_.push_back({bytes, send(bytes->data(), bytes->size(), peer, kNoticeTag)});
}

void MpiWorld::progress() {
  std::erase_if(outgoing_, [this](const Outgoing& each) { return test(each.request, 0, false); });
  while (true) {
    int32_t from = kNoPeer;
    int64_t size = 0;
    check(table_.probe(kAnyPeer, kNoticeTag, &from, &size, why_.why()));
    if (from == kNoPeer) return;
    std::string bytes(static_cast<size_t>(size), '\0');
    Request* const request = receive(bytes.data(), bytes.size(), from, kNoticeTag);
    // It is here already, and short: no other process is needed.
    for (Pause pause; !test(request, bytes.size(), true);) pause();
    notices_.push_back(notice_of(bytes, from));
  }
}

void MpiWorld::flush() {
  const auto deadline = after(kFlushSeconds);
  for (Pause pause; !outgoing_.empty() && Clock::now() < deadline; pause()) progress();
}

}  // namespace trafo::mpi
