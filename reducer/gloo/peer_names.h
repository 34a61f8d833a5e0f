#pragma once

#include <cstdint>
#include <string>

#include "reducer/communicator.h"

namespace gloo {
class Context;
}

namespace lockstep {

// Gloo's errors name a peer by the address that it has for the connection with this rank: these say
// which rank that is.

// Leaves this rank's addresses under `prefix` in the store. The context is connected.
void publish_addresses(gloo::Context& context, Store& store, const std::string& prefix);

// The same error with the rank behind the address, "... closed by peer [127.0.0.1]:41234 (rank 2)";
// unchanged where it names no address of a peer. It may wait a moment for the store.
CommError naming_peer(const CommError& error, const gloo::Context& context, Store& store,
                      const std::string& prefix) noexcept;

}  // namespace lockstep
