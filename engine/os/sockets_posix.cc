#include "engine/os/sockets.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "engine/os/posix_calls.h"

namespace trafo::os {
namespace {

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

#ifdef __APPLE__
// POLLHUP, which is not asked for, says that the other side sends no more as well.
constexpr short kAskPeerEnded = 0, kSaysPeerEnded = POLLHUP;
constexpr int kKeepAliveIdle = TCP_KEEPALIVE;

// A program that is started between the calls inherits the socket.
int quiet_socket(int socket) noexcept {
  if (socket < 0) return socket;
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  set_option(socket, SOL_SOCKET, SO_NOSIGPIPE, 1);
  return socket;
}
int new_socket(int family) noexcept {
  return away_from_streams(quiet_socket(::socket(family, SOCK_STREAM, 0)));
}
int next_connection(int listener) noexcept {
  return quiet_socket(::accept(listener, nullptr, nullptr));
}
#else
constexpr short kAskPeerEnded = POLLRDHUP, kSaysPeerEnded = POLLRDHUP;
constexpr int kKeepAliveIdle = TCP_KEEPIDLE;

int new_socket(int family) noexcept {
  return away_from_streams(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}
int next_connection(int listener) noexcept {
  return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
#endif

short poll_events(unsigned wanted) {
  return static_cast<short>(((wanted & kCanReceive) != 0 ? POLLIN : 0) |
                            ((wanted & kCanSend) != 0 ? POLLOUT : 0) |
                            ((wanted & kPeerEnded) != 0 ? kAskPeerEnded : 0));
}

unsigned happened_events(short events) {
  return ((events & POLLIN) != 0 ? kCanReceive : 0) | ((events & POLLOUT) != 0 ? kCanSend : 0) |
         ((events & kSaysPeerEnded) != 0 ? kPeerEnded : 0) |
         ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0 ? kConnectionEnded : 0);
}

// strerror_r of glibc returns a text, which may be another one; that of musl, as POSIX says, 0.
[[maybe_unused]] const char* text_of_error(const char* said, const char*) {
  return said;
}
[[maybe_unused]] const char* text_of_error(int, const char* written) {
  return written;
}

}  // namespace

int open_socket(int family) noexcept {
  return new_socket(family);
}

void close_socket(int socket) noexcept {
  ::close(socket);
}

int listen_at_address(int socket, const sockaddr* address, socklen_t length, bool both) noexcept {
  constexpr int kBacklog = 1024;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
  return ::bind(socket, address, length) == 0 ? ::listen(socket, kBacklog) : -1;
}

int accept_connection(int listener) noexcept {
  return away_from_streams(next_connection(listener));
}

int begin_connection(int socket, const sockaddr* address, socklen_t length) noexcept {
  return ::connect(socket, address, length);
}

int error_of_connection(int socket) noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

int address_of_socket(int socket, sockaddr* address, socklen_t* length) noexcept {
  return ::getsockname(socket, address, length);
}

int address_of_peer(int socket, sockaddr* address, socklen_t* length) noexcept {
  return ::getpeername(socket, address, length);
}

void prepare_connection(int socket, const KeepAlive& keep_alive) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, kKeepAliveIdle, keep_alive.idle_seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, keep_alive.probe_seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, keep_alive.probes);
}

int64_t unacknowledged_milliseconds([[maybe_unused]] int socket) noexcept {
#ifdef __APPLE__
  return 0;  // not said
#else
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
  return waits ? info.tcpi_last_ack_recv : 0;
#endif
}

ptrdiff_t send_parts(int socket, std::span<const SendPart> parts) noexcept {
  iovec vectors[4];
  msghdr message{};
  message.msg_iov = vectors;
  const size_t count = std::min(parts.size(), std::size(vectors));
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
  for (size_t i = 0; i < count; ++i)
    vectors[i] = {const_cast<void*>(parts[i].data), parts[i].bytes};
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

ptrdiff_t receive_some(int socket, void* bytes, size_t count) noexcept {
  return ::recv(socket, bytes, count, 0);
}

void end_sending(int socket) noexcept {
  ::shutdown(socket, SHUT_WR);
}

int poll_sockets(std::span<PolledSocket> sockets, int milliseconds) {
  std::vector<pollfd> polled;
  for (const PolledSocket& each : sockets)
    polled.push_back({each.socket, poll_events(each.wanted), 0});
  const int count = ::poll(polled.data(), polled.size(), milliseconds);
  for (size_t i = 0; i < sockets.size(); ++i)
    sockets[i].happened = count > 0 ? happened_events(polled[i].revents) : 0;
  return count;
}

std::string socket_error_text(int error) {
  char text[256] = "";
  return text_of_error(::strerror_r(error, text, sizeof text), text);
}

}  // namespace trafo::os
