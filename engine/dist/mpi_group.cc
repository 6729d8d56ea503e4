#include "engine/dist/mpi_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "engine/core/plugin_library.h"
#include "engine/dist/mpi/plugin_api.h"
#include "engine/dist/process_group.h"

namespace trafo {
namespace {

using process::after;
using process::Clock;
using process::GroupState;
using process::kGrace;
using process::kStuckSeconds;
using process::Notice;
using process::ProcessWorld;

constexpr const char* kMpiOrigin = "mpi";
constexpr std::string_view kMpiMagic = "trafo mpi world";
constexpr PluginLibrary kMpiPlugin{kMpiOrigin, "MPI plugin", "libtrafo_mpi.so", "TRAFO_MPI_LIBRARY",
                                   nullptr};

// MPI by the table of its plugin. MPI may block inside a call when a process is dead or hung.
class MpiWire final : public process::ProcessWire {
 public:
  // Opens the plugin and initialises MPI, unless the program has.
  MpiWire() {
    const OpenPlugin open = open_plugin(kMpiPlugin);
    const auto entry =
        reinterpret_cast<mpi::PluginEntry>(plugin_symbol(kMpiPlugin, open, mpi::kPluginEntryName));
    entry(&table_);
    require_same_release(kMpiPlugin, open, table_.version, mpi::kPluginVersion,
                         table_.engine_version);
    if (table_.start(&rank_, &size_, &is_ours_, why_.why()) != 0)
      fail(ErrorCode::unsupported, kMpiOrigin, why_.text);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_ours() const { return is_ours_; }

  process::Request* send(const void* data, size_t bytes, int peer, process::Tag tag) override {
    mpi::Request* request = nullptr;
    check(table_.send(data, static_cast<int64_t>(bytes), peer, tag, &request, why_.why()));
    return reinterpret_cast<process::Request*>(request);
  }
  process::Request* receive(void* data, size_t bytes, int peer, process::Tag tag) override {
    mpi::Request* request = nullptr;
    check(table_.receive(data, static_cast<int64_t>(bytes), peer, tag, &request, why_.why()));
    return reinterpret_cast<process::Request*>(request);
  }
  bool test(process::Request* request, int64_t* received) override {
    int32_t done = 0;
    check(table_.test(reinterpret_cast<mpi::Request*>(request), &done, received, why_.why()));
    return done != 0;
  }
  std::optional<Message> probe(int peer, process::Tag tag) override {
    Message message{mpi::kNoPeer, 0};
    check(table_.probe(peer, tag, &message.from, &message.bytes, why_.why()));
    if (message.from == mpi::kNoPeer) return std::nullopt;
    return message;
  }
  // MPI moves bytes when it is asked. Waits a little longer each time.
  void wait(int times) override {
    constexpr int kYields = 50, kShortest = 20, kLongest = 500;  // microseconds
    if (times < kYields) {
      std::this_thread::yield();
      return;
    }
    const int doublings = std::min(times - kYields, 10);
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::min(kLongest, kShortest << doublings)));
  }
  void abandon() noexcept override {}  // MPI is not called any more
  void finish() { check(table_.finish(why_.why())); }

 private:
  void check(int32_t result) {
    if (result != 0) fail(ErrorCode::peer_lost, kMpiOrigin, why_.text);
  }

  struct WhyText {
    char text[512] = "";
    mpi::Why why() { return {text, sizeof text}; }
  };
  mpi::PluginTable table_{};
  WhyText why_;
  int32_t rank_ = 0, size_ = 0, is_ours_ = 0;
};

// The one of this process. Never destroyed: a thread may be inside MPI.
struct MpiJob {
  ProcessWorld world{kMpiOrigin, false};
  MpiWire* wire = nullptr;             // of the world, once MPI is initialised
  std::atomic<bool> in_group = false;  // the process is in one group at a time
  // The last group that it joined. Groups are joined and MPI is ended one after the other.
  std::shared_ptr<GroupState> last;
  uint32_t groups = 0;
};
MpiJob& the_job() {
  static auto* const job = new MpiJob;  // used at exit
  return *job;
}

struct InGroup {
  ~InGroup() { the_job().in_group = false; }
};
class MpiCommunicator final : private InGroup, public process::ProcessCommunicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<GroupState> state)
      : ProcessCommunicator("mpi", std::move(state)) {}
};

