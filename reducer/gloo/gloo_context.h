#pragma once

#include <memory>

#include "reducer/communicator.h"

namespace gloo {
class Context;
}

namespace lockstep {

// Connects all ranks of a group over TCP, bound to options.address alone (Gloo's own default is the
// host name's address). Throws CommError.
std::shared_ptr<gloo::Context> connect_gloo(const CommOptions& options,
                                            const std::shared_ptr<Store>& store, Deadline deadline);

// Makes every wait on this context fail now, on whatever thread it is: Gloo cannot cancel, but a
// receive that times out closes all pairs of its context. Blocks for about a millisecond.
void abort_gloo(gloo::Context& context) noexcept;

// The CommError that an exception of Gloo stands for. `aborted`: abort_gloo() came first, so that
// the deadline is the cause, whatever the text says.
CommError gloo_error(const std::string& what, const std::exception& error, bool aborted);

}  // namespace lockstep
