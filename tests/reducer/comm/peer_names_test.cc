#include "reducer/gloo/gloo_context.h"

#include <arpa/inet.h>
#include <gloo/rendezvous/context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

constexpr const char* kError = "all_reduce: Connection closed by peer ";

// What Gloo's error about `address` becomes on rank 2 of 3.
CommError error_about(Store& store, const std::string& address, const std::string& rest = "",
                      RankNames names = {}) {
  const gloo::rendezvous::Context context(2, 3);
  const CommError error(CommFailure::peer_lost, kError + address + rest);
  CommOptions options;
  options.prefix = "group";
  options.names = names;
  return naming_peer(error, context, store, options);
}
std::string named(Store& store, const std::string& address, const std::string& rest = "") {
  return error_about(store, address, rest).what();
}

// Addresses as ranks exchange them when they connect: sockaddrs one after another.
std::string exchanged(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string bytes(128, '\0');
  std::memcpy(bytes.data() + 64, &address, sizeof address);
  return bytes;
}

// What the Gloo of LibTorch 1.13 (2022) to 2.11 says, word by word.
TEST(GlooSentences, AreTranslatedInOnePlace) {
  const std::vector<std::pair<std::string, CommFailure>> sentences = {
      {"[./gloo/transport/tcp/pair.cc:589] Connection closed by peer [127.0.0.1]:41234",
       CommFailure::peer_lost},
      {"[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:41234. This is "
       "typically due to a time-out of another process",
       CommFailure::peer_lost},
      {"[./gloo/transport/tcp/pair.cc:534] Read error [127.0.0.1]:41234: Connection reset by peer",
       CommFailure::peer_lost},
      {"[./gloo/transport/tcp/pair.cc:408] Write error [127.0.0.1]:41234: Broken pipe",
       CommFailure::peer_lost},
      {"[./gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:41234: Connection refused",
       CommFailure::peer_lost},
      {"[./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600ms for recv operation to "
       "complete",
       CommFailure::timeout},
      {"[./gloo/transport/tcp/unbound_buffer.cc:133] Timed out waiting 600ms for send operation to "
       "complete",
       CommFailure::timeout},
      {"[./gloo/transport/tcp/pair.cc:769] Connect timeout [127.0.0.1]:41234",
       CommFailure::timeout},
      {"[./gloo/transport/tcp/socket.cc:12] no such device", CommFailure::rejected}};
  for (const auto& [sentence, kind] : sentences) {
    const std::runtime_error said(sentence);
    EXPECT_EQ(gloo_error("barrier", said, false).kind(), kind) << sentence;
    EXPECT_EQ(gloo_error("barrier", said, true).kind(), CommFailure::timeout) << sentence;
    EXPECT_EQ(gloo_error("barrier", said, false).facts().peer, -1) << sentence;
  }
}

TEST(PeerNames, ByTheAddressOfTheConnection) {
  MemoryStore store;
  store.set("groupaddresses/0", "- [127.0.0.1]:100 [127.0.0.1]:200 ");
  store.set("groupaddresses/1", "[127.0.0.1]:300 - [127.0.0.1]:20 ");
  EXPECT_EQ(named(store, "[127.0.0.1]:200"), kError + std::string("[127.0.0.1]:200 (rank 0)"));
  EXPECT_EQ(named(store, "[127.0.0.1]:20", ": reset"),
            kError + std::string("[127.0.0.1]:20 (rank 1): reset"));
  EXPECT_EQ(named(store, "[127.0.0.1]:2"), kError + std::string("[127.0.0.1]:2"));
}

TEST(PeerNames, ThePeerIsAFieldAndARankOfTheWholeJob) {
  MemoryStore store;
  store.set("groupaddresses/1", "[127.0.0.1]:300 - [127.0.0.1]:20 ");
  EXPECT_EQ(error_about(store, "[127.0.0.1]:20").facts().peer, 1);
  EXPECT_EQ(error_about(store, "[127.0.0.1]:20", "", {.first = 0, .stride = 4}).facts().peer, 4);
  EXPECT_STREQ(error_about(store, "[127.0.0.1]:20", "", {.first = 0, .stride = 4}).what(),
               (kError + std::string("[127.0.0.1]:20 (rank 4)")).c_str());
  // A rank that the sentence happens to name is no peer.
  EXPECT_EQ(error_about(store, "of rank 1").facts().peer, -1);
  EXPECT_EQ(error_about(store, "[127.0.0.1]:7", " (rank 1)").facts().peer, -1);
}

TEST(PeerNames, ByTheAddressThatThePeerListenedAt) {
  MemoryStore store;
  store.set(std::string("group") + kGlooPrefix + "0", exchanged(htons(41234)));
  store.set(std::string("group") + kGlooPrefix + "1", exchanged(54680));  // as Gloo of 2022 says it
  EXPECT_EQ(named(store, "[127.0.0.1]:41234"), kError + std::string("[127.0.0.1]:41234 (rank 0)"));
  EXPECT_EQ(named(store, "[127.0.0.1]:54680", ": reset"),
            kError + std::string("[127.0.0.1]:54680 (rank 1): reset"));
  EXPECT_EQ(named(store, "[127.0.0.2]:54680"), kError + std::string("[127.0.0.2]:54680"));
  EXPECT_EQ(named(store, "somebody"), kError + std::string("somebody"));
}

}  // namespace
}  // namespace lockstep
