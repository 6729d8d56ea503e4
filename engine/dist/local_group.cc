#include "engine/dist/local_group.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "engine/backend/backend.h"

namespace trafo {
namespace {

constexpr const char* kLocalGroupOrigin = "group";
constexpr std::string_view kMagic = "trafo local group ";

std::chrono::steady_clock::time_point moment_after(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// State that the ranks of a group share. A call of all ranks has two meetings. At the first, each
// has put down what it offers. Then each reads, and says so with done_reading(). A rank does not
// leave a meeting, not even with an error, while another one reads.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), offers_(static_cast<size_t>(size)) {}

  struct Offer {
    bool joined = false, here = false;
    uint64_t exchange = 0;  // it has come to this one
    std::span<const SendPiece> sends;
    std::string_view bytes;
  };

  int size() const { return size_; }

  void join(int rank, int size, double timeout) {
    {
      const std::lock_guard lock(mutex_);
      require(size == size_, ErrorCode::invalid_argument, kLocalGroupOrigin, "rank ", rank,
              " joins a group of ", size, ", other ranks one of ", size_);
      Offer& own = offers_[static_cast<size_t>(rank)];
      require(!own.joined, ErrorCode::invalid_argument, kLocalGroupOrigin, "rank ", rank,
              " has joined the group already");
      own.joined = true;
    }
    meet(rank, timeout, "has not joined", 0);
  }

  Offer& offer(int rank) { return offers_[static_cast<size_t>(rank)]; }

  void meet(int rank, double timeout) { meet(rank, timeout, "has not come", 0); }

  // The first meeting of a call, after which a rank reads the offers of the others. They wait until
  // it is done, also after an error.
  class Reading {
   public:
    Reading(Meeting& meeting, int rank, double timeout) : meeting_(meeting) {
      meeting.meet(rank, timeout, "has not come", meeting.size_);
    }
    ~Reading() {
      const std::lock_guard lock(meeting_.mutex_);
      if (--meeting_.reading_ == 0) meeting_.changed_.notify_all();
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Meeting& meeting_;
  };

  void abort(int rank, std::string_view reason) noexcept {
    end([&] { return concat("rank ", rank, " has left: ", reason); });
  }
  template <class Words>
  void end(Words words) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      if (!lost()) reason_ = words();
    } catch (const std::exception&) {  // no memory for the words
      reason_ = "a rank left";         // short: inside the string itself
    }
    changed_.notify_all();
  }
  std::string why_ended() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  void come_to(int rank, uint64_t exchange) {
    const std::lock_guard lock(mutex_);
    offers_[static_cast<size_t>(rank)].exchange = exchange;
  }
  int rank_behind(uint64_t exchange) {
    const std::lock_guard lock(mutex_);
    for (size_t rank = 0; rank < offers_.size(); ++rank)
      if (offers_[rank].exchange < exchange) return static_cast<int>(rank);
    return -1;
  }

 private:
  void meet(int rank, double timeout, const char* absent, int readers) {
    std::unique_lock lock(mutex_);
    leave_if_lost(lock);
    offers_[static_cast<size_t>(rank)].here = true;
    const uint64_t now = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      reading_ = readers;
      for (Offer& each : offers_) each.here = false;
      ++round_;
      changed_.notify_all();
      return;
    }
    const bool met =
        changed_.wait_until(lock, moment_after(timeout), [&] { return round_ != now || lost(); });
    if (round_ != now) return;
    if (!met) {
      size_t missing = 0;
      while (offers_[missing].here) ++missing;
      reason_ = concat("rank ", missing, " ", absent, " within ", timeout, " seconds");
      changed_.notify_all();
    }
    leave_if_lost(lock);
  }

