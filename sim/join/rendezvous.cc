#include "sim/join/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
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
#include "sim/join/redis.h"
#include "sim/join/secret.h"

namespace lockstep {
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

}  // namespace lockstep
