#pragma once

#include <memory>
#include <string>

#include "reducer/communicator.h"

namespace gloo::transport {
class Device;
}

namespace lockstep {

// Gloo takes whoever connects first to one of its ports for the rank that it waits for; up to early
// 2023 it listens at one for each pair of ranks and looks no further. The pairs of this device let
// in who first says `token` and which rank it is, and close all others; nothing else of what they
// send differs from Gloo's own. All ranks of a group must use it, or none. Null where Gloo itself
// tells connections apart. `address`: a host name or number, to which alone it is bound.
std::shared_ptr<gloo::transport::Device> make_guarded_device(const std::string& address,
                                                             const std::string& token);

// Random, made by rank 0 and left under `prefix` in the store for the others. Throws CommError.
std::string shared_token(int64_t rank, Store& store, const std::string& prefix, Deadline deadline);

}  // namespace lockstep
