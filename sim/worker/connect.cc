#include "sim/worker/connect.h"

#include "reducer/hierarchical/hierarchical.h"

namespace lockstep {
namespace {

std::unique_ptr<Communicator> connect_one(const std::string& kind, int64_t ranks_per_host,
                                          const CommOptions& options,
                                          const std::shared_ptr<Store>& store, Deadline deadline) {
  if (kind == "c10d") return make_c10d_communicator(options, store, deadline);
  if (kind == "shm") return make_shm_communicator(options, store, deadline);
  if (kind == "hierarchical")
    return make_hierarchical_communicator(options, ranks_per_host, store, deadline);
  return make_gloo_communicator(options, store, deadline);
}

}  // namespace

std::unique_ptr<Communicator> make_process_communicator(const std::string& kind,
                                                        int64_t ranks_per_host,
                                                        const CommOptions& options,
                                                        const std::shared_ptr<Store>& store,
                                                        Deadline deadline) {
  auto communicator = connect_one(kind, ranks_per_host, options, store, deadline);
  // A rank that fails as soon as it is connected would end the others that are not yet: what Gloo
  // throws then (getpeername: not connected) nobody catches on its own thread.
  const std::string prefix = options.prefix + "connected";
  if (store->add(prefix, 1) == options.world_size) store->set(prefix + "/all", "1");
  store->get(prefix + "/all", deadline);
  return communicator;
}

}  // namespace lockstep
