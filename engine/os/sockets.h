// TCP of the system: connections that never block, and waiting for many of them. Programs that are
// started do not inherit them. Functions return -1 with an errno on failure, on Windows as well.
// Addresses are those of the system's headers, which are included here.
#pragma once

#ifdef _WIN32
#include <winsock2.h>
// The order matters.
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trafo::os {

// AF_INET or AF_INET6.
int open_socket(int family) noexcept;
void close_socket(int socket) noexcept;
// Accepts both families if `both`; reuses a port that a dead process had.
int listen_at_address(int socket, const sockaddr* address, socklen_t length, bool both) noexcept;
int accept_connection(int listener) noexcept;
// 0: connected; EINPROGRESS: it can be written to when it is connected or has failed.
int begin_connection(int socket, const sockaddr* address, socklen_t length) noexcept;
int error_of_connection(int socket) noexcept;  // an errno; 0: it is connected
int address_of_socket(int socket, sockaddr* address, socklen_t* length) noexcept;
int address_of_peer(int socket, sockaddr* address, socklen_t* length) noexcept;

// Bytes go at once. If the other host is gone, an idle connection fails after `idle_seconds` and
// `probes` probes, one every `probe_seconds`.
struct KeepAlive {
  int idle_seconds, probe_seconds, probes;
};
void prepare_connection(int socket, const KeepAlive& keep_alive) noexcept;
// Milliseconds in which the other host has acknowledged nothing although it should; 0: there is
// nothing to acknowledge, or the system does not say it.
int64_t unacknowledged_milliseconds(int socket) noexcept;

struct SendPart {
  const void* data;
  size_t bytes;
};
// The bytes that were taken; EAGAIN: none fits now. No signal if the connection has ended.
ptrdiff_t send_parts(int socket, std::span<const SendPart> parts) noexcept;
// 0: the other side sends no more; EAGAIN: nothing has come.
ptrdiff_t receive_some(int socket, void* bytes, size_t count) noexcept;
void end_sending(int socket) noexcept;

inline constexpr unsigned kCanReceive = 1, kCanSend = 2;
inline constexpr unsigned kPeerEnded = 4;        // the other side sends no more
inline constexpr unsigned kConnectionEnded = 8;  // reported without being asked for
struct PolledSocket {
  int socket;       // negative: ignored
  unsigned wanted;  // kCanReceive, kCanSend, kPeerEnded
  unsigned happened = 0;
};
// The number of sockets to which something happened.
int poll_sockets(std::span<PolledSocket> sockets, int milliseconds);

std::string socket_error_text(int error);

}  // namespace trafo::os
