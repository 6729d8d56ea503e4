#include "engine/dist/tcp/wire.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/core/status.h"
#include "engine/dist/process_wire.h"

namespace trafo::tcp {
namespace {

constexpr double kCloseSeconds = 1;
constexpr auto kSilenceInterval = std::chrono::seconds(1);
constexpr size_t kMostKeptBytes = 64 << 20;  // of messages that nobody has received, of one rank
constexpr size_t kMessageCost = 64;          // of each, beside its bytes
constexpr size_t kMostAtOnce = 4 << 20;      // of bytes from one rank before others have their turn
constexpr int64_t kFirstTextBytes = 64 << 10;
constexpr int64_t kMostNoticeBytes = 4096;

}  // namespace

Wire::Wire(std::vector<Socket> peers) : peers_(peers.size()) {
  for (size_t i = 0; i < peers.size(); ++i) {
    peers_[i].socket = std::move(peers[i]);
    peers_[i].is_lost = peers_[i].is_told = !peers_[i].socket.is_open();  // the own rank
  }
}

Wire::~Wire() {
  try {
    close_gently();
  } catch (const std::exception&) {  // no memory
  }
  for (Request* request : requests_) delete request;
}

// A connection that is closed while bytes of the other side are unread is reset, and what this side
// has sent last may be lost with it.
void Wire::close_gently() {
  abandon();
  const auto deadline = after(kCloseSeconds);
  std::vector<bool> shut(peers_.size());
  while (Clock::now() < deadline) {
    bool open = false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      if (peer.is_lost) continue;
      open = true;
      if (peer.sends.empty() && !shut[i]) {
        os::end_sending(peer.socket.descriptor());
        shut[i] = true;
      }
      peer.messages.clear();
      peer.kept_bytes = 0;
    }
    if (!open) return;
    move(milliseconds_until(deadline, 50));
  }
}

Request* Wire::new_request() {
  auto request = std::make_unique<Request>();
  requests_.insert(request.get());
  return request.release();
}

Wire::Peer& Wire::peer_of(int32_t peer) {
  require(peer >= 0 && static_cast<size_t>(peer) < peers_.size(), ErrorCode::internal, kTcpOrigin,
          "there is no rank ", peer);
  return peers_[static_cast<size_t>(peer)];
}

// To a rank that is lost, a send is never done.
Request* Wire::send(const void* data, int64_t bytes, int32_t peer, int32_t tag) {
  Peer& to = peer_of(peer);
  Request* request = new_request();
  if (!to.is_lost)
    to.sends.push_back({{tag, 0, bytes}, static_cast<const std::byte*>(data), request, {}});
  return request;
}

Request* Wire::receive(void* data, int64_t bytes, int32_t peer, int32_t tag) {
  Peer& from = peer_of(peer);
  Request* request = new_request();
  if (tag == process::kDataTag) {
    from.places.push_back({static_cast<std::byte*>(data), bytes, request});
    return request;
  }
  auto& messages = from.messages[tag];
  require(!messages.empty(), ErrorCode::internal, kTcpOrigin, "no message of rank ", peer,
          " has come");
  const std::string& text = messages.front();
  request->is_done = true;
  request->received = static_cast<int64_t>(text.size());
  std::memcpy(data, text.data(), std::min(text.size(), static_cast<size_t>(bytes)));
  from.kept_bytes -= text.size() + kMessageCost;
  messages.pop_front();
  return request;
}

bool Wire::test(Request* request, int64_t* received) {
  if (!request->is_done) return false;
  if (received) *received = request->received;
  requests_.erase(request);
  delete request;
  return true;
}

std::optional<Wire::Message> Wire::probe(int32_t peer, int32_t tag) const {
  for (size_t from = 0; from < peers_.size(); ++from) {
    if (peer >= 0 && from != static_cast<size_t>(peer)) continue;
    const auto found = peers_[from].messages.find(tag);
    if (found == peers_[from].messages.end() || found->second.empty()) continue;
    return Message{static_cast<int32_t>(from), static_cast<int64_t>(found->second.front().size())};
  }
  return std::nullopt;
}

