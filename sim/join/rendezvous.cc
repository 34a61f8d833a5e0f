#include "sim/join/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "scenarios/base/file.h"
#include "scenarios/base/random_bytes.h"
#include "sim/join/door.h"
#include "sim/join/wire.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

constexpr size_t kAnswerBytesMax = 1 << 20;

std::string encode(const std::vector<std::string>& command) {
  std::string text = fmt::format("*{}\r\n", command.size());
  for (const std::string& word : command) text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return text;
}

}  // namespace

Redis::Redis(const HostPort& server, Deadline deadline) : server_(server), deadline_(deadline) {
  std::string why;
  fd_ = connect_to(server_, deadline_, &why);
  if (!fd_.valid()) throw std::runtime_error("Redis at " + why);
}

void Redis::fail(const std::string& why) const {
  throw std::runtime_error(fmt::format("Redis at {}: {}", to_text(server_), why));
}

void Redis::receive() {
  char buffer[4096];
  pollfd ready{fd_.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(time_left(deadline_).count())) == 0)
    fail("no answer in time");
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) fail(n == 0 ? "it has closed the connection" : std::strerror(errno));
  in_.append(buffer, static_cast<size_t>(n));
  if (in_.size() > kAnswerBytesMax) fail("an answer without an end");
}

std::string Redis::take(size_t bytes) {
  while (in_.size() < bytes) receive();
  std::string taken = in_.substr(0, bytes);
  in_.erase(0, bytes);
  return taken;
}

std::string Redis::take_line() {
  size_t end = 0;
  while ((end = in_.find("\r\n")) == std::string::npos) receive();
  const std::string line = take(end + 2);
  return line.substr(0, end);
}

