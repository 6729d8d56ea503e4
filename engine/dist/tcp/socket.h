// Sockets of the system: addresses, connections and waiting with limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/os/sockets.h"

namespace trafo::tcp {

inline constexpr const char* kTcpOrigin = "tcp";

using Clock = std::chrono::steady_clock;
Clock::time_point after(double seconds);
// For poll: until then, rounded up, but no longer than `most`.
int milliseconds_until(Clock::time_point deadline, int most = 1000);

// Something that may pass: another try may succeed.
struct Transient {
  std::string reason;
};

// Owns a descriptor. It never blocks, and programs that are started do not inherit it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close() { *this = Socket(); }

 private:
  int descriptor_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;
  std::string text() const;  // "10.0.0.7:29400", "[fe80::1]:29400"

  // As 17 bytes: 4 or 6 and the address. Those of IPv4 in IPv6 are of IPv4.
  std::string bytes() const;
  static std::optional<Address> of_bytes(std::string_view bytes);
};
inline constexpr size_t kAddressBytes = 17;

// All addresses of a name or a number. Transient: the name is not known.
std::vector<Address> resolve(const std::string& host, uint16_t port);
// True for localhost and numbers of this host alone.
bool names_this_host(const std::string& host);

// Listens at this host alone if `host` names it so, else at all addresses. Port 0: a free one. IO:
// the port is in use, or not allowed.
Socket listen_at(const std::string& host, uint16_t port);
uint16_t port_of(const Socket& socket);
Address peer_of(const Socket& socket);
// A connection that has come; none: nobody has.
Socket accept_from(const Socket& listener);

// Transient: it cannot be reached within `deadline`. IO: no descriptor is left.
Socket connect_to(const Address& address, Clock::time_point deadline);
// Small packets go at once, and the kernel finds out when the other host is gone.
void prepare_for_messages(const Socket& socket);
// True if the other host has not acknowledged anything for a long time although it should.
bool is_silent(const Socket& socket);

// All bytes or Transient: the connection has ended, or `deadline` has passed.
void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline);
std::string receive_all(const Socket& socket, size_t bytes, Clock::time_point deadline);

// Whether this error of the system means that no descriptor is left.
bool is_without_descriptors(int error);
std::string error_text(int error);

}  // namespace trafo::tcp
