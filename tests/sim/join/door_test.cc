#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <random>
#include <set>

#include "scenarios/base/random_bytes.h"
#include "sim/join/door.h"
#include "sim/join/wire.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kIdentity = "identity that nobody is told";

Deadline shortly() { return deadline_after(milliseconds(5000)); }

MemberIdentity somebody(std::vector<int64_t> ranks) {
  return {"", "about", "", std::move(ranks), "h", "here"};
}

// A door in a loop of its own, and strangers before it.
class DoorTest : public testing::Test {
 protected:
  void open(const std::string& key = "the job's key", milliseconds patience = milliseconds(5000)) {
    credentials_ = {key, kIdentity};
    secret_ = rendezvous_secret(credentials_, "");
    std::string why;
    UniqueFd listener = listen_at({"127.0.0.1", 0}, &why);
    ASSERT_TRUE(listener.valid()) << why;
    at_ = {"127.0.0.1", port_of(listener)};
    door_ = std::make_unique<Door>(
        loop_, std::move(listener),
        Door::Options{"", secret_, "about", !key.empty(),
                      [this](const std::string& what) { told_.push_back(what); }, patience},
        Door::Handlers{[](const MemberIdentity&) { return ""; },
                       [this](Wire wire, const MemberIdentity& member) {
                         wires_.push_back(std::move(wire));
                         members_.push_back(member);
                       },
                       [](const MemberIdentity&, const std::string&) {}});
  }
  UniqueFd connect() {
    std::string why;
    return connect_to(at_, shortly(), &why);
  }
  void pass(milliseconds time) {
    for (const Deadline end = deadline_after(time); time_left(end).count() > 0;)
      loop_.wait(milliseconds(5));
  }
  Joined join(const std::string& secret) {
    return ask_to_join(loop_, Wire(connect()), somebody({1}), secret, shortly());
  }
  // A member of the job comes in at once, whatever strangers do.
  void expect_open() {
    const Deadline begin = Clock::now();
    Joined joined = join(secret_);
    EXPECT_TRUE(joined.wire.is_open()) << joined.why;
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
  }
  // All that comes until it is closed.
  std::string heard(int fd) {
    std::string all;
    char buffer[4096];
    for (const Deadline end = shortly(); time_left(end).count() > 0;) {
      loop_.wait(milliseconds(5));
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) all.append(buffer, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN)) break;
    }
    return all;
  }
  EventLoop loop_;
  HostPort at_;
  Credentials credentials_;
  std::string secret_;
  std::vector<std::string> told_;
  std::vector<Wire> wires_;
  std::vector<MemberIdentity> members_;
  std::unique_ptr<Door> door_;
};

TEST_F(DoorTest, AMemberComesInAndSpeaksSealed) {
  open();
  Joined joined = join(secret_);
  ASSERT_TRUE(joined.wire.is_open());
  ASSERT_EQ(wires_.size(), 1u);
  EXPECT_EQ(members_[0].ranks, (std::vector<int64_t>{1}));
  Wire::Message message;
  for (const char* word : {"one", "two"}) {
    joined.wire.send({word, std::string("\0", 1)});
    pass(milliseconds(5));
    ASSERT_EQ(wires_[0].receive(&message), Channel::Got::message);
    EXPECT_EQ(message, (Wire::Message{word, std::string("\0", 1)}));
    wires_[0].send(message);
    pass(milliseconds(5));
    ASSERT_EQ(joined.wire.receive(&message), Channel::Got::message);
  }
}

TEST_F(DoorTest, WhoDoesNotKnowTheSecretIsToldNothing) {
  for (const char* key : {"", "the job's key"}) {
    open(key);
    const UniqueFd fd = connect();
    Wire stranger{UniqueFd(::dup(fd.get()))};
    stranger.send({"join", std::string(kNonceBytes, 'n'), encode(somebody({0})),
                   std::string(kProofBytes, 'p')});
    const std::string all = heard(fd.get());
    EXPECT_THAT(all, HasSubstr("refused"));
    EXPECT_THAT(all, Not(HasSubstr(kIdentity)));
    EXPECT_THAT(all, Not(HasSubstr("the job's key=")));
    EXPECT_THAT(all, Not(HasSubstr("about")));
    EXPECT_TRUE(members_.empty());
    ASSERT_EQ(told_.size(), 1u);
    told_.clear();
    expect_open();
    members_.clear();
  }
}

