#include "engine/dist/tcp/socket.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "engine/core/status.h"

namespace trafo::tcp {
namespace {

// A host that is gone is found out after about 45 seconds.
constexpr os::KeepAlive kKeepAlive{15, 10, 3};
constexpr int64_t kSilentMilliseconds = 45'000;

sockaddr* as_sockaddr(Address& address) {
  return reinterpret_cast<sockaddr*>(&address.storage);
}

Address any_address(int family, bool loopback, uint16_t port) {
  Address address;
  if (family == AF_INET) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    address.length = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    address.length = sizeof v6;
  }
  address.set_port(port);
  return address;
}

// Whether the descriptor is ready before the deadline.
bool wait_for(const Socket& socket, unsigned events, Clock::time_point deadline) {
  while (true) {
    os::PolledSocket polled[1] = {{socket.descriptor(), events}};
    if (os::poll_sockets(polled, milliseconds_until(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_until(Clock::time_point deadline, int most) {
  const double left = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp(std::ceil(left), 0.0, static_cast<double>(most)));
}

Socket::~Socket() {
  if (descriptor_ >= 0) os::close_socket(descriptor_);
}

uint16_t Address::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                                   : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

void Address::set_port(uint16_t port) {
  if (family() == AF_INET)
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

std::string Address::bytes() const {
  std::string bytes(kAddressBytes, '\0');
  if (family() == AF_INET) {
    bytes[0] = 4;
    std::memcpy(&bytes[1], &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
    return bytes;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&v6);
  bytes[0] = is_mapped ? 4 : 6;
  std::memcpy(&bytes[1], v6.s6_addr + (is_mapped ? 12 : 0), is_mapped ? 4 : 16);
  return bytes;
}

std::optional<Address> Address::of_bytes(std::string_view bytes) {
  if (bytes.size() != kAddressBytes || (bytes[0] != 4 && bytes[0] != 6)) return std::nullopt;
  Address address = any_address(bytes[0] == 4 ? AF_INET : AF_INET6, false, 0);
  if (bytes[0] == 4)
    std::memcpy(&reinterpret_cast<sockaddr_in&>(address.storage).sin_addr, &bytes[1], 4);
  else
    std::memcpy(&reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr, &bytes[1], 16);
  return address;
}

bool Address::is_loopback() const {
  const std::string all = bytes();
  if (all[0] == 4) return all[1] == 127;
  return std::memcmp(&all[1], &in6addr_loopback, 16) == 0;
}

std::string Address::text() const {
  const std::string all = bytes();
  char number[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(all[0] == 4 ? AF_INET : AF_INET6, &all[1], number, sizeof number);
  return all[0] == 4 ? concat(number, ":", port()) : concat("[", number, "]:", port());
}

std::vector<Address> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const int result = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  if (result != 0) throw Transient{concat(host, ": ", ::gai_strerror(result))};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(raw, ::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* each = found.get(); each; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    address.set_port(port);
    addresses.push_back(address);
  }
  if (addresses.empty()) throw Transient{host + " has no address"};
  return addresses;
}

bool names_this_host(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Socket listen_at(const std::string& host, uint16_t port) {
  const bool loopback = names_this_host(host);
  int error = 0;
  // At all addresses, one socket of IPv6 serves both; a host may have none.
  for (const int family : {AF_INET6, AF_INET}) {
    if (loopback && (family == AF_INET6) != (host.find(':') != std::string::npos)) continue;
    Socket socket(os::open_socket(family));
    if (!socket.is_open()) {
      error = errno;
      continue;
    }
    Address address = any_address(family, loopback, port);
    if (os::listen_at_address(socket.descriptor(), as_sockaddr(address), address.length,
                              !loopback) == 0)
      return socket;
    error = errno;
    if (error == EADDRINUSE || error == EACCES) break;
  }
  fail(ErrorCode::io, kTcpOrigin, "cannot listen at ", host, ", port ", port, ": ",
       error_text(error));
}

uint16_t port_of(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  require(os::address_of_socket(socket.descriptor(), as_sockaddr(address), &address.length) == 0,
          ErrorCode::io, kTcpOrigin, "a socket has no address: ", error_text(errno));
  return address.port();
}

Address peer_of(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  if (os::address_of_peer(socket.descriptor(), as_sockaddr(address), &address.length) != 0)
    throw Transient{error_text(errno)};
  return address;
}

Socket accept_from(const Socket& listener) {
  return Socket(os::accept_connection(listener.descriptor()));
}

Socket connect_to(const Address& address, Clock::time_point deadline) {
  Socket socket(os::open_socket(address.family()));
  if (!socket.is_open()) {
    const int error = errno;
    require(!is_without_descriptors(error), ErrorCode::io, kTcpOrigin, "cannot connect to ",
            address.text(), ": ", error_text(error));
    throw Transient{concat(address.text(), ": ", error_text(error))};
  }
  Address to = address;
  if (os::begin_connection(socket.descriptor(), as_sockaddr(to), to.length) == 0) return socket;
  if (errno != EINPROGRESS) throw Transient{concat(address.text(), ": ", error_text(errno))};
  if (!wait_for(socket, os::kCanSend, deadline))
    throw Transient{concat(address.text(), ": it does not answer")};
  const int error = os::error_of_connection(socket.descriptor());
  if (error != 0) throw Transient{concat(address.text(), ": ", error_text(error))};
  return socket;
}

void prepare_for_messages(const Socket& socket) {
  os::prepare_connection(socket.descriptor(), kKeepAlive);
}

// The probes above are for connections with nothing in flight. This is for the others. A
// process that is slow or stopped is not silent: its kernel acknowledges.
bool is_silent(const Socket& socket) {
  return os::unacknowledged_milliseconds(socket.descriptor()) > kSilentMilliseconds;
}

void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const os::SendPart part[1] = {{bytes.data(), bytes.size()}};
    const ptrdiff_t sent = os::send_parts(socket.descriptor(), part);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw Transient{error_text(errno)};
    if (!wait_for(socket, os::kCanSend, deadline)) throw Transient{"it does not answer"};
  }
}

std::string receive_all(const Socket& socket, size_t bytes, Clock::time_point deadline) {
  std::string received(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    const ptrdiff_t count = os::receive_some(socket.descriptor(), received.data() + at, bytes - at);
    if (count == 0) throw Transient{"it has closed the connection"};
    if (count > 0) {
      at += static_cast<size_t>(count);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw Transient{error_text(errno)};
    if (!wait_for(socket, os::kCanReceive, deadline)) throw Transient{"it does not answer"};
  }
  return received;
}

bool is_without_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

std::string error_text(int error) {
  const std::string reason = os::socket_error_text(error);
  if (error != EMFILE) return reason;
  return reason +
         "; each rank has a connection to each other rank, so raise the limit of the "
         "process (ulimit -n)";
}

}  // namespace trafo::tcp
