#include "engine/dist/tcp/handshake.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace trafo::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are sent as they are in memory");

constexpr std::string_view kMagic = "trafotcp";
constexpr uint32_t kProtocol = 2;
constexpr size_t kKeyBytes = sizeof(Sha256);
constexpr size_t kOpening = 8 + sizeof kProtocol;
constexpr size_t kGreetingBytes = kOpening + kKeyBytes;
constexpr size_t kReleaseBytes = 32;
constexpr size_t kHelloBytes = 3 * sizeof(uint32_t) + sizeof(uint16_t) + kReleaseBytes;
constexpr uint32_t kMostAnswerBytes = 4 << 20;  // a table of the largest group
constexpr double kCallerSeconds = 10;           // to prove the key
// Of callers that have not, beside the group's size. One that comes when there are as many takes
// the place of the first, but for a time nobody is in danger: a rank needs a moment for its proof.
constexpr size_t kMostPending = 256;
constexpr double kSafeSeconds = 1;
constexpr int kFullMilliseconds = 20;  // until it looks again for a place

template <class Number>
std::string raw(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
template <class Number>
Number number_at(std::string_view bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}
Sha256 code_at(std::string_view bytes, size_t at) {
  Sha256 code;
  std::memcpy(code.data(), bytes.data() + at, code.size());
  return code;
}

std::string opening() {
  return std::string(kMagic) + raw(kProtocol);
}

constexpr std::string_view kCaller = "caller", kHost = "host";

// That `side` knows the key.
Sha256 proof(const Sha256& key, std::string_view side, const std::string& nonces,
             const std::string& hello) {
  return hmac_sha256(key, {side, nonces, hello});
}

std::string answer_bytes(ErrorCode code, std::string_view text) {
  return raw(static_cast<uint32_t>(code)) + raw(static_cast<uint32_t>(text.size())) +
         std::string(text);
}

}  // namespace

std::string Hello::bytes() const {
  std::string padded = release.substr(0, kReleaseBytes);
  padded.resize(kReleaseBytes, '\0');
  return raw(from) + raw(to) + raw(size) + raw(port) + padded;
}

Hello Hello::of_bytes(std::string_view bytes) {
  Hello hello;
  hello.from = number_at<uint32_t>(bytes, 0);
  hello.to = number_at<uint32_t>(bytes, 4);
  hello.size = number_at<uint32_t>(bytes, 8);
  hello.port = number_at<uint16_t>(bytes, 12);
  hello.release = bytes.substr(14, kReleaseBytes);
  hello.release.resize(std::min(hello.release.find('\0'), hello.release.size()));
  return hello;
}

std::string call(const Socket& socket, const Sha256& key, const Hello& hello,
                 Clock::time_point deadline) {
  const Sha256 nonce = random_bytes();
  send_all(socket, opening() + std::string(text_of(nonce)), deadline);
  const std::string begin = receive_all(socket, kMagic.size(), deadline);
  require(begin == kMagic, ErrorCode::invalid_argument, kTcpOrigin,
          "another program has that port: what answers is no rank of a group");
  const std::string greeting = begin + receive_all(socket, kGreetingBytes - begin.size(), deadline);
  require(greeting.starts_with(opening()), ErrorCode::version, kTcpOrigin,
          "the rank that answers is of another release");
  const std::string nonces = std::string(text_of(nonce)) + greeting.substr(kOpening);
  const std::string own = hello.bytes();
  send_all(socket, own + std::string(text_of(proof(key, kCaller, nonces, own))), deadline);
  require(are_equal(code_at(receive_all(socket, kKeyBytes, deadline), 0),
                    proof(key, kHost, nonces, own)),
          ErrorCode::invalid_argument, kTcpOrigin,
          "the rank that answers has another token: it is of another job");
  const std::string head = receive_all(socket, 2 * sizeof(uint32_t), deadline);
  const auto code = number_at<uint32_t>(head, 0), bytes = number_at<uint32_t>(head, 4);
  require(code <= static_cast<uint32_t>(ErrorCode::peer_lost) && bytes <= kMostAnswerBytes,
          ErrorCode::internal, kTcpOrigin, "a rank has sent an answer that cannot be read");
  const std::string text = receive_all(socket, bytes, deadline);
  if (code != 0) fail(static_cast<ErrorCode>(code), kTcpOrigin, text);
  return text;
}

bool Host::is_full() const {
  return pending_.size() >= kMostPending + size_;
}
// Or the first of the callers may lose its own.
bool Host::has_place() const {
  return !is_full() || Clock::now() > pending_.front().safe_until;
}

void Host::accept_callers() {
  while (has_place()) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) {
      // Without descriptors the one that waits longest makes room.
      const int error = errno;
      if (!is_without_descriptors(error)) return;
      require(!pending_.empty(), ErrorCode::io, kTcpOrigin,
              "cannot accept a connection: ", error_text(error));
      pending_.erase(pending_.begin());
      continue;
    }
    if (is_full()) pending_.erase(pending_.begin());
    try {
      const Address address = peer_of(socket);
      pending_.push_back(
          {std::move(socket), address, after(kSafeSeconds), after(kCallerSeconds), {}, {}, false});
    } catch (const Transient&) {  // it has gone
    }
  }
}

std::optional<Error> Host::why_not(const Hello& hello, const std::vector<Guest>& guests) const {
  const auto refuse = [](ErrorCode code, std::string why) { return Error(code, kTcpOrigin, why); };
  if (hello.release != release_)
    return refuse(ErrorCode::version, concat("rank ", hello.from, " has release ", hello.release,
                                             ", rank ", rank_, " has ", release_));
  if (hello.size != size_)
    return refuse(ErrorCode::invalid_argument,
                  concat("rank ", hello.from, " joins a group of ", hello.size, ", rank ", rank_,
                         " one of ", size_));
  if (hello.to != rank_ || hello.from <= rank_ || hello.from >= size_)
    return refuse(ErrorCode::invalid_argument, concat("rank ", hello.from, " calls rank ", hello.to,
                                                      " and has reached rank ", rank_));
  if (guests[hello.from - rank_ - 1].socket.is_open())
    return refuse(ErrorCode::invalid_argument,
                  concat("rank ", hello.from, " has joined the group already"));
  return std::nullopt;
}