std::optional<std::string> Redis::call(const std::vector<std::string>& command) {
  const std::string text = encode(command);
  if (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    fail("it takes no command");
  const std::string line = take_line();
  if (line.empty()) fail("an empty answer");
  const std::string rest = line.substr(1);
  if (line[0] == '-') fail(rest);
  if (line[0] != '$') return rest;  // "+OK" or ":1"
  const int64_t length = std::strtoll(rest.c_str(), nullptr, 10);
  if (length < 0) return std::nullopt;
  if (length > static_cast<int64_t>(kAnswerBytesMax)) fail("an answer that is too long");
  const std::string value = take(static_cast<size_t>(length));
  take(2);
  return value;
}

namespace {

InputError refused(const std::string& message) {
  return {"",
          0,
          0,
          "",
          message,
          "--rendezvous env:// (MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, file:///PATH or "
          "redis://HOST:PORT[/KEY]"};
}

std::string text_of(const Notice& notice) {
  return fmt::format("{} {} {}\n", to_text(notice.address), notice.nonce, notice.key);
}

std::optional<Notice> notice_of(const std::string& text) {
  std::istringstream words(text);
  std::string address;
  Notice notice;
  if (!(words >> address >> notice.nonce)) return std::nullopt;
  const auto parsed = parse_host_port(address);
  if (!parsed) return std::nullopt;
  notice.address = *parsed;
  words >> notice.key;
  return notice;
}

class FileBoard : public NoticeBoard {
 public:
  explicit FileBoard(std::string path) : path_(std::move(path)) {}
  ~FileBoard() override {
    if (published_) ::unlink(path_.c_str());
  }
  void publish(const Notice& notice) override {
    const std::string unfinished = fmt::format("{}.{}", path_, to_hex(random_bytes(8)));
    // New, so that nobody has it open: it holds a key.
    const UniqueFd fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const std::string text = text_of(notice);
    const bool written = fd.valid() && ::write(fd.get(), text.data(), text.size()) ==
                                           static_cast<ssize_t>(text.size());
    if (!written || ::rename(unfinished.c_str(), path_.c_str()) != 0)
      throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    published_ = true;
  }
  // What another user has put there, or what is no file, is none of ours.
  std::optional<Notice> read() override {
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
        (info.st_uid != ::geteuid() && info.st_uid != 0))
      return std::nullopt;
    char text[1024];
    const ssize_t n = ::read(fd.get(), text, sizeof text);
    return n > 0 ? notice_of(std::string(text, static_cast<size_t>(n))) : std::nullopt;
  }
  bool keeps_secrets() const override { return true; }

 private:
  const std::string path_;
  bool published_ = false;
};

class RedisBoard : public NoticeBoard {
 public:
  RedisBoard(const Rendezvous& where, Deadline deadline)
      : key_(where.key), redis_(where.address, deadline) {}
  ~RedisBoard() override {
    try {
      if (published_) redis_.call({"DEL", key_});
    } catch (const std::exception&) {
      // It goes by itself after an hour.
    }
  }
  void publish(const Notice& notice) override {
    redis_.call({"SET", key_, text_of(notice), "EX", "3600"});
    published_ = true;
  }
  std::optional<Notice> read() override {
    const auto text = redis_.call({"GET", key_});
    return text ? notice_of(*text) : std::nullopt;
  }
  // Whoever reaches the server may read it, or listen.
  bool keeps_secrets() const override { return false; }

 private:
  const std::string key_;
  Redis redis_;
  bool published_ = false;
};

// A folder that nobody else can write to.
std::optional<std::string> private_folder() {
  const char* tmp = std::getenv("TMPDIR");
  const std::string base = tmp != nullptr && *tmp == '/' ? tmp : "/tmp";
  const std::string folder = fmt::format("{}/lockstep-{}", base, ::geteuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return std::nullopt;
  struct stat info {};
  const bool ours = ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == ::geteuid() && (info.st_mode & 022) == 0;
  return ours ? std::optional(folder) : std::nullopt;
}

Expected<Rendezvous> file_of_job(const Placement& placement) {
  const auto folder = private_folder();
  if (!folder) return refused("no folder of this user alone for the rendezvous file below TMPDIR");
  Rendezvous rendezvous{.kind = "file",
                        .address = {},
                        .path = *folder + "/" + placement.job,
                        .key = "",
                        .local = true};
  return rendezvous;
}

Expected<Rendezvous> from_environment(const Placement& placement) {
  const bool known = !placement.master_addr.empty() && placement.master_port > 0;
  if (known && !placement.port_held)
    return Rendezvous{.kind = "tcp",
                      .address = {placement.master_addr, placement.master_port},
                      .path = "",
                      .key = "",
                      .local = false};
  if (placement.one_host && !placement.job.empty()) return file_of_job(placement);
  if (known)  // the agent of torchrun listens there itself, and its store is not ours
    return Rendezvous{.kind = "tcp",
                      .address = {placement.master_addr, placement.master_port % 65535 + 1},
                      .path = "",
                      .key = "",
                      .local = false};
  return refused(fmt::format(
      "MASTER_ADDR is \"{}\" and MASTER_PORT {}: nothing says where rank 0 is",
      placement.master_addr,
      placement.master_port == 0 ? "is not set" : std::to_string(placement.master_port)));
}

Expected<Rendezvous> redis(const std::string& rest, const Placement& placement) {
  const size_t slash = rest.find('/');
  const auto address = parse_host_port(rest.substr(0, slash));
  if (!address) return refused("--rendezvous redis://" + rest);
  std::string key = slash == std::string::npos ? "" : rest.substr(slash + 1);
  if (key.empty()) key = placement.job.empty() ? "run" : placement.job;
  return Rendezvous{
      .kind = "redis", .address = *address, .path = "", .key = "lockstep/" + key, .local = false};
}

}  // namespace

std::string to_text(const Rendezvous& rendezvous) {
  if (rendezvous.kind == "file") return "file://" + rendezvous.path;
  const std::string address = rendezvous.kind + "://" + to_text(rendezvous.address);
  return rendezvous.kind == "redis" ? address + "/" + rendezvous.key : address;
}

Expected<Rendezvous> choose_rendezvous(const std::string& text, const Placement& placement) {
  if (text.empty() || text == "env://") return from_environment(placement);
  if (text.starts_with("redis://")) return redis(text.substr(8), placement);
  Rendezvous rendezvous;
  rendezvous.local = placement.one_host;
  if (text.starts_with("tcp://")) {
    const auto address = parse_host_port(text.substr(6));
    if (!address) return refused("--rendezvous " + text);
    rendezvous.kind = "tcp";
    rendezvous.address = *address;
    return rendezvous;
  }
  if (!text.starts_with("file:///")) return refused("--rendezvous " + text);
  rendezvous.kind = "file";
  rendezvous.path = text.substr(7);
  const std::string folder = std::filesystem::path(rendezvous.path).parent_path().string();
  if (::access(folder.c_str(), W_OK | X_OK) != 0 || std::filesystem::is_directory(rendezvous.path))
    return refused(fmt::format("--rendezvous {}: no file can be made there", text));
  return rendezvous;
}

std::unique_ptr<NoticeBoard> make_notice_board(const Rendezvous& rendezvous, Deadline deadline) {
  if (rendezvous.kind == "file") return std::make_unique<FileBoard>(rendezvous.path);
  if (rendezvous.kind == "redis") return std::make_unique<RedisBoard>(rendezvous, deadline);
  return nullptr;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryAgain{50};
constexpr milliseconds kOneTry{3000};
// Of documentation: nobody has it, so the route to it is the default one.
constexpr const char* kElsewhere = "192.0.2.1";

uint64_t inode(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::string host_key(const std::optional<int64_t>& node) {
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  return fmt::format("{} {} {} {} {}", boot, inode("/proc/self/ns/net"), inode("/proc/self/ns/mnt"),
                     ::geteuid(), node.value_or(-1));
}

Expected<std::unique_ptr<Coordinator>> open_coordinator(EventLoop& loop,
                                                        const Rendezvous& rendezvous,
                                                        const std::string& interface_address,
                                                        Coordinator::Options options,
                                                        NoticeBoard* board, HostPort* own) {
  const bool loopback = rendezvous.kind.empty() || rendezvous.local;
  HostPort at = rendezvous.address;
  if (rendezvous.kind != "tcp") {
    const std::string outside = address_towards(kElsewhere).value_or("127.0.0.1");
    at = {loopback ? "127.0.0.1" : !interface_address.empty() ? interface_address : outside, 0};
  }
  std::string why;
  UniqueFd listener = listen_at(at, &why);
  if (!listener.valid())
    return InputError{"",
                      0,
                      0,
                      "",
                      "rank 0: " + why,
                      "an address of the host of rank 0 and a port that is free there"};
  *own = {at.host, port_of(listener)};
  if (board != nullptr) {
    options.nonce = to_hex(random_bytes(8));
    if (board->keeps_secrets()) options.notice_key = to_hex(random_bytes(kNonceBytes));
    board->publish({*own, options.nonce, options.notice_key});
  }
  return std::make_unique<Coordinator>(loop, std::move(listener), std::move(options));
}

std::unique_ptr<Link> join_run(EventLoop& loop, const HostPort& address, NoticeBoard* board,
                               MemberIdentity member, const Credentials& credentials,
                               Deadline deadline, const OnWaiting& waiting) {
  std::string why = "rank 0 has not said where it is";
  while (time_left(deadline).count() > 0) {
    Notice notice{address, "", ""};
    if (board != nullptr) notice = board->read().value_or(Notice());
    member.nonce = notice.nonce;
    member.identity = has_key(credentials, notice.key) ? credentials.identity : "";
    const Deadline once = std::min(deadline, deadline_after(kOneTry));
    UniqueFd fd;
    if (!notice.address.host.empty()) fd = connect_to(notice.address, once, &why);
    if (fd.valid()) {
      Joined joined = ask_to_join(loop, Wire(std::move(fd)), member,
                                  rendezvous_secret(credentials, notice.key), once);
      if (joined.refused) throw RunOver(kExitRefused, "refused: " + joined.why);
      if (joined.wire.is_open()) return std::make_unique<Link>(loop, std::move(joined.wire));
      why = fmt::format("{}: {}", to_text(notice.address), joined.why);
    }
    loop.wait(kTryAgain);
    waiting(why);
  }
  throw RunOver(kExitLostCoordinator, "rank 0 was not found in time: " + why);
}

}  // namespace lockstep
