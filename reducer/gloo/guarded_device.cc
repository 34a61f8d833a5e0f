#include "reducer/gloo/gloo_context.h"

#include <gloo/transport/tcp/device.h>

#include "scenarios/base/random_bytes.h"

#if !__has_include(<gloo/transport/tcp/listener.h>)
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <mutex>
#endif

namespace lockstep {
namespace {

constexpr size_t kTokenBytes = 32;

}  // namespace

std::string shared_token(int64_t rank, Store& store, const std::string& prefix, Deadline deadline) {
  const std::string key = prefix + "token";
  if (rank != 0) return store.get(key, deadline);
  std::string token = random_bytes(kTokenBytes);
  store.set(key, token);
  return token;
}

#if !__has_include( \
    <gloo/transport/tcp/listener.h>)  // numbered_device.cc has those that listen once

namespace {

namespace tcp = gloo::transport::tcp;

constexpr size_t kCandidatesMax = 64;
constexpr int kAcceptedAtATime = 16;
constexpr int kBacklog = 128;
constexpr int kTries = 10;

std::string introduction(const std::string& token, int from, int to) {
  return token + std::to_string(from) + ">" + std::to_string(to) + ";";
}

bool same(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

// What is called with Gloo's lock held is what Gloo calls so.
class GuardedPair : public tcp::Pair {
 public:
  GuardedPair(tcp::Context* context, tcp::Device* device, int peer,
              std::chrono::milliseconds timeout, const std::string& token)
      : Pair(context, device, peer, timeout),
        own_(introduction(token, context->rank, peer)),
        expected_(introduction(token, peer, context->rank)) {
    const std::lock_guard<std::mutex> lock(m_);
    untouched_ = state_ == LISTENING;
    if (untouched_) ::listen(fd_, kBacklog);  // Gloo's 1 has no room beside a stranger
  }
  ~GuardedPair() override {
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) GuardedPair::changeState(CLOSED);
  }
  // Nobody has connected while this was not yet what it is.
  bool untouched() const { return untouched_; }

  // An exception would end Gloo's thread and the process with it: it goes to who waits.
  void handleEvents(int events) override {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock || state_ == CLOSED) return;  // the loop comes again; or it is a late event
    try {
      if (state_ == LISTENING) {
        look_for_peer();
      } else if (state_ == CONNECTING) {
        handleConnecting();
        if (state_ == CONNECTED) introduce();
      } else {
        handleReadWrite(events);
      }
    } catch (const std::exception&) {
      if (ex_ == nullptr) signalException(std::current_exception());
    }
  }

 protected:
  void changeState(state next) noexcept override {
    if (next != LISTENING) drop_candidates();
    Pair::changeState(next);
  }

 private:
  struct Candidate {
    int fd;
    std::string said;
  };
  enum class Heard { part, peer, stranger };

  void introduce() {
    const ssize_t n = ::send(fd_, own_.data(), own_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != static_cast<ssize_t>(own_.size()))
      signalException("Write error: the connection takes no introduction");
  }

  void look_for_peer() {
    accept_candidates();
    for (auto one = candidates_.begin(); one != candidates_.end();) {
      const Heard heard = listen_to(*one);
      if (heard == Heard::peer) return adopt(one->fd);
      if (heard == Heard::stranger) ::close(one->fd);
      one = heard == Heard::stranger ? candidates_.erase(one) : one + 1;
    }
  }

  // The oldest go where more come than fit.
  void accept_candidates() {
    for (int i = 0; i < kAcceptedAtATime; ++i) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, 0) != 1) return;  // the listener blocks
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      const bool no_room = fd < 0 && (errno == EMFILE || errno == ENFILE);
      if (!candidates_.empty() && (no_room || candidates_.size() == kCandidatesMax)) {
        ::close(candidates_.front().fd);
        candidates_.pop_front();
      }
      if (fd < 0) continue;
      candidates_.push_back({fd, ""});
      device_->registerDescriptor(fd, EPOLLIN, this);
    }
  }

  // Not a byte more than the introduction: what follows is Gloo's.
  Heard listen_to(Candidate& one) const {
    std::string bytes(expected_.size() - one.said.size(), '\0');
    const ssize_t n = ::recv(one.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::part;
    if (n <= 0) return Heard::stranger;
    one.said.append(bytes, 0, static_cast<size_t>(n));
    if (one.said.size() < expected_.size()) return Heard::part;
    return same(one.said, expected_) ? Heard::peer : Heard::stranger;
  }

  // As Gloo's handleListening() goes on once it has accepted.
  void adopt(int fd) {
    std::erase_if(candidates_, [&](const Candidate& one) { return one.fd == fd; });
    device_->unregisterDescriptor(fd, this);
    device_->unregisterDescriptor(fd_, this);
    ::close(fd_);
    fd_ = fd;
    handleConnected();
  }

  void drop_candidates() noexcept {
    for (const Candidate& one : candidates_) ::close(one.fd);  // epoll forgets it
    candidates_.clear();
  }

  const std::string own_, expected_;
  bool untouched_ = false;
  std::deque<Candidate> candidates_;  // oldest first
};

class GuardedContext : public tcp::Context {
 public:
  GuardedContext(std::shared_ptr<tcp::Device> device, int own_rank, int ranks,
                 const std::string& token)
      : Context(std::move(device), own_rank, ranks), token_(token) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    for (int i = 0; i < kTries; ++i) {
      auto pair = std::make_unique<GuardedPair>(this, device_.get(), peer, getTimeout(), token_);
      const bool untouched = pair->untouched();
      pairs_[static_cast<size_t>(peer)] = std::move(pair);
      if (untouched) break;
    }
    return pairs_[static_cast<size_t>(peer)];
  }

 private:
  const std::string token_;
};

class GuardedDevice : public tcp::Device {
 public:
  GuardedDevice(const tcp::attr& address, const std::string& token)
      : Device(address), token_(token) {}

  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<GuardedContext>(shared_from_this(), rank, size, token_);
  }

 private:
  const std::string token_;
};

}  // namespace

std::shared_ptr<gloo::transport::Device> make_guarded_device(const std::string& address,
                                                             const std::string& token) {
  tcp::attr attributes;
  attributes.hostname = address;
  return std::make_shared<GuardedDevice>(tcp::CreateDeviceAttr(attributes), token);
}

#endif

}  // namespace lockstep
