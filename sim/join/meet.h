#pragma once

#include <functional>
#include <memory>
#include <string>

#include "scenarios/base/error.h"
#include "sim/join/coordinator.h"
#include "sim/join/link.h"
#include "sim/join/rendezvous.h"

namespace lockstep {

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
