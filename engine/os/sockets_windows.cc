#include "engine/os/sockets.h"

#include <mstcpip.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <vector>

namespace trafo::os {
namespace {

struct SocketError {
  int system, number;
};
constexpr SocketError kSocketErrors[] = {
    {WSAEWOULDBLOCK, EAGAIN},
    {WSAEINPROGRESS, EINPROGRESS},
    {WSAEINTR, EINTR},
    {WSAEACCES, EACCES},
    {WSAEMFILE, EMFILE},
    {WSAENOBUFS, ENOBUFS},
    {WSAEADDRINUSE, EADDRINUSE},
    {WSAEADDRNOTAVAIL, EADDRNOTAVAIL},
    {WSAENETUNREACH, ENETUNREACH},
    {WSAEHOSTUNREACH, EHOSTUNREACH},
    {WSAECONNRESET, ECONNRESET},
    {WSAECONNABORTED, ECONNRESET},
    {WSAESHUTDOWN, EPIPE},
    {WSAETIMEDOUT, ETIMEDOUT},
    {WSAECONNREFUSED, ECONNREFUSED},
    {WSAENOTCONN, ENOTCONN},
    {WSAEAFNOSUPPORT, EAFNOSUPPORT},
    {WSAEINVAL, EINVAL},
};

int errno_of(int error) {
  for (const SocketError& each : kSocketErrors)
    if (each.system == error) return each.number;
  return error == 0 ? 0 : EIO;
}

int fail_with_socket_error() {
  errno = errno_of(WSAGetLastError());
  return -1;
}

// Handles have few bits, and INVALID_SOCKET becomes -1.
SOCKET system_socket(int socket) {
  return static_cast<SOCKET>(static_cast<intptr_t>(socket));
}

int without_waiting(SOCKET opened) {
  if (opened == INVALID_SOCKET) return fail_with_socket_error();
  u_long on = 1;
  ioctlsocket(opened, FIONBIO, &on);
  SetHandleInformation(reinterpret_cast<HANDLE>(opened), HANDLE_FLAG_INHERIT, 0);
  return static_cast<int>(opened);
}

void set_option(int socket, int level, int name, int value) {
  setsockopt(system_socket(socket), level, name, reinterpret_cast<const char*>(&value),
             sizeof value);
}

// Winsock wants to be started once in a process.
bool start_winsock() {
  static const int result = [] {
    WSADATA data;
    return WSAStartup(MAKEWORD(2, 2), &data);
  }();
  return result == 0;
}
const bool winsock_is_started = start_winsock();

short poll_events(unsigned wanted) {
  return static_cast<short>(((wanted & (kCanReceive | kPeerEnded)) != 0 ? POLLRDNORM : 0) |
                            ((wanted & kCanSend) != 0 ? POLLWRNORM : 0));
}

unsigned happened_events(short events, unsigned wanted) {
  const bool ended = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  return ((events & POLLRDNORM) != 0 ? wanted & kCanReceive : 0) |
         ((events & POLLWRNORM) != 0 ? kCanSend : 0) | (ended ? kConnectionEnded : 0) |
         ((events & POLLHUP) != 0 ? wanted & kPeerEnded : 0);
}

}  // namespace

int open_socket(int family) noexcept {
  return without_waiting(WSASocketW(family, SOCK_STREAM, IPPROTO_TCP, nullptr, 0,
                                    WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT));
}

void close_socket(int socket) noexcept {
  closesocket(system_socket(socket));
}

// SO_REUSEADDR would let two processes listen at one port here; a port of a dead process is free.
int listen_at_address(int socket, const sockaddr* address, socklen_t length, bool both) noexcept {
  set_option(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1);
  if (address->sa_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
  if (bind(system_socket(socket), address, length) != 0 ||
      listen(system_socket(socket), SOMAXCONN) != 0)
    return fail_with_socket_error();
  return 0;
}

int accept_connection(int listener) noexcept {
  return without_waiting(accept(system_socket(listener), nullptr, nullptr));
}

int begin_connection(int socket, const sockaddr* address, socklen_t length) noexcept {
  if (connect(system_socket(socket), address, length) == 0) return 0;
  fail_with_socket_error();
  if (errno == EAGAIN) errno = EINPROGRESS;
  return -1;
}

int error_of_connection(int socket) noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(system_socket(socket), SOL_SOCKET, SO_ERROR, reinterpret_cast<char*>(&error), &size);
  return errno_of(error);
}

int address_of_socket(int socket, sockaddr* address, socklen_t* length) noexcept {
  return getsockname(system_socket(socket), address, length) == 0 ? 0 : fail_with_socket_error();
}

int address_of_peer(int socket, sockaddr* address, socklen_t* length) noexcept {
  return getpeername(system_socket(socket), address, length) == 0 ? 0 : fail_with_socket_error();
}

void prepare_connection(int socket, const KeepAlive& keep_alive) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  tcp_keepalive values{};
  values.onoff = 1;
  values.keepalivetime = static_cast<u_long>(keep_alive.idle_seconds) * 1000;
  values.keepaliveinterval = static_cast<u_long>(keep_alive.probe_seconds) * 1000;
  DWORD unused = 0;
  WSAIoctl(system_socket(socket), SIO_KEEPALIVE_VALS, &values, sizeof values, nullptr, 0, &unused,
           nullptr, nullptr);
}

// The system itself ends a connection whose bytes nobody acknowledges, after about 20 seconds.
int64_t unacknowledged_milliseconds(int) noexcept {
  return 0;
}

ptrdiff_t send_parts(int socket, std::span<const SendPart> parts) noexcept {
  WSABUF buffers[4];
  DWORD count = 0, sent = 0;
  for (const SendPart& part : parts) {
    if (count == std::size(buffers)) break;
    buffers[count++] = {static_cast<ULONG>(std::min<size_t>(part.bytes, size_t{1} << 30)),
                        static_cast<char*>(const_cast<void*>(part.data))};
  }
  if (WSASend(system_socket(socket), buffers, count, &sent, 0, nullptr, nullptr) != 0)
    return fail_with_socket_error();
  return sent;
}

ptrdiff_t receive_some(int socket, void* bytes, size_t count) noexcept {
  const int received = recv(system_socket(socket), static_cast<char*>(bytes),
                            static_cast<int>(std::min<size_t>(count, size_t{1} << 30)), 0);
  return received < 0 ? fail_with_socket_error() : received;
}

void end_sending(int socket) noexcept {
  shutdown(system_socket(socket), SD_SEND);
}

int poll_sockets(std::span<PolledSocket> sockets, int milliseconds) {
  std::vector<WSAPOLLFD> polled;
  std::vector<size_t> places;
  for (size_t i = 0; i < sockets.size(); ++i) {
    sockets[i].happened = 0;
    if (sockets[i].socket < 0) continue;  // the system would refuse all
    polled.push_back({system_socket(sockets[i].socket), poll_events(sockets[i].wanted), 0});
    places.push_back(i);
  }
  if (polled.empty()) {
    Sleep(static_cast<DWORD>(milliseconds));
    return 0;
  }
  const int count = WSAPoll(polled.data(), static_cast<ULONG>(polled.size()), milliseconds);
  if (count < 0) return fail_with_socket_error();
  for (size_t i = 0; i < polled.size(); ++i)
    sockets[places[i]].happened = happened_events(polled[i].revents, sockets[places[i]].wanted);
  return count;
}

std::string socket_error_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace trafo::os
