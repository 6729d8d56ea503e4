#include "engine/dist/tcp_group.h"

#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "engine/core/argument_error.h"
#include "engine/core/plugin_library.h"
#include "engine/core/sha256.h"
#include "engine/dist/process_group.h"
#include "engine/dist/tcp/plugin_api.h"
#include "engine/os/shared_library.h"

namespace trafo {
namespace {

using process::GroupState;
using process::ProcessWorld;

constexpr const char* kTcpGroupOrigin = "tcp";
constexpr PluginLibrary kTcpPlugin{kTcpGroupOrigin, "TCP plugin",
                                   "libtrafo_tcp" TRAFO_LIBRARY_SUFFIX, "TRAFO_TCP_LIBRARY",
                                   nullptr};
constexpr size_t kLeastToken = 32, kMostToken = 4096;
constexpr size_t kLeastDifferent = 10;  // 32 random bytes, or 64 hexadecimal digits, have more

// Contents of an id: magic, key, port and host, one after the other.
constexpr std::string_view kTcpMagic = "trafo tcp ids";
constexpr size_t kKeyAt = 14, kPortAt = kKeyAt + sizeof(Sha256), kHostAt = kPortAt + 2;
constexpr size_t kMostHost = sizeof(GroupId) - kHostAt - 1;

struct Master {
  std::string host;
  uint16_t port = 0;
};

GroupId id_of(const Master& master, const Sha256& key) {
  GroupId id{};
  std::memcpy(id.data(), kTcpMagic.data(), kTcpMagic.size());
  std::memcpy(id.data() + kKeyAt, key.data(), key.size());
  std::memcpy(id.data() + kPortAt, &master.port, sizeof master.port);
  std::memcpy(id.data() + kHostAt, master.host.data(), master.host.size());
  return id;
}

Master master_of(const GroupId& id) {
  Master master;
  std::memcpy(&master.port, id.data() + kPortAt, sizeof master.port);
  const auto* host = reinterpret_cast<const char*>(id.data() + kHostAt);
  master.host.assign(host, strnlen(host, kMostHost));
  return master;
}

Master parsed(std::string_view text) {
  const auto require_form = [&](bool holds) {
    require(holds, ErrorCode::invalid_argument, kTcpGroupOrigin,
            "the master must be HOST:PORT or [IPv6]:PORT, got '", text, "'");
  };
  const size_t colon = text.rfind(':');
  require_form(colon != std::string_view::npos && colon > 0);
  Master master;
  master.host = text.substr(0, colon);
  if (master.host.front() == '[') {
    require_form(master.host.size() > 2 && master.host.back() == ']');
    master.host = master.host.substr(1, master.host.size() - 2);
  } else {
    require_form(master.host.find(':') == std::string::npos);
  }
  require_form(master.host.find('\0') == std::string::npos);
  require(master.host.size() <= kMostHost, ErrorCode::invalid_argument, kTcpGroupOrigin,
          "the name of the master's host may have ", kMostHost, " bytes, got ", master.host.size(),
          "; its address is shorter");
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), master.port);
  require_form(error == std::errc() && end == port.data() + port.size());
  return master;
}

const tcp::PluginTable& the_plugin() {
  static const tcp::PluginTable table = [] {
    const OpenPlugin open = open_plugin(kTcpPlugin);
    const auto entry =
        reinterpret_cast<tcp::PluginEntry>(plugin_symbol(kTcpPlugin, open, tcp::kPluginEntryName));
    tcp::PluginTable opened{};
    entry(&opened);
    require_same_release(kTcpPlugin, open, opened.version, tcp::kPluginVersion,
                         opened.engine_version);
    return opened;
  }();
  return table;
}

struct WhyText {
  char text[1024] = "";
  tcp::Why why() { return {text, sizeof text}; }
  void check(int32_t code) const {
    if (code != 0) fail(static_cast<ErrorCode>(code), kTcpGroupOrigin, text);
  }
};

// The ports that this process has taken for groups that rank 0 has not joined.
class Listeners {
 public:
  static Listeners& the() {
    static auto* const all = new Listeners;
    return *all;
  }
  void add(const GroupId& id, tcp::Listener* listener) {
    const std::lock_guard lock(mutex_);
    open_[id] = listener;
  }
  tcp::Listener* take(const GroupId& id) {  // null without one
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(id);
    if (found == open_.end()) return nullptr;
    tcp::Listener* listener = found->second;
    open_.erase(found);
    return listener;
  }

 private:
  std::mutex mutex_;
  std::map<GroupId, tcp::Listener*> open_;
};

