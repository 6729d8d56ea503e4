#include "engine/dist/linked_group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "engine/backend/backend.h"
#include "engine/core/library_thread.h"
#include "engine/os/file.h"
#include "engine/os/process.h"

namespace trafo {
namespace {

using LinkClock = std::chrono::steady_clock;

constexpr const char* kLinkedOrigin = "group";
constexpr auto kWatchInterval = std::chrono::milliseconds(20);
// How long exchanges may still need that are in the streams when a rank leaves. The rank itself
// waits for its own.
constexpr auto kLinkGrace = std::chrono::seconds(2);

double seconds_since(LinkClock::time_point begin) {
  return std::chrono::duration<double>(LinkClock::now() - begin).count();
}

// The same for all containers of a host, and another one after it has started anew.
std::string name_of_host() {
  const std::string name = os::read_system_file("/proc/sys/kernel/random/boot_id");
  if (!name.empty()) return name.substr(0, name.find('\n'));
  return os::host_name();
}

// A thread watches the link, because a device that waits for a peer that never comes does not
// return. Two locks: `link_use_` is held during calls of the link, `mutex_` protects the rest. Who
// holds both has taken `link_use_` first.
class LinkedCommunicator final : public Communicator {
 public:
  LinkedCommunicator(std::unique_ptr<Communicator> host, std::unique_ptr<LinkMaker> links,
                     const GroupTimeouts& timeouts, Overlap overlap, size_t least_part)
      : Communicator(host->rank(), host->size()),
        host_(std::move(host)),
        links_(std::move(links)),
        timeouts_(timeouts),
        overlap_(overlap),
        least_part_(least_part) {}
  ~LinkedCommunicator() override { close(); }

  const char* transport() const override { return links_->name(); }

  void attach(Backend& backend) override {
    if (size() == 1) return;
    const bool again = link_ != nullptr && backend_ == &backend;
    const std::vector<std::string> all = host_all_gather(again ? "again" : "new");
    if (std::all_of(all.begin(), all.end(), [](const auto& each) { return each == "again"; }))
      return;
    close();
    agree_after(*host_, [&] { links_->prepare(backend); });
    std::string id;
    agree_after(*host_, [&] {
      if (rank() == 0) id = links_->new_id();
    });
    id = host_all_gather(id).front();
    const std::vector<std::string> hosts = host_all_gather(name_of_host());
    overlaps_backward_ = overlap_ == Overlap::always ||
                         std::any_of(hosts.begin(), hosts.end(), [&](const std::string& each) {
                           return each != hosts.front();
                         });
    ranks_per_host_ = ranks_per_host_of(hosts);
    agree_after(*host_, [&] { link_ = links_->open(backend, id, rank(), size()); });
    backend_ = &backend;
    stopping_ = false;
    watcher_ = start_thread([this] { watch(); });
    wait_until_issued(timeouts_.start, "joined");
    connect();
  }

  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override {
    exchange(sends, receives, -1);
  }
  int ranks_per_host() const override { return ranks_per_host_; }
  int marks() const override { return link_ != nullptr ? link_->marks() : 0; }
  size_t least_part() const override { return least_part_; }
  bool overlaps_backward() const override { return link_ != nullptr && overlaps_backward_; }
  void set_mark(int mark) override {
    use_link([&] { link_->set_mark(mark); });
  }
  void exchange_after(int mark, std::span<const SendPiece> sends,
                      std::span<const ReceivePiece> receives) override {
    exchange(sends, receives, mark);
  }
  void join() override {
    use_link([&] { link_->join(); });
  }

  std::vector<std::string> host_all_gather(std::string_view bytes) override {
    require_open();
    return host_->host_all_gather(bytes);
  }

  void abort(std::string_view reason) noexcept override {
    host_->abort(reason);
    lose(reason);
  }

  // Aborting a link lets the device go on with data that has not come. `lost_` is set before.
  void check() override {
    if (link_ != nullptr) use_link([this] { link_->issued(); });
  }