// Data that nobody waits for stays in the connection.
bool Wire::may_read(const Peer& peer) const {
  if (peer.is_lost || peer.kept_bytes > kMostKeptBytes) return false;
  const bool is_data = peer.head_bytes == sizeof peer.head && peer.head.tag == process::kDataTag;
  return !is_data || abandoned_ || peer.into || !peer.places.empty();
}

void Wire::move(int milliseconds) {
  std::vector<os::PolledSocket> polled;
  for (const Peer& peer : peers_) {
    const unsigned events =
        (may_read(peer) ? os::kCanReceive : 0) | (peer.sends.empty() ? 0 : os::kCanSend);
    polled.push_back({peer.is_lost || events == 0 ? -1 : peer.socket.descriptor(), events});
  }
  os::poll_sockets(polled, milliseconds);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (polled[i].happened & (os::kCanSend | os::kConnectionEnded)) send_some(peers_[i]);
    if (polled[i].happened & (os::kCanReceive | os::kConnectionEnded)) read_some(peers_[i]);
  }
  if (Clock::now() - silence_checked_ < kSilenceInterval) return;
  silence_checked_ = Clock::now();
  for (Peer& peer : peers_)
    if (!peer.is_lost && is_silent(peer.socket)) lose(peer, "its host does not answer");
}

void Wire::send_some(Peer& peer) {
  for (size_t moved = 0; !peer.is_lost && !peer.sends.empty() && moved < kMostAtOnce;) {
    Outgoing& next = peer.sends.front();
    const auto body = static_cast<size_t>(next.head.bytes);
    const size_t of_head = std::min(peer.sent, sizeof next.head), of_body = peer.sent - of_head;
    const os::SendPart parts[2] = {
        {reinterpret_cast<const char*>(&next.head) + of_head, sizeof next.head - of_head},
        {next.data + of_body, std::min(body - of_body, kMostAtOnce)}};
    const ptrdiff_t count = os::send_parts(peer.socket.descriptor(), parts);
    if (count < 0) {
      // Messages that the rank sent before it left can still be read.
      if (errno == EPIPE || errno == ECONNRESET)
        peer.sends.clear(), peer.sent = 0;
      else if (errno != EAGAIN && errno != EINTR)
        lose(peer, error_text(errno));
      return;
    }
    peer.sent += static_cast<size_t>(count);
    moved += static_cast<size_t>(count);
    if (peer.sent < sizeof next.head + body) continue;
    if (next.request) next.request->is_done = true;
    peer.sends.pop_front();
    peer.sent = 0;
  }
}

// Bytes of the connection; 0: nothing has arrived, or it has ended.
int64_t Wire::take(Peer& peer, void* data, size_t bytes) {
  const ptrdiff_t count = os::receive_some(peer.socket.descriptor(), data, bytes);
  if (count > 0) {
    moved_ += static_cast<size_t>(count);
    return count;
  }
  if (count == 0)
    lose(peer, "its connection has ended");
  else if (errno != EAGAIN && errno != EINTR)
    lose(peer, concat("its connection has failed: ", error_text(errno)));
  return 0;
}

void Wire::read_some(Peer& peer) {
  moved_ = 0;
  while (may_read(peer) && moved_ < kMostAtOnce)
    if (!(peer.head_bytes < sizeof peer.head ? read_head(peer) : read_body(peer))) return;
}

bool Wire::read_head(Peer& peer) {
  auto* bytes = reinterpret_cast<char*>(&peer.head);
  const int64_t count = take(peer, bytes + peer.head_bytes, sizeof peer.head - peer.head_bytes);
  peer.head_bytes += static_cast<size_t>(count);
  if (count == 0 || peer.head_bytes < sizeof peer.head) return false;
  const Head& head = peer.head;
  const int64_t most = head.tag == process::kNoticeTag ? kMostNoticeBytes : process::kMostBytes;
  const bool is_known = head.tag == process::kHostTag || head.tag == process::kDataTag ||
                        head.tag == process::kNoticeTag;
  const int64_t least = head.tag == process::kDataTag ? 1 : 0;
  if (!is_known || head.zero != 0 || head.bytes < least || head.bytes > most) {
    lose(peer, "it has sent what is no message");
    return false;
  }
  peer.taken = 0;
  peer.text.clear();
  peer.into.reset();
  return true;
}

