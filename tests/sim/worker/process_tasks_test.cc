#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "sim/worker/process_tasks.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class MapStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); }))
      throw CommError(CommFailure::timeout, key);
    return values_[key];
  }
  int64_t add(const std::string&, int64_t) override { return 0; }
  bool has(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Claim {
  int64_t rank, world_size;
};

// What each process is told: "" or "rejected: why". A process of rank -1 never comes. peers: whom
// each is told of.
std::vector<std::string> all_sign_in(const std::vector<Claim>& claims,
                                     std::vector<int64_t>* peers = nullptr) {
  MapStore store;
  std::vector<std::string> told(claims.size());
  std::vector<int64_t> accused(claims.size(), -1);
  std::vector<std::thread> threads;
  const auto count = static_cast<int64_t>(claims.size());
  for (int64_t p = 0; p < count; ++p) {
    const Claim claim = claims[static_cast<size_t>(p)];
    if (claim.rank < 0) continue;
    threads.emplace_back([&, p, claim] {
      CommOptions options;
      options.rank = claim.rank;
      options.world_size = claim.world_size;
      try {
        sign_in(store, options, p, count, deadline_after(std::chrono::milliseconds(200)));
      } catch (const CommError& error) {
        told[static_cast<size_t>(p)] = std::string(to_word(error.kind())) + ": " + error.what();
        accused[static_cast<size_t>(p)] = error.facts().peer;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (peers != nullptr) *peers = accused;
  return told;
}

TEST(SignIn, RanksThatFitTogetherPass) {
  for (const int64_t size : {1, 2, 3, 7}) {
    std::vector<Claim> claims;
    for (int64_t rank = 0; rank < size; ++rank) claims.push_back({rank, size});
    for (const std::string& told : all_sign_in(claims)) EXPECT_EQ(told, "");
  }
}

TEST(SignIn, ARankThatIsTakenIsRejectedAndTheOthersHearOfIt) {
  std::vector<int64_t> peers;
  const auto told = all_sign_in({{0, 3}, {1, 3}, {1, 3}}, &peers);
  EXPECT_EQ(peers,
            (std::vector<int64_t>{2, 2, 2}));  // and not rank 1, though the sentence names it
  EXPECT_EQ(told[2], "rejected: rendezvous: processes 1 and 2 both say that they are rank 1");
  EXPECT_THAT(told[0], StartsWith("peer_lost: rendezvous: processes 1 and 2"));
  EXPECT_THAT(told[1], StartsWith("peer_lost: rendezvous: processes 1 and 2"));
  EXPECT_THAT(all_sign_in({{1, 2}, {1, 2}})[0], StartsWith("rejected"));
}

TEST(SignIn, AnotherWorldSizeThanMostIsRejected) {
  const auto told = all_sign_in({{0, 4}, {1, 3}, {2, 3}});
  EXPECT_EQ(told[0], "rejected: rendezvous: process 0 expects 4 ranks, the others 3");
  EXPECT_THAT(told[1], StartsWith("peer_lost"));
}

TEST(SignIn, WhoDoesNotComeIsNamed) {
  const auto told = all_sign_in({{0, 3}, {1, 3}, {-1, 3}});
  EXPECT_EQ(told[0], "timeout: rendezvous: rank 2 has not signed in");
  EXPECT_THAT(told[1], StartsWith("timeout: "));
}

}  // namespace

}  // namespace lockstep