  std::string why_ended() override {
    {
      const std::lock_guard lock(mutex_);
      if (!lost_.empty()) return lost_;
    }
    return host_->why_ended();
  }

 private:
  struct InFlight {
    uint64_t number;
    LinkClock::time_point since;
  };

  // `after`: a mark, or -1.
  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                int after) {
    const uint64_t number = ++exchanges_;
    host_->come_to(number);
    require_open();
    if (sends.empty() && receives.empty()) return;
    require(link_ != nullptr, ErrorCode::internal, kLinkedOrigin,
            "a device must be attached before ranks exchange over ", transport());
    try {
      use_link([&] {
        pieces_.clear();
        for (const SendPiece& piece : sends)
          pieces_.push_back({piece.to, false, const_cast<void*>(piece.data), piece.bytes});
        for (const ReceivePiece& piece : receives)
          pieces_.push_back({piece.from, true, piece.data, piece.bytes});
        link_->begin_exchange(pieces_, after);
      });
      wait_until_issued(timeouts_.wait, "come");
      use_link([&] {
        link_->mark(number, after >= 0);
        const std::lock_guard lock(mutex_);
        in_flight_.push_back({number, LinkClock::now()});
      });
    } catch (const std::exception&) {
      // The caller frees the pieces next, so no peer may read or write them any more.
      const std::lock_guard in_use(link_use_);
      link_->abort();
      throw;
    }
  }

  // One byte to and from each peer: what a link connects at first use takes memory of the device,
  // which a plan should know.
  void connect() {
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    const auto bytes = static_cast<size_t>(size());
    void* memory = backend_->allocate(bytes);
    auto* places = static_cast<std::byte*>(memory);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends.push_back({peer, places + rank(), 1});
      receives.push_back({peer, places + peer, 1});
    }
    try {
      exchange(sends, receives);
      backend_->synchronize();
      check();
    } catch (...) {
      backend_->release(memory, bytes);
      throw;
    }
    backend_->release(memory, bytes);
  }

  void throw_if_lost() const {
    if (!lost_.empty()) fail(ErrorCode::peer_lost, kLinkedOrigin, lost_);
  }
  // Nothing new can be exchanged once a rank has left.
  void require_open() {
    const std::string reason = why_ended();
    if (!reason.empty()) fail(ErrorCode::peer_lost, kLinkedOrigin, reason);
  }

  void lose(std::string_view reason) noexcept {
    {
      const std::lock_guard lock(mutex_);
      try {
        if (lost_.empty()) lost_ = reason.empty() ? "a rank left" : reason;
      } catch (const std::exception&) {
        lost_ = "a rank left";  // short: inside the string itself
      }
    }
    wake_.notify_all();
  }

