// Groups over TCP. The ranks are threads of this process; tests/dist/ranks.py has processes.
#include "engine/dist/tcp_group.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>

#include "engine/dist/tcp/handshake.h"
#include "engine/dist/tcp/wire.h"
#include "tests/dist/group_support.h"
#include "tests/dist/process_cases.h"
#include "tests/dist/tcp_stranger.h"

namespace trafo {
namespace {

using namespace testing;

constexpr GroupTimeouts kShortWait{.start = 60, .wait = 1};
const std::string kTcpToken = "00f1e2d3c4b5a6978877665544332211";

// Where rank 0 of an id listens, which is in the id.
uint16_t port_of_id(const GroupId& id) {
  uint16_t port = 0;
  std::memcpy(&port, id.data() + 46, sizeof port);
  return port;
}
tcp::Address address_of_id(const GroupId& id) {
  return tcp::resolve("127.0.0.1", port_of_id(id)).front();
}

Sha256 key_of_id(const GroupId& id) {
  Sha256 key;
  std::memcpy(key.data(), id.data() + 14, key.size());
  return key;
}

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}
void expect_error(const std::optional<Error>& error, ErrorCode code, const std::string& words) {
  ASSERT_TRUE(error) << words;
  EXPECT_EQ(error->code(), code) << error->message();
  EXPECT_NE(error->message().find(words), std::string::npos) << error->message();
}

TEST(TcpGroup, MovesBytes) {
  for (const int size : {1, 2, 4})
    for_each_rank(
        size,
        [size](int rank, Communicator* group) {
          EXPECT_EQ(group->rank(), rank);
          EXPECT_EQ(group->size(), size);
          EXPECT_STREQ(group->transport(), "tcp");
          move_all_sorts(*group);
        },
        kGenerous, tcp_group());
}

TEST(TcpGroup, SpeaksIpVersion6AndListensForOtherHosts) {
  const auto has_version_6 = [] {
    try {
      return tcp::listen_at("::1", 0).is_open();
    } catch (const Error&) {
      return false;
    }
  };
  const auto move = [](int, Communicator* group) { move_all_sorts(*group); };
  if (has_version_6()) {
    for_each_rank(3, move, kGenerous, tcp_group("[::1]:0"));
  }
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  for (const std::string& host : {std::string("localhost"), std::string(name)})
    for_each_rank(3, move, kGenerous, tcp_group(host + ":0"));
}

TEST(TcpGroup, EveryProcessMakesTheSameIdFromTheSameToken) {
  const GroupId id = tcp_group("node-1.example:29400", kTcpToken);
  EXPECT_EQ(id, tcp_group("node-1.example:29400", kTcpToken));
  EXPECT_NE(id, tcp_group("node-1.example:29401", kTcpToken));
  EXPECT_NE(id, tcp_group("node-2.example:29400", kTcpToken));
  EXPECT_NE(id, tcp_group("node-1.example:29400", kTcpToken + "!"));
  EXPECT_NE(tcp_group("node-1.example:29400"), tcp_group("node-1.example:29400"));
  EXPECT_TRUE(is_tcp_group_id(id));
  EXPECT_FALSE(is_tcp_group_id(new_local_group()));
}

TEST(TcpGroup, RefusesWhatIsNoMaster) {
  for (const std::string master :
       {"", "node", "node:", ":29400", "node:x", "node:-1", "node:65536", "node:29400x",
        "::1:29400", "[]:29400", "[::1:29400", "::1]:29400"})
    expect_error(error_of([&] { tcp_group(master, kTcpToken); }), ErrorCode::invalid_argument,
                 "the master must be HOST:PORT or [IPv6]:PORT, got '" + master + "'");
  expect_error(error_of([] { tcp_group(std::string(80, 'h') + ":1", kTcpToken); }),
               ErrorCode::invalid_argument, "may have 79 bytes, got 80");
  expect_error(error_of([] { tcp_group("node:1", "short"); }), ErrorCode::invalid_argument,
               "token must have 32 to 4096 bytes that nobody can guess, got 5");
  expect_error(error_of([] { tcp_group("node:1", kTcpToken.substr(1)); }),
               ErrorCode::invalid_argument, "token must have 32 to 4096 bytes");
  expect_error(error_of([] { tcp_group("node:1", std::string(64, '7') + "012345678"); }),
               ErrorCode::invalid_argument, "token can be guessed: it has 9 different bytes");
  expect_error(error_of([] { tcp_group("node:0", kTcpToken); }), ErrorCode::invalid_argument,
               "the port must not be 0");
  expect_error(error_of([] { join_tcp_group(new_local_group(), 0, 1, {}); }),
               ErrorCode::invalid_argument, "the id is not that of a group over TCP");
  const GroupId id = tcp_group();
  expect_error(error_of([&] { join_tcp_group(id, 2, 2, {}); }), ErrorCode::invalid_argument,
               "the rank must be 0 to 1, got 2");
}

TEST(TcpGroup, AMissingLibraryIsNamed) {
  const GroupId id = tcp_group("127.0.0.1:29400", kTcpToken);
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has opened it stays with it
  EXPECT_EXIT(
      {
        setenv("TRAFO_TCP_LIBRARY", "/nonexistent/libtrafo_tcp.so", 1);
        const auto error = error_of([&] { join_tcp_group(id, 0, 1, {}); });
        std::fputs(error ? error->what() : "joined", stderr);
        std::_Exit(error && error->code() == ErrorCode::unsupported ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "/nonexistent/libtrafo_tcp.so");
}

TEST(TcpGroup, ARankThatDoesNotComeIsNamed) {
  const auto errors = errors_of_ranks(
      3,
      [](int rank, Communicator* group) {
        if (rank == 1) sleep_for(4);
        group->barrier();
      },
      kShortWait, tcp_group());
  for (const auto& error : errors)  // rank 1 learns of it when it comes
    expect_error(error, ErrorCode::peer_lost, "rank 1 has not come within 1 seconds");
}

TEST(TcpGroup, TheRankThatTheEarliestCallMissesIsNamed) {
  const auto errors = errors_of_ranks(
      3, [](int, Communicator* group) { wait_in_different_calls(*group, 4); }, kShortWait,
      tcp_group());
  for (const int rank : {0, 1})
    expect_error(errors[static_cast<size_t>(rank)], ErrorCode::peer_lost,
                 "rank 2 has not come within 1 seconds");
}

TEST(TcpGroup, ARankThatLeavesEndsTheOthers) {
  const auto errors = errors_of_ranks(
      3,
      [](int rank, Communicator* group) {
        group->barrier();
        if (rank == 2) return group->abort("the test says so");
        group->barrier();
      },
      kGenerous, tcp_group());
  for (const int rank : {0, 1})
    expect_error(errors[static_cast<size_t>(rank)], ErrorCode::peer_lost,
                 "rank 2 has left: the test says so");
  const auto freed = errors_of_ranks(
      2,
      [](int rank, Communicator* group) {
        if (rank == 1) group->barrier();
      },
      kGenerous, tcp_group());
  expect_error(freed[1], ErrorCode::peer_lost, "rank 0 has left: its group was freed");
}

TEST(TcpGroup, AbortEndsACallOfAnotherThread) {
  const auto errors = errors_of_ranks(
      2,
      [](int rank, Communicator* group) {
        std::thread other([&] {
          sleep_for(0.3);
          if (rank == 0) group->abort("the test says so");
        });
        try {
          if (rank == 0) group->barrier();
          other.join();
        } catch (const Error&) {
          other.join();
          throw;
        }
        group->barrier();  // rank 0 may have done its part of this call
        group->barrier();
      },
      kGenerous, tcp_group());
  for (const auto& error : errors)
    expect_error(error, ErrorCode::peer_lost, "rank 0 has left: the test says so");
}

// A linked group asks between calls.
TEST(TcpGroup, TellsBetweenCallsWhoHasLeftAndWhoIsBehind) {
  std::atomic<bool> looked{false};
  for_each_rank(
      3,
      [&](int rank, Communicator* group) {
        group->barrier();
        if (rank == 1) {
          group->come_to(1);
          while (!looked) sleep_for(0.01);
          return group->abort("the test says so");
        }
        group->come_to(2);
        if (rank == 2) {
          EXPECT_THROW(group->barrier(), Error);  // ends with rank 1
          return;
        }
        const auto until = [](const std::function<bool()>& holds) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (!holds() && std::chrono::steady_clock::now() < end) sleep_for(0.01);
          return holds();
        };
        EXPECT_TRUE(until([&] { return group->rank_behind(1) == -1; }));
        EXPECT_EQ(group->rank_behind(2), 1);
        EXPECT_EQ(group->why_ended(), "");
        looked = true;
        EXPECT_TRUE(until([&] { return !group->why_ended().empty(); }));
        EXPECT_NE(group->why_ended().find("the test says so"), std::string::npos)
            << group->why_ended();
      },
      kGenerous, tcp_group());
}

TEST(TcpGroup, PiecesOfDifferentSizesAreAnError) {
  const auto errors = errors_of_ranks(
      2,
      [](int rank, Communicator* group) {
        std::vector<char> mine(1000, 'x'), theirs(2000);
        const SendPiece send{1 - rank, mine.data(), mine.size()};
        const ReceivePiece receive{1 - rank, theirs.data(), rank == 0 ? 1000u : 2000u};
        group->exchange({&send, 1}, {&receive, 1});
        group->barrier();
      },
      kGenerous, tcp_group());
  expect_error(errors[1], ErrorCode::internal,
               "ranks exchange different pieces: 1000 bytes came instead of 2000");
  expect_error(errors[0], ErrorCode::peer_lost, "rank 1 has left");
}

TEST(TcpGroup, AllMustJoin) {
  const GroupTimeouts soon{.start = 1, .wait = 1};
  const GroupId id = tcp_group();
  std::optional<Error> of_rank_2;
  std::thread other([&] { of_rank_2 = error_of([&] { join_tcp_group(id, 2, 3, soon); }); });
  expect_error(error_of([&] { join_tcp_group(id, 0, 3, soon); }), ErrorCode::peer_lost,
               "rank 1 has not joined within 1 seconds");
  other.join();
  expect_error(of_rank_2, ErrorCode::peer_lost, "rank 1 has not joined within 1 seconds");
  // Nobody listens there any more.
  expect_error(error_of([&] { join_tcp_group(id, 1, 3, soon); }), ErrorCode::peer_lost,
               "rank 0 has not joined within 1 seconds at 127.0.0.1, port");
}

// Rank 0 and another that joins in a thread; returns the error of the other.
std::optional<Error> error_of_guest(const GroupId& id, const std::function<void()>& guest) {
  std::optional<Error> error;
  std::thread other([&] { error = error_of(guest); });
  const auto root = error_of([&] { join_tcp_group(id, 0, 3, {.start = 1.5, .wait = 2}); });
  EXPECT_TRUE(root);
  other.join();
  return error;
}

TEST(TcpGroup, RefusesRanksThatDoNotFit) {
  const GroupTimeouts soon{.start = 10, .wait = 2};
  GroupId id = tcp_group();
  expect_error(error_of_guest(id, [&] { join_tcp_group(id, 1, 4, soon); }),
               ErrorCode::invalid_argument, "rank 1 joins a group of 4, rank 0 one of 3");
  id = tcp_group();
  expect_error(error_of_guest(
                   id,
                   [&] {
                     std::thread first([&] { error_of([&] { join_tcp_group(id, 1, 3, soon); }); });
                     sleep_for(0.5);
                     const auto again = error_of([&] { join_tcp_group(id, 1, 3, soon); });
                     first.join();
                     if (again) throw *again;
                   }),
               ErrorCode::invalid_argument, "rank 1 has joined the group already");
  // The same place, and another token.
  id = tcp_group();
  const GroupId other =
      tcp_group("127.0.0.1:" + std::to_string(port_of_id(id)), "11f1e2d3c4b5a6978877665544332200");
  expect_error(error_of_guest(id, [&] { join_tcp_group(other, 1, 3, soon); }),
               ErrorCode::invalid_argument, "the rank that answers has another token");
  id = tcp_group();
  expect_error(error_of_guest(id,
                              [&] {
                                const auto deadline = tcp::after(10);
                                const tcp::Socket socket =
                                    tcp::connect_to(address_of_id(id), deadline);
                                tcp::call(socket, key_of_id(id), {1, 0, 3, 1, "0.0.7"}, deadline);
                              }),
               ErrorCode::version, "rank 1 has release 0.0.7, rank 0 has ");
}

TEST(TcpGroup, NamesAPortThatAnotherProgramHas) {
  const tcp::Socket taken = tcp::listen_at("127.0.0.1", 0);
  const std::string place = "127.0.0.1:" + std::to_string(tcp::port_of(taken));
  const GroupId id = tcp_group(place, kTcpToken);
  expect_error(error_of([&] { join_tcp_group(id, 0, 2, {.start = 1, .wait = 1}); }), ErrorCode::io,
               "cannot listen at 127.0.0.1, port " + std::to_string(tcp::port_of(taken)) +
                   ": Address already in use");
  std::thread program([&] {  // speaks first, and of something else
    for (tcp::Socket caller; !caller.is_open(); sleep_for(0.01))
      if ((caller = tcp::accept_from(taken)).is_open())
        tcp::send_all(caller, "220 mail.example ESMTP", tcp::after(1));
  });
  expect_error(error_of([&] { join_tcp_group(id, 1, 2, {.start = 5, .wait = 1}); }),
               ErrorCode::invalid_argument, "another program has that port");
  program.join();
}

// Connections without the token: of silence, of noise, of half a greeting, with a wrong code.
TEST(TcpGroup, StrangersDoNotDisturb) {
  const GroupId id = tcp_group();
  const tcp::Address place = address_of_id(id);
  std::atomic<bool> joined{false};
  const auto disturb = [&] {
    std::mt19937 random(1);
    std::deque<tcp::Socket> silent;
    for (int i = 0; !joined; ++i) try {
        tcp::Socket socket = tcp::connect_to(place, tcp::after(0.2));
        std::string noise(random() % 200, '\0');
        for (char& byte : noise) byte = static_cast<char>(random());
        if (i % 3 == 1) noise = ("trafotcp" + std::string("\2\0\0\0", 4) + noise).substr(0, 40);
        if (i % 3 == 2)
          noise = "trafotcp" + std::string("\2\0\0\0", 4) + std::string(32 + 46 + 32, 'x');
        tcp::send_all(socket, noise, tcp::after(0.2));
        silent.push_back(std::move(socket));
        if (silent.size() > 200) silent.pop_front();  // more than there are places for callers
      } catch (const tcp::Transient&) {               // hung up on
      }
  };
  std::jthread strangers(disturb);
  sleep_for(0.2);
  const auto error = error_of([&] {
    for_each_rank(
        3, [&](int, Communicator* group) { group->barrier(); }, kGenerous, id);
  });
  joined = true;
  EXPECT_FALSE(error) << (error ? error->what() : "");
}

// There are places for 256 callers beside the ranks; one more takes that of the first.
TEST(TcpGroup, ACallerKeepsItsPlaceUntilAllAreTaken) {
  const GroupId id = tcp_group();
  const auto join = [&](int rank) {
    return std::jthread(
        [&id, rank] { error_of([&] { join_tcp_group(id, rank, 3, kShortWait); }); });
  };
  const std::jthread root = join(0);
  const auto call = [&] { return tcp::connect_to(address_of_id(id), tcp::after(5)); };
  const auto is_hung_up_on = [](const tcp::Socket& socket) {
    char byte;
    return ::recv(socket.descriptor(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  const tcp::Socket first = call();
  std::deque<tcp::Socket> silent;
  while (silent.size() < 256 + 3 - 2) silent.push_back(call());
  const Stranger last(address_of_id(id));  // it was greeted, so those before it have been accepted
  EXPECT_FALSE(is_hung_up_on(first));
  const Stranger one_more(address_of_id(id));
  EXPECT_TRUE(is_hung_up_on(first));
  EXPECT_FALSE(is_hung_up_on(silent.front()));
  silent.clear();
  const std::jthread one = join(1), two = join(2);
}

TEST(TcpGroup, KnowsTheAddressesOfThisHostAlone) {
  const auto is_loopback = [](const char* number) {
    return tcp::resolve(number, 1).front().is_loopback();
  };
  for (const char* number : {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(number)) << number;
  for (const char* number :
       {"10.0.0.7", "128.0.0.1", "0.0.0.0", "::", "::2", "7f00::1", "fe80::1", "::ffff:10.0.0.7"})
    EXPECT_FALSE(is_loopback(number)) << number;
}

// With a proof of the host alone, a stranger could try tokens without asking anybody.
TEST(TcpGroup, TheHostProvesNothingToACallerThatHasNotProvedTheToken) {
  const GroupId id = tcp_group();
  const std::jthread root(
      [&] { error_of([&] { join_tcp_group(id, 0, 2, {.start = 8, .wait = 2}); }); });
  const tcp::Hello hello{1, 0, 2, 1, "0.1.0"};
  {
    const Stranger stranger(address_of_id(id));
    EXPECT_THROW(tcp::receive_all(stranger.socket, 1, tcp::after(0.5)), tcp::Transient);
    Sha256 guess = key_of_id(id);
    guess[31] ^= 1;
    EXPECT_EQ(stranger.prove(guess, hello), std::string(sizeof(Sha256), '\0'));
    EXPECT_TRUE(stranger.is_hung_up_on());
  }
  {  // the same with the key: the host proves it, too, and says why the release does not fit
    const Stranger caller(address_of_id(id));
    const tcp::Hello old{1, 0, 2, 1, "0.0.7"};
    const Sha256 key = key_of_id(id);
    EXPECT_EQ(caller.prove(key, old),
              text_of(hmac_sha256(key, {"host", caller.nonces, old.bytes()})));
  }
}

// A rank of another job that answers at the address proves nothing.
TEST(TcpGroup, ACallerTrustsNoHostWithoutTheToken) {
  const tcp::Socket listener = tcp::listen_at("127.0.0.1", 0);
  std::jthread host([&] {
    tcp::Socket caller;
    while (!caller.is_open()) {
      caller = tcp::accept_from(listener);
      sleep_for(0.01);
    }
    tcp::receive_all(caller, 12 + 32, tcp::after(5));
    tcp::send_all(caller, Stranger::opening() + std::string(32, 'n'), tcp::after(5));
    tcp::receive_all(caller, 46 + 32, tcp::after(5));
    const std::string answer(8, '\0');  // OK, and no text
    tcp::send_all(caller, std::string(32, 'p') + answer, tcp::after(5));
  });
  const tcp::Socket socket =
      tcp::connect_to(tcp::resolve("127.0.0.1", tcp::port_of(listener)).front(), tcp::after(5));
  expect_error(error_of([&] {
                 tcp::call(socket, Sha256{1, 2, 3}, {1, 0, 2, 1, "0.1.0"}, tcp::after(5));
               }),
               ErrorCode::invalid_argument, "the rank that answers has another token");
}

TEST(TcpGroup, StrangersAreHungUpOnAtTheFirstWrongByte) {
  const GroupId id = tcp_group();
  const std::jthread root(
      [&] { error_of([&] { join_tcp_group(id, 0, 2, {.start = 6, .wait = 2}); }); });
  for (const std::string& begin :
       {std::string("T"), std::string("trafotcq"), "trafotcp" + std::string("\1\0\0\0", 4)}) {
    const tcp::Socket socket = tcp::connect_to(address_of_id(id), tcp::after(5));
    tcp::send_all(socket, begin, tcp::after(1));
    const auto before = std::chrono::steady_clock::now();
    EXPECT_THROW(tcp::receive_all(socket, 1, tcp::after(5)), tcp::Transient) << begin;
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4)) << begin;
  }
}

// A rank that was started anew before all had come.
TEST(TcpGroup, ARankMayComeAgainBeforeAllHaveJoined) {
  const GroupId id = tcp_group();
  const GroupTimeouts soon{.start = 10, .wait = 10};
  std::vector<std::thread> ranks;
  std::atomic<int> joined{0};
  const auto join = [&](int rank) {
    const auto group = join_tcp_group(id, rank, 3, soon);
    group->barrier();
    ++joined;
  };
  ranks.emplace_back([&] { join(0); });
  {  // the first life of rank 1 ends before the answer
    const tcp::Socket socket = tcp::connect_to(address_of_id(id), tcp::after(5));
    EXPECT_THROW(tcp::call(socket, key_of_id(id), {1, 0, 3, 1, "0.1.0"}, tcp::after(0.5)),
                 tcp::Transient);
  }
  ranks.emplace_back([&] { join(1); });
  ranks.emplace_back([&] { join(2); });
  for (std::thread& each : ranks) each.join();
  EXPECT_EQ(joined, 3);
}

// Two ends of a connection: a wire and a socket that sends what the test wants.
struct WireAndPeer {
  std::unique_ptr<tcp::Wire> wire;
  tcp::Socket peer;

  WireAndPeer() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
    peer = tcp::Socket(ends[1]);
    std::vector<tcp::Socket> peers(2);
    peers[1] = tcp::Socket(ends[0]);
    wire = std::make_unique<tcp::Wire>(std::move(peers));
  }
  std::optional<tcp::Wire::Lost> lost() {
    for (int i = 0; i < 20; ++i) wire->move(1);
    return wire->next_lost();
  }
};

std::string head(int32_t tag, uint32_t zero, int64_t bytes) {
  std::string text(16, '\0');
  std::memcpy(text.data(), &tag, 4);
  std::memcpy(text.data() + 4, &zero, 4);
  std::memcpy(text.data() + 8, &bytes, 8);
  return text;
}

TEST(TcpWire, BadHeadsEndTheConnection) {
  for (const std::string& bad :
       {head(0, 0, 1), head(4, 0, 1), head(-1, 0, 1), head(1, 1, 1), head(1, 0, -1),
        head(1, 0, int64_t{1} << 31), head(3, 0, 4097), head(2, 0, 0)}) {
    WireAndPeer pair;
    tcp::send_all(pair.peer, bad, tcp::after(1));
    const auto lost = pair.lost();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->peer, 1);
    EXPECT_EQ(lost->reason, "it has sent what is no message");
    EXPECT_FALSE(pair.wire->next_lost());
  }
}

// A head that announces a gigabyte takes no memory before the bytes come.
TEST(TcpWire, MemoryComesWithTheBytes) {
  WireAndPeer pair;
  tcp::send_all(pair.peer, head(1, 0, int64_t{1} << 30) + "abc", tcp::after(1));
  EXPECT_FALSE(pair.lost());
  EXPECT_FALSE(pair.wire->probe(1, 1));
  pair.peer.close();
  EXPECT_EQ(pair.lost()->reason, "its connection has ended");
}

TEST(TcpWire, RandomBytesDoNoHarm) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    WireAndPeer pair;
    std::vector<char> place(64);
    pair.wire->receive(place.data(), 64, 1, 2);
    std::string bytes;
    for (int i = 0; i < 4; ++i) {
      const auto size = static_cast<int64_t>(random() % 80);
      bytes += head(static_cast<int32_t>(random() % 4), 0, size) +
               std::string(static_cast<size_t>(size), 'x');
    }
    for (int flips = static_cast<int>(random() % 4); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    tcp::send_all(pair.peer, bytes.substr(0, random() % (bytes.size() + 1)), tcp::after(1));
    if (random() % 2) pair.peer.close();
    for (int i = 0; i < 3; ++i) pair.wire->move(0);
    if (random() % 2) pair.wire->abandon();
    for (int i = 0; i < 3; ++i) pair.wire->move(0);
    for (const int tag : {1, 3})
      while (const auto message = pair.wire->probe(-1, tag)) {
        std::string text(static_cast<size_t>(message->bytes), '\0');
        EXPECT_TRUE(pair.wire->test(
            pair.wire->receive(text.data(), message->bytes, message->from, tag), nullptr));
      }
    pair.peer.close();
  }
}

// A call has failed in the middle of a message: its memory goes, and what follows still comes.
TEST(TcpWire, AbandonedMessagesAreFinished) {
  WireAndPeer pair;
  auto sent = std::make_unique<std::vector<char>>(8 << 20, 'a');
  auto place = std::make_unique<std::vector<char>>(1000);
  pair.wire->send(sent->data(), static_cast<int64_t>(sent->size()), 1, 2);
  pair.wire->receive(place->data(), 1000, 1, 2);
  tcp::send_all(pair.peer, head(2, 0, 1000) + std::string(400, 'b'), tcp::after(1));
  for (int i = 0; i < 3; ++i) pair.wire->move(1);
  pair.wire->abandon();
  sent.reset();
  place.reset();
  const std::string notice = "why";
  pair.wire->send(notice.data(), 3, 1, 3);
  tcp::send_all(pair.peer, std::string(600, 'b') + head(1, 0, 4) + "text", tcp::after(1));
  std::string received;
  const size_t all = 16 + (8 << 20) + 16 + 3;
  for (int i = 0; received.size() < all && i < 10000; ++i) {
    pair.wire->move(0);
    char part[65536];
    const ssize_t count = recv(pair.peer.descriptor(), part, sizeof part, 0);
    if (count > 0) received.append(part, static_cast<size_t>(count));
  }
  ASSERT_EQ(received.size(), all);
  EXPECT_EQ(received.substr(16, 8 << 20), std::string(8 << 20, 'a'));
  EXPECT_EQ(received.substr(all - 3), "why");
  const auto message = pair.wire->probe(1, 1);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->bytes, 4);
}

}  // namespace
}  // namespace trafo
