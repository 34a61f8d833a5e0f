#include "sim/join/meet.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <thread>

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

std::string new_nonce() {
  std::random_device device;  // tells notices apart; nothing of the run derives from it
  return fmt::format("{:08x}{:08x}", device(), device());
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
    options.nonce = new_nonce();
    board->publish({*own, options.nonce});
  }
  return std::make_unique<Coordinator>(loop, std::move(listener), std::move(options));
}

std::unique_ptr<Link> join_run(EventLoop& loop, const HostPort& address, NoticeBoard* board,
                               MemberIdentity member, Deadline deadline, const OnWaiting& waiting) {
  std::string why = "rank 0 has not said where it is";
  while (time_left(deadline).count() > 0) {
    HostPort at = address;
    if (board != nullptr) {
      const auto notice = board->read();
      at.host.clear();
      if (notice) at = notice->address;
      if (notice) member.nonce = notice->nonce;
    }
    UniqueFd fd;
    if (!at.host.empty()) fd = connect_to(at, std::min(deadline, deadline_after(kOneTry)), &why);
    if (fd.valid()) {
      auto link = std::make_unique<Link>(loop, Wire(std::move(fd)));
      try {
        const auto answer =
            link->request({"join", encode(member)}, std::min(deadline, deadline_after(kOneTry)));
        if (answer.front() == "ok") return link;
        if (answer.front() == "refused") throw RunOver(kExitRefused, "refused: " + answer.back());
        why = to_text(at) + " is another run's";
      } catch (const RunOver& over) {
        if (over.code() == kExitRefused) throw;
        why = fmt::format("{}: {}", to_text(at), over.what());
      }
    }
    loop.wait(kTryAgain);
    waiting(why);
  }
  throw RunOver(kExitLostCoordinator, "rank 0 was not found in time: " + why);
}

}  // namespace lockstep
