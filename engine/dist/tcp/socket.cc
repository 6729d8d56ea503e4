#include "engine/dist/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "engine/core/status.h"
#include "engine/core/system_file.h"

namespace trafo::tcp {
namespace {

constexpr int kBacklog = 1024;
// A host that is gone is found out after about 45 seconds.
constexpr int kProbeAfterSeconds = 15, kProbeEverySeconds = 10, kProbes = 3;
constexpr uint32_t kSilentMilliseconds = 45'000;

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

void set_option(const Socket& socket, int level, int name, int value) {
  ::setsockopt(socket.descriptor(), level, name, &value, sizeof value);
}

// Whether the descriptor is ready before the deadline.
bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  while (true) {
    pollfd poller{socket.descriptor(), events, 0};
    const int ready = ::poll(&poller, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
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
  if (descriptor_ >= 0) ::close(descriptor_);
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

namespace {

int new_socket(int family) {
  return away_from_streams(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

Socket listen_at(const std::string& host, uint16_t port) {
  const bool loopback = names_this_host(host);
  int error = 0;
  // At all addresses, one socket of IPv6 serves both; a host may have none.
  for (const int family : {AF_INET6, AF_INET}) {
    if (loopback && (family == AF_INET6) != (host.find(':') != std::string::npos)) continue;
    Socket socket(new_socket(family));
    if (!socket.is_open()) {
      error = errno;
      continue;
    }
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, loopback ? 1 : 0);
    Address address = any_address(family, loopback, port);
    if (::bind(socket.descriptor(), as_sockaddr(address), address.length) == 0 &&
        ::listen(socket.descriptor(), kBacklog) == 0)
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
  require(::getsockname(socket.descriptor(), as_sockaddr(address), &address.length) == 0,
          ErrorCode::io, kTcpOrigin, "a socket has no address: ", error_text(errno));
  return address.port();
}

Address peer_of(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  if (::getpeername(socket.descriptor(), as_sockaddr(address), &address.length) != 0)
    throw Transient{error_text(errno)};
  return address;
}

Socket accept_from(const Socket& listener) {
  return Socket(away_from_streams(
      ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

Socket connect_to(const Address& address, Clock::time_point deadline) {
  Socket socket(new_socket(address.family()));
  if (!socket.is_open()) {
    const int error = errno;
    require(!is_without_descriptors(error), ErrorCode::io, kTcpOrigin, "cannot connect to ",
            address.text(), ": ", error_text(error));
    throw Transient{concat(address.text(), ": ", error_text(error))};
  }
  Address to = address;
  if (::connect(socket.descriptor(), as_sockaddr(to), to.length) == 0) return socket;
  if (errno != EINPROGRESS) throw Transient{concat(address.text(), ": ", error_text(errno))};
  if (!wait_for(socket, POLLOUT, deadline))
    throw Transient{concat(address.text(), ": it does not answer")};
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) throw Transient{concat(address.text(), ": ", error_text(error))};
  return socket;
}

void prepare_for_messages(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeEverySeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// The probes above are for connections with nothing in flight. This is for the others. A
// process that is slow or stopped is not silent: its kernel acknowledges.
bool is_silent(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
  return waits && info.tcpi_last_ack_recv > kSilentMilliseconds;
}

void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw Transient{error_text(errno)};
    if (!wait_for(socket, POLLOUT, deadline)) throw Transient{"it does not answer"};
  }
}

std::string receive_all(const Socket& socket, size_t bytes, Clock::time_point deadline) {
  std::string received(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    const ssize_t count = ::recv(socket.descriptor(), received.data() + at, bytes - at, 0);
    if (count == 0) throw Transient{"it has closed the connection"};
    if (count > 0) {
      at += static_cast<size_t>(count);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw Transient{error_text(errno)};
    if (!wait_for(socket, POLLIN, deadline)) throw Transient{"it does not answer"};
  }
  return received;
}

bool is_without_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

std::string error_text(int error) {
  char text[256] = "";
  const std::string reason = ::strerror_r(error, text, sizeof text);
  if (error != EMFILE) return reason;
  return reason +
         "; each rank has a connection to each other rank, so raise the limit of the "
         "process (ulimit -n)";
}

}  // namespace trafo::tcp
