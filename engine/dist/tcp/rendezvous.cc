#include "engine/dist/tcp/rendezvous.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/core/status.h"
#include "engine/dist/tcp/handshake.h"

namespace trafo::tcp {
namespace {

// A rank waits so much longer than rank 0, which knows who is missing, and says so.
constexpr double kForRankZero = 2;
constexpr double kConnectSeconds = 5;  // one try
constexpr double kRetrySeconds = 20;   // for a rank that listens already
constexpr auto kPause = std::chrono::milliseconds(200);

// A row of the table that rank 0 sends: an address and a port. An address of zeros means the
// address of rank 0 that the reader knows, for ranks of its host that have reached it by loopback.
constexpr size_t kRowBytes = kAddressBytes + sizeof(uint16_t);

std::string table_of(const std::vector<Guest>& guests) {
  std::string table;
  for (const Guest& guest : guests) {
    table += guest.address.is_loopback() ? std::string(kAddressBytes, '\0') : guest.address.bytes();
    const char port[] = {static_cast<char>(guest.hello.port & 0xff),
                         static_cast<char>(guest.hello.port >> 8)};
    table.append(port, sizeof port);
  }
  return table;
}

Address row_of(const std::string& table, uint32_t rank, const Address& root) {
  const std::string_view row = std::string_view(table).substr((rank - 1) * kRowBytes, kRowBytes);
  Address address = root;
  if (row[0] != 0) {
    const auto read = Address::of_bytes(row.substr(0, kAddressBytes));
    require(read.has_value(), ErrorCode::internal, kTcpOrigin,
            "rank 0 has sent no address of rank ", rank);
    address = *read;
  }
  address.set_port(static_cast<uint16_t>(static_cast<uint8_t>(row[kAddressBytes]) |
                                         static_cast<uint8_t>(row[kAddressBytes + 1]) << 8));
  return address;
}

// Tries until `deadline`. use() throws Transient where another try may help. The errors begin with
// `late`, or if another try does not help with `where`.
template <class Try>
auto retry(Clock::time_point deadline, const std::string& late, const std::string& where, Try use) {
  while (true) {
    try {
      return use();
    } catch (const Transient& failed) {
      if (Clock::now() + kPause >= deadline)
        fail(ErrorCode::peer_lost, kTcpOrigin, late, ": ", failed.reason);
    } catch (const Error& refused) {
      if (refused.code() == ErrorCode::peer_lost) throw;
      fail(refused.code(), refused.origin(), where, ": ", refused.message());
    }
    std::this_thread::sleep_for(kPause);
  }
}

struct Called {
  Socket socket, listener;
  std::string answer;
};

// Calls rank 0 at each of its addresses.
Called call_root(const Meeting& meeting, Clock::time_point deadline) {
  std::string reasons;
  for (const Address& address : resolve(meeting.host, meeting.port)) {
    Socket socket;
    try {
      socket = connect_to(address, std::min(deadline, after(kConnectSeconds)));
    } catch (const Transient& failed) {
      reasons += (reasons.empty() ? "" : "; ") + failed.reason;
      continue;
    }
    Called called{std::move(socket), listen_at(meeting.host, 0), {}};
    const Hello hello{meeting.rank, 0, meeting.size, port_of(called.listener), meeting.release};
    try {
      called.answer = call(called.socket, meeting.key, hello, deadline);
    } catch (const Transient& failed) {
      throw Transient{concat(address.text(), ": ", failed.reason)};
    }
    return called;
  }
  throw Transient{reasons};
}

}  // namespace

std::vector<Socket> meet(Meeting meeting) {
  const uint32_t rank = meeting.rank, size = meeting.size;
  std::vector<Socket> peers(size);
  if (size == 1) return peers;
  const std::string place = concat(meeting.host, ", port ", meeting.port);
  auto deadline = after(meeting.seconds);
  std::string table;
  Socket listener = std::move(meeting.listener);
  if (rank == 0) {
    if (!listener.is_open()) listener = listen_at(meeting.host, meeting.port);
  } else {
    deadline = after(meeting.seconds + kForRankZero);
    Called called = retry(
        deadline, concat("rank 0 has not joined within ", meeting.seconds, " seconds at ", place),
        place, [&] { return call_root(meeting, deadline); });
    peers[0] = std::move(called.socket);
    listener = std::move(called.listener);
    table = called.answer;
    require(table.size() == (size - 1) * kRowBytes, ErrorCode::internal, kTcpOrigin,
            "rank 0 has sent no table of ", size, " ranks");
    const Address root = peer_of(peers[0]);
    for (uint32_t peer = 1; peer < rank; ++peer) {
      const Address address = row_of(table, peer, root);
      const auto reachable = after(kRetrySeconds);
      const std::string where =
          concat("rank ", rank, " cannot reach rank ", peer, " at ", address.text());
      peers[peer] = retry(reachable, where, where, [&] {
        Socket socket = connect_to(address, std::min(reachable, after(kConnectSeconds)));
        call(socket, meeting.key, {rank, peer, size, 0, meeting.release}, deadline);
        return socket;
      });
    }
  }
  if (rank + 1 < size) {
    Host host(std::move(listener), meeting.key, rank, size, meeting.release);
    std::vector<Guest> guests = host.receive_guests(deadline, meeting.seconds);
    Host::answer(guests, rank == 0 ? table_of(guests) : std::string(), deadline);
    for (Guest& guest : guests) peers[guest.hello.from] = std::move(guest.socket);
  }
  for (const Socket& peer : peers)
    if (peer.is_open()) prepare_for_messages(peer);
  return peers;
}

}  // namespace trafo::tcp