  // Ends the group with an error of this rank. Only a lost peer has ended it already.
  void end_with(const std::exception& error) noexcept {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->code() == ErrorCode::peer_lost)
      lose(error.what());
    else
      abort(error.what());
  }

  // An error in a call of the link ends the group, and so does a lack of memory.
  template <class Use>
  void use_link(Use use) {
    try {
      const std::lock_guard in_use(link_use_);
      {
        const std::lock_guard lock(mutex_);
        throw_if_lost();
      }
      use();
    } catch (const std::exception& error) {
      end_with(error);
      throw;
    }
  }

  void wait_until_issued(double timeout, const char* what) {
    const auto begin = LinkClock::now();
    for (int polls = 0;; ++polls) {
      // Asked first: a rank that has left may have done its part before.
      const std::string ended = host_->why_ended();
      bool issued = false;
      use_link([&] { issued = link_->issued(); });
      if (issued) return;
      if (!ended.empty()) {
        lose(ended);
        fail(ErrorCode::peer_lost, kLinkedOrigin, ended);
      }
      if (seconds_since(begin) > timeout) {
        const std::string reason = overdue(exchanges_, timeout, what);
        host_->end(reason);
        lose(reason);
        fail(ErrorCode::peer_lost, kLinkedOrigin, reason);
      }
      if (polls < 1000)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::string overdue(uint64_t exchange, double timeout, const char* what) {
    const int behind = host_->rank_behind(exchange);
    if (behind >= 0)
      return concat("rank ", behind, " has not ", what, " within ", timeout, " seconds");
    return concat("an exchange over ", links_->name(), " has not ended within ", timeout,
                  " seconds");
  }

  void watch() {
    std::optional<LinkClock::time_point> left;  // when a rank was seen to have left
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait_for(lock, kWatchInterval, [this] { return stopping_ || !lost_.empty(); });
      if (stopping_) return;
      if (lost_.empty()) {
        while (!in_flight_.empty() && in_flight_.front().number <= link_->done())
          in_flight_.pop_front();
        const bool busy = !in_flight_.empty();
        const InFlight oldest = busy ? in_flight_.front() : InFlight{};
        lock.unlock();
        judge(busy, oldest, left);
        lock.lock();
      }
      if (lost_.empty()) continue;
      lock.unlock();
      {
        const std::lock_guard in_use(link_use_);
        link_->abort();
      }
      return;
    }
  }

  // Gives the link up if it has failed, takes too long, or waits for a rank that has left.
  void judge(bool busy, const InFlight& oldest, std::optional<LinkClock::time_point>& left) {
    try {
      use_link([this] { link_->issued(); });
      const std::string ended = host_->why_ended();
      if (!ended.empty()) {
        if (!left) left = LinkClock::now();
        if (busy && LinkClock::now() - *left > kLinkGrace) lose(ended);
      } else if (busy && seconds_since(oldest.since) > timeouts_.wait) {
        const std::string reason = overdue(oldest.number, timeouts_.wait, "come");
        host_->end(reason);
        lose(reason);
      }
    } catch (const std::exception& error) {
      lose(error.what());
    }
  }

  // Other ranks may wait for what is still in the stream of this one.
  void close() noexcept {
    if (link_ == nullptr) return;
    {
      std::unique_lock lock(mutex_);
      const auto finished = [this] {
        return !lost_.empty() || in_flight_.empty() || link_->done() >= in_flight_.back().number;
      };
      while (!finished()) wake_.wait_for(lock, std::chrono::milliseconds(1));
      stopping_ = lost_.empty();  // otherwise it aborts and ends by itself
    }
    wake_.notify_all();
    if (watcher_.joinable()) watcher_.join();  // not started if another rank has no link
    link_.reset();
    in_flight_.clear();
  }

  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<LinkMaker> links_;
  const GroupTimeouts timeouts_;
  const Overlap overlap_;
  const size_t least_part_;
  bool overlaps_backward_ = false;
  int ranks_per_host_ = 1;
  Backend* backend_ = nullptr;
  std::mutex link_use_;
  std::unique_ptr<PeerLink> link_;
  uint64_t exchanges_ = 0;
  std::vector<PeerPiece> pieces_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string lost_;  // why the link is given up; empty: it is not
  std::deque<InFlight> in_flight_;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace

int ranks_per_host_of(const std::vector<std::string>& hosts) {
  const auto next = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const std::string& each) { return each != hosts.front(); });
  const auto share = static_cast<size_t>(next - hosts.begin());
  if (share == hosts.size() || hosts.size() % share != 0) return 1;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const size_t first = rank / share * share;
    const bool begins = rank == first && rank > 0;
    if (hosts[rank] != hosts[first] || (begins && hosts[rank] == hosts[rank - 1])) return 1;
  }
  return static_cast<int>(share);
}

std::unique_ptr<Communicator> join_linked_group(std::unique_ptr<Communicator> host,
                                                std::unique_ptr<LinkMaker> links,
                                                const GroupTimeouts& timeouts, Overlap overlap,
                                                size_t least_part) {
  return std::make_unique<LinkedCommunicator>(std::move(host), std::move(links), timeouts, overlap,
                                              least_part);
}

}  // namespace trafo
