#include "sim/join/meet.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/join/door.h"
#include "sim/launch/files.h"

namespace lockstep {
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
