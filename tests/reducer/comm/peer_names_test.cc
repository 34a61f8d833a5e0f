#include "reducer/gloo/peer_names.h"

#include <arpa/inet.h>
#include <gloo/rendezvous/context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "reducer/gloo/gloo_store.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

constexpr const char* kError = "all_reduce: Connection closed by peer ";

// What Gloo's error about `address` becomes on rank 2 of 3.
std::string named(Store& store, const std::string& address, const std::string& rest = "") {
  const gloo::rendezvous::Context context(2, 3);
  const CommError error(CommFailure::peer_lost, kError + address + rest);
  return naming_peer(error, context, store, "group").what();
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

TEST(PeerNames, ByTheAddressOfTheConnection) {
  MemoryStore store;
  store.set("groupaddresses/0", "- [127.0.0.1]:100 [127.0.0.1]:200 ");
  store.set("groupaddresses/1", "[127.0.0.1]:300 - [127.0.0.1]:20 ");
  EXPECT_EQ(named(store, "[127.0.0.1]:200"), kError + std::string("[127.0.0.1]:200 (rank 0)"));
  EXPECT_EQ(named(store, "[127.0.0.1]:20", ": reset"),
            kError + std::string("[127.0.0.1]:20 (rank 1): reset"));
  EXPECT_EQ(named(store, "[127.0.0.1]:2"), kError + std::string("[127.0.0.1]:2"));
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
