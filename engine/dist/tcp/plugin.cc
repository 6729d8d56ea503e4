// libtrafo_tcp.so: the table of plugin_api.h.
#include "engine/dist/tcp/plugin_api.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "engine/core/status.h"
#include "engine/core/version.h"
#include "engine/dist/tcp/rendezvous.h"
#include "engine/dist/tcp/wire.h"

namespace trafo::tcp {

struct Listener {
  Socket socket;
};

namespace {

int32_t tell(Why why, ErrorCode code, const char* reason) {
  std::snprintf(why.text, why.size, "%s", reason);
  return static_cast<int32_t>(code);
}

template <class Work>
int32_t guarded(Why why, Work work) noexcept {
  try {
    work();
    return 0;
  } catch (const Error& error) {
    return tell(why, error.code(), error.message().c_str());
  } catch (const Transient& failed) {
    return tell(why, ErrorCode::peer_lost, failed.reason.c_str());
  } catch (const std::bad_alloc&) {
    return tell(why, ErrorCode::out_of_memory, "there is no memory for a connection");
  } catch (const std::exception& error) {
    return tell(why, ErrorCode::internal, error.what());
  }
}

int32_t listen(const char* host, int32_t* port, Listener** out, Why why) {
  return guarded(why, [&] {
    auto listener = std::make_unique<Listener>();
    listener->socket = listen_at(host, static_cast<uint16_t>(*port));
    *port = port_of(listener->socket);
    *out = listener.release();
  });
}

void free_listener(Listener* listener) {
  delete listener;
}

int32_t open(const Setup* setup, Wire** out, Why why) {
  return guarded(why, [&] {
    Meeting meeting;
    meeting.host = setup->host;
    meeting.port = static_cast<uint16_t>(setup->port);
    if (setup->listener) meeting.listener = std::move(setup->listener->socket);
    delete setup->listener;
    std::memcpy(meeting.key.data(), setup->key, meeting.key.size());
    meeting.rank = static_cast<uint32_t>(setup->rank);
    meeting.size = static_cast<uint32_t>(setup->size);
    meeting.seconds = setup->seconds;
    meeting.release = kVersion;
    *out = new Wire(meet(std::move(meeting)));
  });
}

void close(Wire* wire) {
  delete wire;
}

int32_t send(Wire* wire, const void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out,
             Why why) {
  return guarded(why, [&] { *out = wire->send(data, bytes, peer, tag); });
}

int32_t receive(Wire* wire, void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out,
                Why why) {
  return guarded(why, [&] { *out = wire->receive(data, bytes, peer, tag); });
}

int32_t test(Wire* wire, Request* request, int32_t* done, int64_t* received, Why why) {
  return guarded(why, [&] { *done = wire->test(request, received); });
}

int32_t probe(Wire* wire, int32_t peer, int32_t tag, int32_t* from, int64_t* bytes, Why why) {
  return guarded(why, [&] {
    *from = kNoPeer;
    if (const auto message = wire->probe(peer, tag)) *from = message->from, *bytes = message->bytes;
  });
}

int32_t move(Wire* wire, int32_t milliseconds, Why why) {
  return guarded(why, [&] { wire->move(milliseconds); });
}

int32_t lost(Wire* wire, int32_t* peer, Why reason) {
  return guarded(reason, [&] {
    *peer = kNoPeer;
    const auto found = wire->next_lost();
    if (!found) return;
    *peer = found->peer;
    tell(reason, ErrorCode::ok, found->reason.c_str());
  });
}

int32_t abandon(Wire* wire, Why why) {
  return guarded(why, [&] { wire->abandon(); });
}

}  // namespace
}  // namespace trafo::tcp

extern "C" __attribute__((visibility("default"))) void trafo_tcp_plugin(
    trafo::tcp::PluginTable* table) {
  using namespace trafo::tcp;
  *table = {kPluginVersion, trafo::kVersion, listen, free_listener, open,   close, send, receive,
            test,           probe,           move,   lost,          abandon};
}