// Finds the place of the data that begins to come in.
void Wire::begin_body(Peer& peer) {
  if (peer.into) return;
  const Place dropped{nullptr, peer.head.bytes, nullptr};
  if (abandoned_) {
    peer.into = dropped;
    return;
  }
  peer.into = peer.places.front();
  peer.places.pop_front();
  if (peer.into->bytes == peer.head.bytes) return;
  // The two ranks do not agree. Whoever waits for it is told by the number of bytes.
  peer.into->request->is_done = true;
  peer.into->request->received = peer.head.bytes;
  peer.into = dropped;
}

bool Wire::read_body(Peer& peer) {
  const bool is_data = peer.head.tag == process::kDataTag;
  if (is_data) begin_body(peer);
  const int64_t left = peer.head.bytes - peer.taken;
  int64_t count = 0;
  if (left > 0 && is_data && peer.into->data == nullptr) {
    char dropped[16384];
    count = take(peer, dropped, std::min(sizeof dropped, static_cast<size_t>(left)));
  } else if (left > 0 && is_data) {
    count = take(peer, peer.into->data + peer.taken, static_cast<size_t>(left));
  } else if (left > 0) {
    // Memory comes with the bytes, not with the number that a head has.
    const int64_t room = std::min(left, std::max(kFirstTextBytes, peer.taken));
    peer.text.resize(static_cast<size_t>(peer.taken + room));
    count = take(peer, peer.text.data() + peer.taken, static_cast<size_t>(room));
    peer.text.resize(static_cast<size_t>(peer.taken + count));
  }
  peer.taken += count;
  if (peer.taken < peer.head.bytes) return count > 0;
  end_body(peer);
  return true;
}

void Wire::end_body(Peer& peer) {
  if (peer.head.tag == process::kDataTag) {
    if (Request* request = peer.into->request) {
      request->is_done = true;
      request->received = peer.head.bytes;
    }
    peer.into.reset();
  } else {
    peer.kept_bytes += peer.text.size() + kMessageCost;
    peer.messages[peer.head.tag].push_back(std::move(peer.text));
  }
  peer.head_bytes = 0;
}

void Wire::lose(Peer& peer, const std::string& reason) {
  peer.is_lost = true;
  peer.why_lost = reason;
  peer.socket.close();
  peer.sends.clear();
  peer.sent = 0;
  peer.places.clear();
  peer.into.reset();
}

std::optional<Wire::Lost> Wire::next_lost() {
  for (size_t i = 0; i < peers_.size(); ++i)
    if (peers_[i].is_lost && !std::exchange(peers_[i].is_told, true))
      return Lost{static_cast<int32_t>(i), peers_[i].why_lost};
  return std::nullopt;
}

// Finishes partly sent and partly received messages with memory of this wire, so that the messages
// after them can come.
void Wire::abandon() {
  abandoned_ = true;
  for (Peer& peer : peers_) {
    peer.places.clear();
    if (peer.into) peer.into = Place{nullptr, peer.head.bytes, nullptr};
    std::deque<Outgoing> kept;
    for (size_t i = 0; i < peer.sends.size(); ++i) {
      Outgoing& each = peer.sends[i];
      const bool is_notice = each.head.tag == process::kNoticeTag;
      if (!is_notice && (i > 0 || peer.sent == 0)) continue;
      if (!is_notice) {
        each.own.assign(each.data, each.data + each.head.bytes);
        each.data = each.own.data();
        each.request = nullptr;
      }
      kept.push_back(std::move(each));
    }
    peer.sends = std::move(kept);
  }
}

}  // namespace trafo::tcp
