#pragma once

#include <memory>
#include <string>

#include "reducer/communicator.h"

namespace lockstep {

// Joins ranks that are processes: `kind` is a scenario's communicator/kind, but for local;
// `ranks_per_host` counts for hierarchical alone. Blocks until connected or the deadline has passed
// (CommError).
std::unique_ptr<Communicator> make_process_communicator(const std::string& kind,
                                                        int64_t ranks_per_host,
                                                        const CommOptions& options,
                                                        const std::shared_ptr<Store>& store,
                                                        Deadline deadline);

}  // namespace lockstep
