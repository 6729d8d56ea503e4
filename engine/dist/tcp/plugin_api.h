// Interface between the engine and libtrafo_tcp.so, which opens the sockets between the ranks of a
// group. libtrafo.so itself opens none. Only C types cross.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trafo::tcp {

inline constexpr int32_t kPluginVersion = 1;
inline constexpr const char* kPluginEntryName = "trafo_tcp_plugin";

struct Listener;  // a port that this process has taken
struct Wire;      // one rank's connections to all others
struct Request;   // of a send or a receive that may be in flight

// Where a function that fails writes its reason.
struct Why {
  char* text;
  size_t size;
};

inline constexpr int32_t kAnyPeer = -1;
inline constexpr int32_t kNoPeer = -2;

// Where and as what a rank joins. Texts end with 0.
struct Setup {
  const char* host;    // of rank 0
  int32_t port;        // where rank 0 listens
  Listener* listener;  // of rank 0, if it has one already: it is taken; else null
  const uint8_t* key;  // 32 bytes that all ranks know, and nobody else
  int32_t rank, size;
  double seconds;  // for all ranks to come
};

// Functions return 0, or an ErrorCode and the reason. They are called on one thread for a wire.
struct PluginTable {
  int32_t version;             // kPluginVersion
  const char* engine_version;  // of the release the plugin belongs to: "0.1.0"

  // Takes a port of this host for rank 0; port 0 becomes a free one.
  int32_t (*listen)(const char* host, int32_t* port, Listener** out, Why why);
  void (*free_listener)(Listener* listener);
  // Meets the other ranks and connects to each.
  int32_t (*open)(const Setup* setup, Wire** out, Why why);
  // Sends what is in flight, for a short time, and closes the connections.
  void (*close)(Wire* wire);
  // Begins to send or to receive. The memory must stay until test() says that it is done, or until
  // abandon().
  int32_t (*send)(Wire* wire, const void* data, int64_t bytes, int32_t peer, int32_t tag,
                  Request** out, Why why);
  int32_t (*receive)(Wire* wire, void* data, int64_t bytes, int32_t peer, int32_t tag,
                     Request** out, Why why);
  // Whether it is done; then frees the request. received: the bytes of a receive, may be null.
  int32_t (*test)(Wire* wire, Request* request, int32_t* done, int64_t* received, Why why);
  // A message with this tag, not of data, that has come from `peer`, which may be kAnyPeer; its
  // sender becomes *from, or kNoPeer without such a message.
  int32_t (*probe)(Wire* wire, int32_t peer, int32_t tag, int32_t* from, int64_t* bytes, Why why);
  // Waits for a connection that can send or receive, for as many milliseconds at most, and moves
  // the bytes.
  int32_t (*move)(Wire* wire, int32_t milliseconds, Why why);
  // A rank whose connection has ended, once each, and the reason; or kNoPeer.
  int32_t (*lost)(Wire* wire, int32_t* peer, Why reason);
  // Forgets the memory of requests that are not done.
  int32_t (*abandon)(Wire* wire, Why why);
};

// The plugin's one exported symbol.
using PluginEntry = void (*)(PluginTable* table);

}  // namespace trafo::tcp