// At the end of the process, from exit().
void finalize_at_exit() {
  try {
    finalize_mpi();
  } catch (const std::exception&) {
    // The launcher sees that MPI was not finalised, and ends the others. They have a moment to say
    // why they stop.
    std::this_thread::sleep_for(std::chrono::duration<double>(kGrace));
  }
}

void start_mpi(double seconds) {
  MpiJob& job = the_job();
  const bool started = job.world.thread().run(
      [&job] {
        if (job.world.has_begun()) return;
        auto wire = std::make_unique<MpiWire>();
        job.wire = wire.get();
        job.world.begin(std::move(wire));
      },
      seconds);
  if (!started) {
    job.world.end(concat("MPI_Init has not ended within ", seconds,
                         " seconds: not every process of the job has called it"));
    job.world.fail_if_ended();
  }
  static const bool registered = job.wire->is_ours() && std::atexit(finalize_at_exit) == 0;
  (void)registered;
}

}  // namespace

GroupId mpi_group_id() {
  GroupId id{};
  std::memcpy(id.data(), kMpiMagic.data(), kMpiMagic.size());
  return id;
}

std::unique_ptr<Communicator> join_mpi_group(const GroupId& id, int rank, int size,
                                             const GroupTimeouts& timeouts) {
  const bool from_mpi = rank == -1 && size == 0;
  if (!from_mpi) require_rank(rank, size);
  require(id == mpi_group_id(), ErrorCode::invalid_argument, kMpiOrigin,
          "the id is not that of a group of MPI");
  MpiJob& job = the_job();
  ProcessWorld& world = job.world;
  world.fail_if_ended();
  require(!job.in_group.exchange(true), ErrorCode::invalid_argument, kMpiOrigin,
          "this process has joined a group of MPI already");
  try {
    start_mpi(timeouts.start);
    require(from_mpi || size == world.size(), ErrorCode::invalid_argument, kMpiOrigin,
            "the group has ", size, " ranks, the job of MPI ", world.size(), " processes");
    require(from_mpi || rank == world.rank(), ErrorCode::invalid_argument, kMpiOrigin,
            "the rank is ", rank, ", that of MPI is ", world.rank());
    job.last = std::make_shared<GroupState>(world, ++job.groups, timeouts);
    auto group = std::make_unique<MpiCommunicator>(job.last);
    group->wait_for_all(timeouts);
    return group;
  } catch (...) {
    job.in_group = false;
    throw;
  }
}

void finalize_mpi() {
  MpiJob& job = the_job();
  ProcessWorld& world = job.world;
  world.fail_if_ended();
  if (!world.has_begun() || !job.wire->is_ours()) return;
  const std::shared_ptr<GroupState> last = job.last;
  if (last && last->in_call) world.end("the process ends while a rank is in a call");
  world.fail_if_ended();
  const double seconds = last ? last->timeout : GroupTimeouts{}.wait;
  const bool ended = world.thread().run(
      [&world, &job, seconds, last] {
        world.tell({Notice::goodbye, last ? last->number : 0, last ? last->calls : 0,
                    concat("rank ", world.rank(), " has left: it has ended MPI"), world.rank()});
        const auto deadline = after(seconds);
        int missing = 0;
        const auto all_say_goodbye = [&] {
          world.progress();
          std::vector<bool> gone(static_cast<size_t>(world.size()));
          gone[static_cast<size_t>(world.rank())] = true;
          for (const Notice& notice : world.notices()) {
            if (notice.kind == Notice::goodbye) gone[static_cast<size_t>(notice.from)] = true;
            require(notice.kind == Notice::goodbye || notice.kind == Notice::freed,
                    ErrorCode::peer_lost, kMpiOrigin, notice.text);
          }
          missing = static_cast<int>(std::find(gone.begin(), gone.end(), false) - gone.begin());
          return missing == world.size();
        };
        for (int times = 0; !all_say_goodbye(); world.wait(times++))
          require(Clock::now() < deadline, ErrorCode::peer_lost, kMpiOrigin, "rank ", missing,
                  " has not ended MPI within ", seconds, " seconds");
        world.flush();
        world.end("MPI has been finalised");
        job.wire->finish();
      },
      seconds + kStuckSeconds);
  if (!ended) world.end("MPI_Finalize has not ended");
  require(ended, ErrorCode::peer_lost, kMpiOrigin, "MPI_Finalize has not ended within ",
          seconds + kStuckSeconds, " seconds");
}

}  // namespace trafo
