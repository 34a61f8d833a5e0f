#include "sim/worker/connect.h"

#include "reducer/hierarchical/hierarchical.h"

namespace lockstep {

std::unique_ptr<Communicator> make_process_communicator(const std::string& kind,
                                                        int64_t ranks_per_host,
                                                        const CommOptions& options,
                                                        const std::shared_ptr<Store>& store,
                                                        Deadline deadline) {
  if (kind == "c10d") return make_c10d_communicator(options, store, deadline);
  if (kind == "shm") return make_shm_communicator(options, store, deadline);
  if (kind == "hierarchical")
    return make_hierarchical_communicator(options, ranks_per_host, store, deadline);
  return make_gloo_communicator(options, store, deadline);
}

}  // namespace lockstep
