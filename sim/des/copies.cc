// Parameters in parts of which groups of ranks hold a copy each (HSDP).
#include "sim/des/cost.h"
#include "sim/des/job.h"

namespace lockstep {

bool has_copies(const Job& job) {
  return job.parts && job.parts->shard_ranks > 0 && job.parts->shard_ranks < job.ranks;
}

int64_t ranks_in_unit(const Job& job, Operation operation) {
  if (!has_copies(job)) return job.ranks;
  const int64_t held_by = job.parts->shard_ranks;
  return operation == Operation::all_reduce ? job.ranks / held_by : held_by;
}

int64_t part_bytes(const Job& job, int64_t bytes) {
  const int64_t held_by = ranks_in_unit(job, Operation::reduce_scatter);
  return (bytes + held_by - 1) / held_by;
}

int64_t unit_ns(const Job& job, Operation operation, int64_t bytes) {
  if (has_copies(job) && operation == Operation::all_reduce)
    return all_reduce_apart_ns(job.cost, part_bytes(job, bytes), job.ranks, job.parts->shard_ranks);
  return collective_ns(job.cost, operation, bytes, ranks_in_unit(job, operation));
}

bool copies_have_links(const Job& job) {
  return has_copies(job) && goes_across(job.cost, job.ranks) &&
         job.parts->shard_ranks == job.cost.ranks_per_host;
}

}  // namespace lockstep