  bool lost() const { return !reason_.empty(); }
  void leave_if_lost(std::unique_lock<std::mutex>& lock) {
    if (!lost()) return;
    changed_.wait(lock, [this] { return reading_ == 0; });
    fail(ErrorCode::peer_lost, kLocalGroupOrigin, reason_);
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Offer> offers_;
  int arrived_ = 0, reading_ = 0;
  uint64_t round_ = 0;
  std::string reason_;  // why the group has ended; empty: it has not
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<Meeting> meeting, double timeout)
      : Communicator(rank, meeting->size()), meeting_(std::move(meeting)), timeout_(timeout) {}
  ~LocalCommunicator() override { meeting_->abort(rank(), "its group was freed"); }

  const char* transport() const override { return "local"; }
  void attach(Backend& backend) override {
    require(backend.device().kind == DeviceKind::cpu, ErrorCode::internal, kLocalGroupOrigin,
            "a local group moves memory of the CPU, and rank ", rank(), " trains on ",
            device_name(backend.device()), ": links between the GPUs are missing");
  }

  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override {
    std::vector<size_t> next(static_cast<size_t>(size()), 0);
    meeting_->offer(rank()).sends = sends;
    std::string mismatch;
    {
      const Meeting::Reading reading(*meeting_, rank(), timeout_);
      for (const ReceivePiece& piece : receives) {
        const auto& offered = meeting_->offer(piece.from).sends;
        size_t& at = next[static_cast<size_t>(piece.from)];
        while (at < offered.size() && offered[at].to != rank()) ++at;
        if (at == offered.size() || offered[at].bytes != piece.bytes) {
          mismatch =
              concat("rank ", piece.from, " and rank ", rank(), " exchange different pieces");
          break;
        }
        std::memcpy(piece.data, offered[at++].data, piece.bytes);
      }
    }
    meeting_->meet(rank(), timeout_);
    require(mismatch.empty(), ErrorCode::internal, kLocalGroupOrigin, mismatch);
  }

  std::vector<std::string> host_all_gather(std::string_view bytes) override {
    meeting_->offer(rank()).bytes = bytes;
    std::vector<std::string> all;
    {
      const Meeting::Reading reading(*meeting_, rank(), timeout_);
      for (int peer = 0; peer < size(); ++peer) all.emplace_back(meeting_->offer(peer).bytes);
    }
    meeting_->meet(rank(), timeout_);
    return all;
  }

  void abort(std::string_view reason) noexcept override { meeting_->abort(rank(), reason); }
  void end(std::string_view reason) noexcept override {
    meeting_->end([&] { return std::string(reason); });
  }
  std::string why_ended() override { return meeting_->why_ended(); }
  void come_to(uint64_t exchange) override { meeting_->come_to(rank(), exchange); }
  int rank_behind(uint64_t exchange) override { return meeting_->rank_behind(exchange); }

 private:
  std::shared_ptr<Meeting> meeting_;
  double timeout_;
};

// The groups that somebody is joining.
struct Registry {
  std::mutex mutex;
  std::map<GroupId, std::weak_ptr<Meeting>> groups;
};
Registry& registry() {
  static Registry the;
  return the;
}

}  // namespace

GroupId new_local_group() {
  static std::atomic<uint64_t> made{0};
  GroupId id{};
  const std::string text = concat(kMagic, made.fetch_add(1));
  std::memcpy(id.data(), text.data(), text.size());
  return id;
}

std::unique_ptr<Communicator> join_local_group(const GroupId& id, int rank, int size,
                                               const GroupTimeouts& timeouts) {
  require_rank(rank, size);
  require(std::memcmp(id.data(), kMagic.data(), kMagic.size()) == 0, ErrorCode::invalid_argument,
          kLocalGroupOrigin, "the id is not that of a local group");
  std::shared_ptr<Meeting> meeting;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.groups, [](const auto& each) { return each.second.expired(); });
    meeting = all.groups[id].lock();
    if (!meeting) all.groups[id] = meeting = std::make_shared<Meeting>(size);
  }
  meeting->join(rank, size, timeouts.start);
  return std::make_unique<LocalCommunicator>(rank, std::move(meeting), timeouts.wait);
}

}  // namespace trafo
