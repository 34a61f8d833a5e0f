#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "sim/join/coordinator.h"
#include "sim/join/environment.h"
#include "sim/join/site.h"
#include "sim/join/wire.h"

namespace lockstep {

// Enough of a Redis client for a rendezvous: one command at a time, no password, no TLS. Every
// call blocks until answered; throws std::runtime_error on an error answer, a lost server, or past
// the deadline of all calls.
class Redis {
 public:
  Redis(const HostPort& server, Deadline deadline);
  // The answer as text (of a number: its digits); nothing for "no such key".
  std::optional<std::string> call(const std::vector<std::string>& command);

 private:
  std::string take(size_t bytes);
  std::string take_line();
  void receive();
  [[noreturn]] void fail(const std::string& why) const;

  const HostPort server_;
  const Deadline deadline_;
  UniqueFd fd_;
  std::string in_;
};

// How the processes of a job find the one of rank 0.
struct Rendezvous {
  std::string kind;  // tcp: at `address` | file: named in `path` | redis: under `key` there
  HostPort address;  // of rank 0's process, or of the Redis server
  std::string path, key;
  bool local = false;  // all processes are on this host: 127.0.0.1 is enough
};
std::string to_text(const Rendezvous& rendezvous);  // "tcp://127.0.0.1:29500"

// text: env:// | tcp://HOST:PORT | file:///PATH | redis://HOST:PORT[/KEY], or empty. Where it does
// not decide: MASTER_ADDR and MASTER_PORT, a file of the job's name on one host. Bad input where
// nothing leads to rank 0.
Expected<Rendezvous> choose_rendezvous(const std::string& text, const Placement& placement);

// What rank 0's process leaves for the others where its address is not known before.
struct Notice {
  HostPort address;
  std::string nonce;  // an old notice leads nowhere
  std::string key;    // part of the secret, where only the user can read the notice; or empty
};

// Leaves and finds it. publish() takes an earlier one's place; withdraw() takes it away, also when
// this ends. Throws std::runtime_error where the place cannot be used.
class NoticeBoard {
 public:
  virtual ~NoticeBoard() = default;
  virtual void publish(const Notice& notice) = 0;
  virtual std::optional<Notice> read() = 0;
  // Nobody but this user (and root) can read what is published.
  virtual bool keeps_secrets() const = 0;
};
// Of kind file or redis; none for kind tcp. `deadline`: of all that it does.
std::unique_ptr<NoticeBoard> make_notice_board(const Rendezvous& rendezvous, Deadline deadline);

// Which host this is, equal for processes that share its memory, files and network; `node` tells
// apart what a launcher counts as several nodes. Its first two words: of its network alone.
std::string host_key(const std::optional<int64_t>& node);

// Opens the coordinator where the others will look for it (`kind` "" : at any free port of this
// host, for this process alone) and tells them. `own`: how this process itself reaches it. Bad
// input where the address cannot be listened at. `board` may be null.
Expected<std::unique_ptr<Coordinator>> open_coordinator(EventLoop& loop,
                                                        const Rendezvous& rendezvous,
                                                        const std::string& interface_address,
                                                        Coordinator::Options options,
                                                        NoticeBoard* board, HostPort* own);

// Joins the run: tries until the coordinator lets it in, up to the deadline. `address`: of the
// coordinator, or empty: as `board` says. `member` without nonce and identity: they come from
// `credentials`. After each vain try it calls `waiting`, which may throw. Throws RunOver with exit
// code 3, or 2 if it is refused.
using OnWaiting = std::function<void(const std::string& why)>;
std::unique_ptr<Link> join_run(EventLoop& loop, const HostPort& address, NoticeBoard* board,
                               MemberIdentity member, const Credentials& credentials,
                               Deadline deadline, const OnWaiting& waiting);

}  // namespace lockstep