class TcpWire final : public process::ProcessWire {
 public:
  TcpWire(const tcp::PluginTable& plugin, const tcp::Setup& setup)
      : plugin_(plugin), rank_(setup.rank), size_(setup.size) {
    WhyText why;
    why.check(plugin_.open(&setup, &wire_, why.why()));
  }
  ~TcpWire() override { plugin_.close(wire_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  process::Request* send(const void* data, size_t bytes, int peer, process::Tag tag) override {
    tcp::Request* request = nullptr;
    WhyText why;
    why.check(
        plugin_.send(wire_, data, static_cast<int64_t>(bytes), peer, tag, &request, why.why()));
    return reinterpret_cast<process::Request*>(request);
  }
  process::Request* receive(void* data, size_t bytes, int peer, process::Tag tag) override {
    tcp::Request* request = nullptr;
    WhyText why;
    why.check(
        plugin_.receive(wire_, data, static_cast<int64_t>(bytes), peer, tag, &request, why.why()));
    return reinterpret_cast<process::Request*>(request);
  }
  bool test(process::Request* request, int64_t* received) override {
    int32_t done = 0;
    WhyText why;
    why.check(
        plugin_.test(wire_, reinterpret_cast<tcp::Request*>(request), &done, received, why.why()));
    return done != 0;
  }
  std::optional<Message> probe(int peer, process::Tag tag) override {
    Message message{tcp::kNoPeer, 0};
    WhyText why;
    why.check(plugin_.probe(wire_, peer, tag, &message.from, &message.bytes, why.why()));
    if (message.from == tcp::kNoPeer) return std::nullopt;
    return message;
  }
  void wait(int times) override {
    constexpr int32_t kMilliseconds = 10;
    WhyText why;
    why.check(plugin_.move(wire_, times == 0 ? 0 : kMilliseconds, why.why()));
  }
  void abandon() noexcept override {
    WhyText why;
    plugin_.abandon(wire_, why.why());
  }
  std::optional<Lost> next_lost() override {
    WhyText why;
    int32_t peer = tcp::kNoPeer;
    why.check(plugin_.lost(wire_, &peer, why.why()));
    if (peer == tcp::kNoPeer) return std::nullopt;
    return Lost{peer, why.text};
  }

 private:
  const tcp::PluginTable& plugin_;
  const int rank_, size_;
  tcp::Wire* wire_ = nullptr;
};

struct OwnWorld {
  std::unique_ptr<ProcessWorld> world;
};
// The world goes after the group has left it.
class TcpCommunicator final : private OwnWorld, public process::ProcessCommunicator {
 public:
  TcpCommunicator(std::unique_ptr<ProcessWorld> own, const GroupTimeouts& timeouts)
      : OwnWorld{std::move(own)},
        ProcessCommunicator("tcp", std::make_shared<GroupState>(*world, 1, timeouts)) {}
};

// A connection that was recorded shows whether a guess of the token is right.
void check_token(std::string_view token) {
  require_argument(token.size() >= kLeastToken && token.size() <= kMostToken, kTcpGroupOrigin,
                   "token", " must have ", kLeastToken, " to ", kMostToken,
                   " bytes that nobody can guess, got ", token.size());
  const size_t different = std::set<char>(token.begin(), token.end()).size();
  require_argument(different >= kLeastDifferent, kTcpGroupOrigin, "token",
                   " can be guessed: it has ", different,
                   " different bytes; take 32 random ones, as openssl rand -hex 32 writes them");
}

}  // namespace

GroupId tcp_group_id(std::string_view master, std::string_view token) {
  Master place = parsed(master);
  if (!token.empty()) check_token(token);
  require(token.empty() || place.port != 0, ErrorCode::invalid_argument, kTcpGroupOrigin,
          "with a token the port must not be 0: each process would take another one");
  const Sha256 key = token.empty() ? random_bytes() : sha256(token);
  if (place.port != 0) return id_of(place, key);
  int32_t port = 0;
  tcp::Listener* listener = nullptr;
  WhyText why;
  why.check(the_plugin().listen(place.host.c_str(), &port, &listener, why.why()));
  place.port = static_cast<uint16_t>(port);
  const GroupId id = id_of(place, key);
  Listeners::the().add(id, listener);
  return id;
}

GroupId new_tcp_group() {
  return tcp_group_id("127.0.0.1:0", {});
}

bool is_tcp_group_id(const GroupId& id) {
  return std::memcmp(id.data(), kTcpMagic.data(), kTcpMagic.size()) == 0;
}

std::unique_ptr<Communicator> join_tcp_group(const GroupId& id, int rank, int size,
                                             const GroupTimeouts& timeouts) {
  require_rank(rank, size);
  require(is_tcp_group_id(id), ErrorCode::invalid_argument, kTcpGroupOrigin,
          "the id is not that of a group over TCP");
  const tcp::PluginTable& plugin = the_plugin();
  const Master master = master_of(id);
  auto world = std::make_unique<ProcessWorld>(kTcpGroupOrigin, true);
  constexpr double kUnlimited = 1e9;  // every wait inside has its limit
  world->thread().run(
      [&] {
        tcp::Setup setup{};
        setup.host = master.host.c_str();
        setup.port = master.port;
        setup.listener = rank == 0 ? Listeners::the().take(id) : nullptr;
        setup.key = reinterpret_cast<const uint8_t*>(id.data()) + kKeyAt;
        setup.rank = rank;
        setup.size = size;
        setup.seconds = timeouts.start;
        world->begin(std::make_unique<TcpWire>(plugin, setup));
      },
      kUnlimited);
  auto group = std::make_unique<TcpCommunicator>(std::move(world), timeouts);
  group->wait_for_all(timeouts);
  return group;
}

}  // namespace trafo
