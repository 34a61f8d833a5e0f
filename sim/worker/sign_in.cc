#include "sim/worker/sign_in.h"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace lockstep {
namespace {

struct Claim {
  int64_t rank = 0, world_size = 0;
};

std::string key_of(int64_t process) { return fmt::format("sign-in/{}", process); }

Claim parse(const std::string& text) {
  const size_t space = text.find(' ');
  return {std::stoll(text.substr(0, space)), std::stoll(text.substr(space + 1))};
}

int64_t usual_world_size(const std::vector<Claim>& claims) {
  std::map<int64_t, int64_t> votes;
  for (const Claim& claim : claims) ++votes[claim.world_size];
  int64_t best = claims.front().world_size;
  for (const auto& [size, count] : votes)
    if (count > votes[best]) best = size;
  return best;
}

// "2 why" for process 2, or "" where all fits.
std::string judge(const std::vector<Claim>& claims) {
  const int64_t world_size = usual_world_size(claims);
  for (size_t p = 0; p < claims.size(); ++p)
    if (claims[p].world_size != world_size)
      return fmt::format("{} process {} expects {} ranks, the others {}", p, p,
                         claims[p].world_size, world_size);
  for (size_t p = 0; p < claims.size(); ++p)
    for (size_t other = 0; other < claims.size(); ++other) {
      if (p == other || claims[p].rank != claims[other].rank) continue;
      const bool own = claims[p].rank == static_cast<int64_t>(p);
      const size_t wrong = own ? other : p;
      return fmt::format("{} processes {} and {} both say that they are rank {}", wrong,
                         std::min(p, other), std::max(p, other), claims[p].rank);
    }
  return "";
}

std::string verdict_of_all(Store& store, int64_t processes, Deadline deadline) {
  std::vector<Claim> claims;
  for (int64_t p = 0; p < processes; ++p) {
    try {
      claims.push_back(parse(store.get(key_of(p), deadline)));
    } catch (const CommError& error) {
      if (error.kind() != CommFailure::timeout) throw;
      throw CommError(CommFailure::timeout, fmt::format("rendezvous: rank {} has not signed in", p),
                      {.peer = p});
    }
  }
  return judge(claims);
}

}  // namespace

void sign_in(Store& store, const CommOptions& options, int64_t process, int64_t processes,
             Deadline deadline) {
  store.set(key_of(process), fmt::format("{} {}", options.rank, options.world_size));
  std::string verdict;
  if (process == 0) {
    verdict = verdict_of_all(store, processes, deadline);
    store.set("sign-in/verdict", verdict);
  } else {
    verdict = store.get("sign-in/verdict", deadline);
  }
  if (verdict.empty()) return;
  const int64_t wrong = std::stoll(verdict);
  throw CommError(wrong == process ? CommFailure::rejected : CommFailure::peer_lost,
                  "rendezvous: " + verdict.substr(verdict.find(' ') + 1), {.peer = wrong});
}

}  // namespace lockstep
