// Messages between the ranks of a group, over a connection to each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/dist/tcp/socket.h"

namespace trafo::tcp {

struct Request {
  bool is_done = false;
  int64_t received = 0;
};

// On the connection, a message is a head (its tag and the number of its bytes) and the bytes.
// Data waits in the connection until somebody receives it, so no later message comes before that.
// Other messages are kept here until then.
class Wire {
 public:
  // No connection at the own rank.
  explicit Wire(std::vector<Socket> peers);
  ~Wire();  // sends what is in flight, for a short time
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  Request* send(const void* data, int64_t bytes, int32_t peer, int32_t tag);
  Request* receive(void* data, int64_t bytes, int32_t peer, int32_t tag);
  bool test(Request* request, int64_t* received);
  struct Message {
    int32_t from;
    int64_t bytes;
  };
  std::optional<Message> probe(int32_t peer, int32_t tag) const;
  void move(int milliseconds);
  struct Lost {
    int32_t peer;
    std::string reason;
  };
  std::optional<Lost> next_lost();
  void abandon();

 private:
  struct Head {
    int32_t tag = 0;
    uint32_t zero = 0;
    int64_t bytes = 0;
  };
  struct Outgoing {
    Head head;
    const std::byte* data;
    Request* request;  // null: nobody waits for it
    std::vector<std::byte> own;
  };
  struct Place {  // of data that somebody waits for
    std::byte* data;
    int64_t bytes;
    Request* request;
  };
  struct Peer {
    Socket socket;
    std::deque<Outgoing> sends;
    size_t sent = 0;  // bytes of the first one, with its head
    std::deque<Place> places;
    std::map<int32_t, std::deque<std::string>> messages;  // by tag; no data
    size_t kept_bytes = 0;                                // of all messages
    Head head;                                            // of the message that comes in
    size_t head_bytes = 0;
    std::optional<Place> into;  // where its bytes go if it is data
    std::string text;           // if it is not
    int64_t taken = 0;          // of its bytes
    std::string why_lost;
    bool is_lost = false, is_told = false;
  };

  Request* new_request();
  Peer& peer_of(int32_t peer);
  bool may_read(const Peer& peer) const;
  void send_some(Peer& peer);
  void read_some(Peer& peer);
  // False: no more can be read now.
  bool read_head(Peer& peer);
  bool read_body(Peer& peer);
  void begin_body(Peer& peer);
  void end_body(Peer& peer);
  int64_t take(Peer& peer, void* data, size_t bytes);
  void lose(Peer& peer, const std::string& reason);
  void close_gently();

  std::vector<Peer> peers_;
  std::set<Request*> requests_;
  Clock::time_point silence_checked_ = Clock::now();
  size_t moved_ = 0;  // bytes read from one rank in its turn
  bool abandoned_ = false;
};

}  // namespace trafo::tcp