Host::Progress Host::advance(Pending& caller, std::vector<Guest>& guests) {
  const size_t wanted = caller.greeted ? kHelloBytes + kKeyBytes : kGreetingBytes;
  char part[kHelloBytes + kKeyBytes];
  const ptrdiff_t count =
      os::receive_some(caller.socket.descriptor(), part, wanted - caller.received.size());
  if (count == 0) return Progress::is_stranger;
  if (count < 0) return errno == EAGAIN || errno == EINTR ? Progress::waits : Progress::is_stranger;
  caller.received.append(part, static_cast<size_t>(count));
  if (!caller.greeted) {
    const size_t known = std::min(caller.received.size(), kOpening);
    if (!opening().starts_with(std::string_view(caller.received).substr(0, known)))
      return Progress::is_stranger;
  }
  if (caller.received.size() < wanted) return Progress::waits;
  const std::string bytes(caller.received.data(), caller.received.size());
  caller.received.clear();
  // A new connection has room for what is sent here, so nobody is waited for.
  const auto now = Clock::now();
  if (!caller.greeted) {
    const Sha256 nonce = random_bytes();
    caller.nonces = bytes.substr(kOpening) + std::string(text_of(nonce));
    caller.greeted = true;
    send_all(caller.socket, opening() + std::string(text_of(nonce)), now);
    return Progress::waits;
  }
  const std::string hello_bytes = bytes.substr(0, kHelloBytes);
  const bool knows_key =
      are_equal(code_at(bytes, kHelloBytes), proof(key_, kCaller, caller.nonces, hello_bytes));
  send_all(caller.socket,
           text_of(knows_key ? proof(key_, kHost, caller.nonces, hello_bytes) : Sha256{}), now);
  if (!knows_key) return Progress::is_stranger;
  const Hello hello = Hello::of_bytes(hello_bytes);
  if (const std::optional<Error> why = why_not(hello, guests)) {
    send_all(caller.socket, answer_bytes(why->code(), why->message()), now);
    return Progress::is_refused;
  }
  guests[hello.from - rank_ - 1] = {std::move(caller.socket), caller.address, hello};
  return Progress::is_guest;
}

void Host::listen_to_callers(std::vector<Guest>& guests) {
  std::vector<Pending> kept;
  for (Pending& each : pending_) {
    Progress progress = Progress::is_stranger;
    if (Clock::now() < each.deadline) try {
        progress = advance(each, guests);
      } catch (const Transient&) {  // it has gone
      }
    if (progress == Progress::is_stranger) ++strangers_;
    if (progress == Progress::waits) kept.push_back(std::move(each));
  }
  pending_ = std::move(kept);
}

std::vector<Guest> Host::receive_guests(Clock::time_point deadline, double seconds) {
  std::vector<Guest> guests(size_ - rank_ - 1);
  try {
    wait_for_guests(guests, deadline, seconds);
  } catch (const Error& error) {
    const bool is_known = error.code() == ErrorCode::peer_lost;
    const std::string why =
        is_known ? error.message() : concat("rank ", rank_, " has left: ", error.message());
    for (const Guest& guest : guests) try {
        if (guest.socket.is_open())
          send_all(guest.socket, answer_bytes(ErrorCode::peer_lost, why), Clock::now());
      } catch (const Transient&) {  // it has gone
      }
    throw;
  }
  return guests;
}

void Host::wait_for_guests(std::vector<Guest>& guests, Clock::time_point deadline, double seconds) {
  const auto missing = [&] {
    return std::find_if(guests.begin(), guests.end(),
                        [](const Guest& guest) { return !guest.socket.is_open(); });
  };
  while (missing() != guests.end()) {
    if (Clock::now() >= deadline) {
      std::string why = concat("rank ", rank_ + 1 + static_cast<size_t>(missing() - guests.begin()),
                               " has not joined within ", seconds, " seconds");
      if (strangers_ > 0)
        why += concat("; connections without the token of the job were refused: ", strangers_);
      fail(ErrorCode::peer_lost, kTcpOrigin, why);
    }
    const bool listens = has_place();
    std::vector<os::PolledSocket> polled{{listens ? listener_.descriptor() : -1, os::kCanReceive}};
    for (const Pending& each : pending_)
      polled.push_back({each.socket.descriptor(), os::kCanReceive});
    for (const Guest& each : guests)  // a negative descriptor is ignored
      polled.push_back({each.socket.descriptor(), os::kPeerEnded});
    os::poll_sockets(polled, milliseconds_until(deadline, listens ? 1000 : kFullMilliseconds));
    // One that has gone may come again, for example when its host has started it anew.
    for (size_t i = 0; i < guests.size(); ++i)
      if (polled[1 + pending_.size() + i].happened != 0) guests[i].socket.close();
    listen_to_callers(guests);
    accept_callers();
  }
}

void Host::answer(const std::vector<Guest>& guests, std::string_view text,
                  Clock::time_point deadline) {
  for (const Guest& guest : guests) try {
      send_all(guest.socket, answer_bytes(ErrorCode::ok, text), deadline);
    } catch (const Transient& gone) {
      fail(ErrorCode::peer_lost, kTcpOrigin, "rank ", guest.hello.from, " has left: ", gone.reason);
    }
}

}  // namespace trafo::tcp
