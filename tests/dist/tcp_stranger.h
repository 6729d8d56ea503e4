// A caller of rank 0 that speaks the protocol step by step, with or without the key.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/dist/tcp/handshake.h"

namespace trafo::testing {

struct Stranger {
  tcp::Socket socket;
  std::string nonces = std::string(sizeof(Sha256), 'n');

  explicit Stranger(const tcp::Address& host) : socket(tcp::connect_to(host, tcp::after(5))) {
    send(opening() + nonces);
    const std::string greeting = receive(opening().size() + sizeof(Sha256));
    EXPECT_TRUE(greeting.starts_with(opening()));
    nonces += greeting.substr(opening().size());
  }
  static std::string opening() { return "trafotcp" + std::string("\2\0\0\0", 4); }
  void send(const std::string& bytes) const { tcp::send_all(socket, bytes, tcp::after(5)); }
  std::string receive(size_t bytes) const { return tcp::receive_all(socket, bytes, tcp::after(5)); }
  // Says who it is. The host's proof, or zeros.
  std::string prove(const Sha256& key, const tcp::Hello& hello) const {
    const std::string bytes = hello.bytes();
    send(bytes + std::string(text_of(hmac_sha256(key, {"caller", nonces, bytes}))));
    return receive(sizeof(Sha256));
  }
  // Whether the host has hung up, after nothing more.
  bool is_hung_up_on() const {
    try {
      tcp::receive_all(socket, 1, tcp::after(5));
    } catch (const tcp::Transient& ended) {
      return ended.reason == "it has closed the connection";
    }
    return false;
  }
};

}  // namespace trafo::testing
