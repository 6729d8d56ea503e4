// Proof between two ranks that they belong to one job. Both know a key and prove it to each other:
//
//   caller -> host    magic, version, a nonce
//   host -> caller    magic, version, a nonce
//   caller -> host    a hello, HMAC(key, "caller", both nonces, the hello)
//   host -> caller    HMAC(key, "host", both nonces, the hello), or zeros: another key
//   host -> caller    a code and a text or a table
//
// The caller proves the key first: whoever connects learns nothing that a key could be guessed
// with. The key itself is never sent. Later messages are neither encrypted nor authenticated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/core/sha256.h"
#include "engine/core/status.h"
#include "engine/dist/tcp/socket.h"

namespace trafo::tcp {

// Who calls whom.
struct Hello {
  uint32_t from = 0, to = 0;  // ranks
  uint32_t size = 0;
  uint16_t port = 0;  // where the caller listens
  std::string release;

  std::string bytes() const;
  static Hello of_bytes(std::string_view bytes);
};

// Calls the rank that listens at the other end. Returns the text of its answer. Throws the error
// that it answers; INVALID_ARGUMENT or VERSION: it has another key, or is not a rank at all.
std::string call(const Socket& socket, const Sha256& key, const Hello& hello,
                 Clock::time_point deadline);

// A caller that has proved its key, and said who it is.
struct Guest {
  Socket socket;
  Address address;
  Hello hello;
};

// Rank `rank`, whom ranks above it call.
class Host {
 public:
  Host(Socket listener, const Sha256& key, uint32_t rank, uint32_t size, std::string release)
      : listener_(std::move(listener)),
        key_(key),
        rank_(rank),
        size_(size),
        release_(std::move(release)) {}

  // Waits for all ranks above this one, and returns them by rank. PEER_LOST: not all have come
  // before the deadline. IO: no descriptor is left. Strangers are hung up on, and callers that fit
  // not are told why. If it throws, the callers are told why as well.
  std::vector<Guest> receive_guests(Clock::time_point deadline, double seconds);
  // Ends the call of each.
  static void answer(const std::vector<Guest>& guests, std::string_view text,
                     Clock::time_point deadline);

 private:
  struct Pending {
    Socket socket;
    Address address;
    Clock::time_point safe_until, deadline;
    std::string received, nonces;
    bool greeted = false;
  };
  enum class Progress { waits, is_guest, is_stranger, is_refused };
  void wait_for_guests(std::vector<Guest>& guests, Clock::time_point deadline, double seconds);
  bool is_full() const;
  bool has_place() const;
  void accept_callers();
  void listen_to_callers(std::vector<Guest>& guests);
  Progress advance(Pending& caller, std::vector<Guest>& guests);
  std::optional<Error> why_not(const Hello& hello, const std::vector<Guest>& guests) const;

  Socket listener_;
  const Sha256 key_;
  const uint32_t rank_, size_;
  const std::string release_;
  std::vector<Pending> pending_;
  size_t strangers_ = 0;
};

}  // namespace trafo::tcp