TEST_F(DoorTest, AJoinWithoutRanksIsClosed) {
  open();
  for (const char* ranks :
       {"[]", "[[1,0]]", "[[-1,0]]", "[[0,1],[1,2]]", "[[0,9000000]]", "[[0,1e38]]", "[0]"}) {
    const UniqueFd fd = connect();
    Wire stranger{UniqueFd(::dup(fd.get()))};
    const std::string text = fmt::format(
        R"({{"nonce":"","about":"","identity":"","ranks":{},"host":"h","where":"w"}})", ranks);
    EXPECT_FALSE(decode_member(text)) << ranks;
    stranger.send({"join", std::string(kNonceBytes, 'n'), text, ""});
    EXPECT_THAT(heard(fd.get()), Not(HasSubstr("refused")));
  }
  expect_open();
}

TEST(Messages, OneReaderDecidesWhatIsJson) {
  const std::string end = encode(ProcessEnd{.who = "rank-1", .rank = 1});
  ASSERT_TRUE(decode_end(end)) << end;
  // What shows that a rank was starved reaches rank 0 as well.
  ProcessEnd starved{.who = "rank-1", .rank = 1};
  starved.state.emplace().state = 'R';
  starved.state->core_wait_ns = 1'500'000'000;
  const auto told = decode_end(encode(starved));
  ASSERT_TRUE(told && told->state);
  EXPECT_EQ(told->state->state, 'R');
  EXPECT_EQ(told->state->core_wait_ns, 1'500'000'000);
  starved.state->core_wait_ns = -1;
  EXPECT_FALSE(decode_end(encode(starved)));
  // The library would convert any number to an int.
  const std::string signal = R"("signal":0)";
  ASSERT_NE(end.find(signal), std::string::npos) << end;
  for (const char* beyond : {"1e308", "4294967296", "true", "9.0"})
    EXPECT_FALSE(decode_end(std::string(end).replace(end.find(signal), signal.size(),
                                                     fmt::format(R"("signal":{})", beyond))));
  // Which of two would count is another question for each reader.
  EXPECT_FALSE(decode_end("{\"rank\": 0," + end.substr(1)));
  EXPECT_FALSE(decode_end(std::string(300'000, '[')));
  EXPECT_FALSE(decode_members("{\"0\": " + encode(somebody({1})) + "}"));
  EXPECT_FALSE(decode_members("[" + std::string(300'000, '[')));
  EXPECT_TRUE(decode_members("[" + encode(somebody({1})) + "]"));
}

// The same bytes as a member's, on another connection.
TEST_F(DoorTest, ARecordedJoinIsWorthNothing) {
  open();
  UniqueFd honest = connect();
  loop_.wait(milliseconds(20));
  pass(milliseconds(20));
  Wire wire(std::move(honest));
  Wire::Message hello;
  ASSERT_EQ(wire.receive(&hello), Channel::Got::message);
  const std::string nonce = random_bytes(kNonceBytes), text = encode(somebody({1}));
  const ConnectionKeys keys = connection_keys(secret_, hello[2], nonce);
  const std::string proof =
      hmac_sha256(keys.member_proves, fmt::format("4:join{}:{}", text.size(), text));
  const Wire::Message join = {"join", nonce, text, proof};
  wire.send(join);
  pass(milliseconds(20));
  ASSERT_EQ(members_.size(), 1u);  // that was a right one
  Wire replay(connect());
  replay.send(join);
  pass(milliseconds(50));
  EXPECT_EQ(members_.size(), 1u);
  EXPECT_THAT(told_.back(), HasSubstr("it does not know the job's key"));
}

TEST_F(DoorTest, ARecordedMessageCannotBeSaidAgain) {
  const auto proofs = [](size_t messages) {
    Seal seal("key");
    std::set<std::string> all;
    for (size_t i = 0; i < messages; ++i) all.insert(seal.next("the same message"));
    return all.size();
  };
  EXPECT_EQ(proofs(1000), 1000u);
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Wire sender{UniqueFd(::dup(fds[0]))}, receiver{UniqueFd(fds[1])};
  const UniqueFd raw(fds[0]);
  sender.seal("a", "b");
  receiver.seal("b", "a");
  sender.send({"end", "m1"});
  char bytes[4096];
  const ssize_t n = ::recv(receiver.fd(), bytes, sizeof bytes, MSG_PEEK);
  ASSERT_GT(n, 0);
  Wire::Message message;
  EXPECT_EQ(receiver.receive(&message), Channel::Got::message);
  ASSERT_EQ(::write(raw.get(), bytes, static_cast<size_t>(n)), n);
  EXPECT_EQ(receiver.receive(&message), Channel::Got::closed);
}

TEST_F(DoorTest, WhatIsDamagedClosesTheConnection) {
  for (const size_t at : {0u, 4u, 8u, 20u, 40u}) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Wire sender{UniqueFd(fds[0])}, receiver{UniqueFd(fds[1])};
    sender.seal("a", "b");
    sender.send({"set", "m1", "key"});
    char bytes[4096];
    const ssize_t n = ::recv(receiver.fd(), bytes, sizeof bytes, 0);
    ASSERT_GT(n, static_cast<ssize_t>(at));
    bytes[at] ^= 1;
    int again[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, again), 0);
    Wire damaged{UniqueFd(again[0])};
    UniqueFd writer(again[1]);
    damaged.seal("b", "a");
    ASSERT_EQ(::write(writer.get(), bytes, static_cast<size_t>(n)), n);
    writer.reset();
    Wire::Message message;
    EXPECT_EQ(damaged.receive(&message), Channel::Got::closed) << at;
  }
}

TEST_F(DoorTest, SilentOnesKeepNobodyOut) {
  open();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connect());
    if (i % 50 == 49) loop_.wait(milliseconds(5));
  }
  pass(milliseconds(20));
  EXPECT_LE(door_->strangers(), 256u);
  expect_open();
}

TEST_F(DoorTest, FloodsResetsAndRandomBytesKeepNobodyOut) {
  open();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    UniqueFd fd = connect();
    std::string bytes(random() % 8000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 0) bytes.assign(8000, '\0');  // messages without a field
    (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const linger reset{1, 0};
    if (i % 2 == 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    loop_.wait(milliseconds(1));
  }
  expect_open();
  pass(milliseconds(20));
  EXPECT_EQ(door_->strangers(), 0u);
  EXPECT_EQ(members_.size(), 1u);
  EXPECT_LE(told_.size(), 6u);  // a log is no place for floods
}

// A byte now and then, or a length that promises more.
TEST_F(DoorTest, SlowOnesAreSentAway) {
  open("the job's key", milliseconds(300));
  const UniqueFd slow = connect(), promising = connect();
  const std::string length("\xf0\x0f\0\0", 4);
  ASSERT_EQ(::write(promising.get(), length.data(), length.size()), 4);
  for (int i = 0; i < 10; ++i) {
    (void)!::send(slow.get(), "\x01", 1, MSG_NOSIGNAL);
    pass(milliseconds(100));
    if (i == 1) expect_open();
  }
  EXPECT_EQ(door_->strangers(), 0u);
}

TEST_F(DoorTest, ALongJoinIsClosed) {
  open();
  const UniqueFd fd = connect();
  Wire stranger{UniqueFd(::dup(fd.get()))};
  stranger.seal("", "");  // so that it may send this much
  stranger.send({"join", std::string(60'000, 'x')});
  pass(milliseconds(50));
  EXPECT_EQ(door_->strangers(), 0u);
}

TEST_F(DoorTest, WhereNoDescriptorIsLeftTheOldestGoes) {
  open();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(connect());
  pass(milliseconds(20));
  ASSERT_EQ(door_->strangers(), 8u);
  UniqueFd member = connect();
  const UniqueFd highest(::dup(0));
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(highest.get());  // none above those that are open
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Joined joined = ask_to_join(loop_, Wire(std::move(member)), somebody({1}), secret_, shortly());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(joined.wire.is_open()) << joined.why;
}

// Who listens at rank 0's port without knowing the secret gets no member.
TEST_F(DoorTest, AMemberTrustsNoStrangerEither) {
  std::string why;
  UniqueFd listener = listen_at({"127.0.0.1", 0}, &why);
  at_ = {"127.0.0.1", port_of(listener)};
  std::unique_ptr<Wire> impostor;
  loop_.watch(listener.get(), [&] {
    impostor = std::make_unique<Wire>(UniqueFd(::accept(listener.get(), nullptr, nullptr)));
    impostor->send({"lockstep", "1", std::string(kNonceBytes, 'n')});
    impostor->send({"ok", std::string(kProofBytes, 'p')});
  });
  const Joined joined = join(rendezvous_secret({"the job's key", kIdentity}, ""));
  loop_.forget(listener.get());
  EXPECT_FALSE(joined.wire.is_open());
  EXPECT_EQ(joined.why, "who answers there is not rank 0 of this job");
}

}  // namespace

}  // namespace lockstep
