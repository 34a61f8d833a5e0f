#include "sim/launch/protocol.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "scenarios/base/error.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

// A datagram: one byte, 1 if more of the same message follows, then a piece of it.
constexpr size_t kPieceBytes = 48 << 10;
constexpr size_t kMessageBytesMax = size_t{256} << 20;

std::string pack(const Channel::Message& message) {
  std::string bytes;
  for (const std::string& field : message) {
    const auto length = static_cast<uint32_t>(field.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += field;
  }
  return bytes;
}

Channel::Message unpack(std::string_view bytes) {
  Channel::Message message;
  while (!bytes.empty()) {
    uint32_t length = 0;
    LOCKSTEP_CHECK(bytes.size() >= sizeof length, "a damaged message");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    LOCKSTEP_CHECK(bytes.size() >= length, "a damaged message");
    message.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return message;
}

struct FdSpace {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

void attach_fd(msghdr* header, FdSpace* space, int fd) {
  header->msg_control = space->bytes;
  header->msg_controllen = sizeof space->bytes;
  cmsghdr* control = CMSG_FIRSTHDR(header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
}

UniqueFd detach_fd(msghdr* header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return UniqueFd(fd);
  }
  return UniqueFd();
}

bool wait_for_room(int fd, std::chrono::milliseconds patience) {
  pollfd p{fd, POLLOUT, 0};
  int rc = 0;
  do {
    rc = ::poll(&p, 1, static_cast<int>(patience.count()));
  } while (rc < 0 && errno == EINTR);
  return rc > 0;
}

// False when the other side is gone or takes nothing for `patience`.
bool send_piece(int fd, bool more, std::string_view piece, int fd_to_pass,
                std::chrono::milliseconds patience) {
  char flag = more ? 1 : 0;
  iovec parts[2] = {{&flag, 1}, {const_cast<char*>(piece.data()), piece.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  FdSpace space;
  if (fd_to_pass >= 0) attach_fd(&header, &space, fd_to_pass);
  while (::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return false;
    if (errno != EAGAIN)
      throw std::system_error(errno, std::generic_category(), "cannot send to a worker process");
    if (!wait_for_room(fd, patience)) return false;
  }
  return true;
}

}  // namespace

std::pair<Channel, Channel> Channel::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a socket pair");
  const int wanted = 1 << 20;  // the kernel cuts it to its own limit
  for (const int end : ends) {
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
    ::setsockopt(end, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
  }
  return {Channel(UniqueFd(ends[0])), Channel(UniqueFd(ends[1]))};
}

bool Channel::send(const Message& message, int fd_to_pass, std::chrono::milliseconds patience) {
  if (!is_open()) return false;
  const std::string bytes = pack(message);
  std::string_view rest = bytes;
  do {
    const std::string_view piece = rest.substr(0, kPieceBytes);
    rest.remove_prefix(piece.size());
    if (!send_piece(fd(), !rest.empty(), piece, fd_to_pass, patience)) {
      // Half a message would take the next one for its rest: rather none at all.
      if (piece.data() != bytes.data()) ::shutdown(fd(), SHUT_RDWR);
      return false;
    }
    fd_to_pass = -1;
  } while (!rest.empty());
  return true;
}

Channel::Got Channel::receive(Message* message, UniqueFd* passed) {
  if (!is_open()) return Got::closed;
  thread_local char buffer[kPieceBytes + 1];
  while (true) {
    iovec part{buffer, sizeof buffer};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    FdSpace space;
    header.msg_control = space.bytes;
    header.msg_controllen = sizeof space.bytes;
    const ssize_t got = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Got::nothing;
    if (got <= 0) return Got::closed;
    // The kernel drops a descriptor that this process has no number left for, and says so here.
    if ((header.msg_flags & MSG_CTRUNC) != 0)
      throw std::system_error(EMFILE, std::generic_category(),
                              "cannot take over the descriptor of a worker process");
    if (UniqueFd fd = detach_fd(&header); fd.valid()) passed_ = std::move(fd);
    LOCKSTEP_CHECK((header.msg_flags & MSG_TRUNC) == 0, "a datagram longer than we send");
    unfinished_.append(buffer + 1, static_cast<size_t>(got) - 1);
    LOCKSTEP_CHECK(unfinished_.size() <= kMessageBytesMax, "a message without an end");
    if (buffer[0] == 1) continue;
    *message = unpack(unfinished_);
    unfinished_.clear();
    if (passed != nullptr) *passed = std::move(passed_);
    passed_.reset();
    return Got::message;
  }
}

std::string encode(const WorkerTask& task) {
  nlohmann::ordered_json document;
  document["role"] = task.role;
  document["golden"] = task.golden;
  document["rank"] = task.rank;
  document["run_dir"] = task.run_dir;
  document["host_ranks"] = task.host_ranks;
  document["address"] = task.address;
  return document.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<WorkerTask> decode_task(const std::string& message) {
  const auto document = json_or_discarded(message);
  if (!document.is_object()) return std::nullopt;
  try {
    WorkerTask task;
    task.role = document.at("role").get<std::string>();
    task.golden = document.at("golden").get<std::string>();
    task.rank = whole_number(document.at("rank"));
    task.run_dir = document.at("run_dir").get<std::string>();
    get_exact(document.at("host_ranks"), task.host_ranks);
    task.address = document.at("address").get<std::string>();
    return task;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string process_label(const WorkerTask& task) {
  if (task.role == "rank" || task.role == "collective") return fmt::format("rank-{}", task.rank);
  if (task.role == "thread_host") return fmt::format("host-{}", task.rank);
  return fmt::format("golden-{}", task.golden);
}

std::string process_name(const WorkerTask& task) {
  if (task.role == "rank" || task.role == "collective")
    return fmt::format("lockstep-r{}", task.rank);
  if (task.role == "thread_host") return fmt::format("lockstep-h{}", task.rank);
  return fmt::format("lockstep-g-{}", task.golden).substr(0, 15);
}

std::string records_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.records", run_dir, rank);
}

std::string golden_records_path(const std::string& run_dir, const std::string& golden) {
  return fmt::format("{}/golden-{}.records", run_dir, golden);
}

std::string log_path(const std::string& run_dir, const std::string& who) {
  return fmt::format("{}/{}.log", run_dir, who);
}

std::string stream_path(const std::string& run_dir, const std::string& golden) {
  return fmt::format("{}/golden-{}.stream", run_dir, golden);
}

std::string evidence_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.evidence.json", run_dir, rank);
}

std::string stack_path(const std::string& run_dir, const std::string& who) {
  return fmt::format("{}/{}.stack", run_dir, who);
}

// Away from the first ones, which debuggers and sanitizers like.
int stack_signal() { return SIGRTMIN + 7; }

std::string plan_path(const std::string& run_dir) { return run_dir + "/plan.json"; }

namespace {

// A member's numbers may be any: beyond the edge of their type they begin again at the other.
int64_t sum_of(int64_t before, const std::string& amount) {
  const int64_t added = std::strtoll(amount.c_str(), nullptr, 10);
  return static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(added));
}

}  // namespace

void RunStore::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  std::vector<Parked> answered;
  std::erase_if(parked_, [&](const Parked& p) {
    if (p.key != key) return false;
    answered.push_back(p);
    return true;
  });
  for (const Parked& p : answered) reply_(p.client, {p.id, value});
}

bool RunStore::handle(int64_t client, const Channel::Message& message) {
  if (message.size() < 3) return false;
  const std::string &operation = message[0], &id = message[1], &key = message[2];
  const auto found = values_.find(key);
  if (operation == "set" && message.size() == 4) {
    set(key, message[3]);
    reply_(client, {id, "ok"});
  } else if (operation == "get") {
    if (found != values_.end())
      reply_(client, {id, found->second});
    else
      parked_.push_back({client, id, key});
  } else if (operation == "add" && message.size() == 4) {
    const int64_t before =
        found == values_.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
    const std::string sum = std::to_string(sum_of(before, message[3]));
    set(key, sum);
    reply_(client, {id, sum});
  } else if (operation == "has") {
    reply_(client, {id, found == values_.end() ? "0" : "1"});
  } else if (operation == "drop") {
    std::erase_if(parked_, [&](const Parked& p) { return p.client == client && p.id == id; });
  } else {
    return false;
  }
  return true;
}

std::string RunStore::awaited_by(int64_t client) const {
  for (const Parked& p : parked_)
    if (p.client == client) return p.key;
  return "";
}

void RunStore::leave(int64_t client) {
  std::erase_if(parked_, [&](const Parked& p) { return p.client == client; });
}

}  // namespace lockstep
