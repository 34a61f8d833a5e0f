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

// The same error with the rank behind the address as its peer, and in its text, "... closed by peer
// [127.0.0.1]:41234 (rank 2)"; unchanged where it names no address of a peer. It may wait a moment
// for the store. With gloo_error() the one place that reads Gloo's sentences.
CommError naming_peer(const CommError& error, const gloo::Context& context, Store& store,
                      const CommOptions& options) noexcept;

}  // namespace lockstep
