#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

constexpr int64_t kMeeting = 3;

// On which TCP ports this process listens now.
std::vector<uint16_t> listening_ports() {
  std::vector<uint16_t> ports;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_in address{};
    socklen_t address_length = sizeof address;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_length) == 0 &&
        address.sin_family == AF_INET)
      ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

enum class Manner { silent, reset, random };

// Connects to every port at which this process listens, again and again.
class Stranger {
 public:
  explicit Stranger(Manner manner) : manner_(manner), thread_([this] { run(); }) {}
  ~Stranger() {
    over_ = true;
    thread_.join();
    for (const int fd : held_) ::close(fd);
  }
  int64_t connections() const { return connections_; }

 private:
  void run() {
    while (!over_)
      for (const uint16_t port : listening_ports()) visit(port);
  }
  void visit(uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      ++connections_;
    if (manner_ == Manner::silent && held_.size() < 300) return held_.push_back(fd);
    const linger reset{1, 0};
    if (manner_ == Manner::reset) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const std::string bytes(100, '\xa5');
    if (manner_ == Manner::random) (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::close(fd);
  }

  const Manner manner_;
  std::atomic<bool> over_{false};
  std::atomic<int64_t> connections_{0};
  std::vector<int> held_;
  std::thread thread_;
};

// Ranks come one after the other, so that ports stay open for a while.
std::string meet_and_add(const std::string& kind, int64_t rank,
                         const std::shared_ptr<Store>& store) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30 * rank));
  try {
    const CommOptions options{rank, kMeeting, "ring", "127.0.0.1", "test/"};
    const auto communicator = kind == "gloo" ? make_gloo_communicator(options, store, soon())
                                             : make_c10d_communicator(options, store, soon());
    at::Tensor tensor = at::full({1000}, static_cast<double>(rank + 1), at::kFloat);
    communicator->all_reduce(tensor, soon())->wait();
    communicator->close(soon());
    return tensor[999].item<float>() == 6.0F ? "" : "a wrong sum";
  } catch (const std::exception& error) {
    return error.what();
  }
}

class Strangers : public testing::TestWithParam<std::tuple<const char*, Manner>> {};

// Gloo of 2022 takes the first that connects for the rank that it waits for, and a connection that
// is reset at once ends the process.
TEST_P(Strangers, AtGloosPortsDisturbNoRank) {
  const auto& [kind, manner] = GetParam();
  Stranger stranger(manner);
  for (int run = 0; run < 5 || (stranger.connections() == 0 && run < 50); ++run) {
    const auto store = std::make_shared<MemoryStore>();
    std::vector<std::string> problems(kMeeting);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < kMeeting; ++rank)
      threads.emplace_back([&, rank, name = std::string(kind)] {
        problems[static_cast<size_t>(rank)] = meet_and_add(name, rank, store);
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& problem : problems) EXPECT_EQ(problem, "") << "run " << run;
  }
  EXPECT_GT(stranger.connections(), 0);
}

INSTANTIATE_TEST_SUITE_P(Comm, Strangers,
                         testing::Combine(testing::Values("gloo", "c10d"),
                                          testing::Values(Manner::silent, Manner::reset,
                                                          Manner::random)));

}  // namespace
}  // namespace lockstep
