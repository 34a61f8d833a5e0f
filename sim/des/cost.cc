#include "sim/des/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

using Wide = __int128;

constexpr std::array<std::pair<Algorithm, const char*>, 7> kCostWords = {
    {{Algorithm::ring, "ring"},
     {Algorithm::ring_segmented, "ring_segmented"},
     {Algorithm::halving_doubling, "halving_doubling"},
     {Algorithm::recursive_doubling, "recursive_doubling"},
     {Algorithm::bcube, "bcube"},
     {Algorithm::double_binary_tree, "double_binary_tree"},
     {Algorithm::hierarchical, "hierarchical"}}};

constexpr int64_t kFsPerNs = 1'000'000;
constexpr int64_t kLongestSegment = 1 << 20;

int64_t saturated(Wide ns) { return ns > kMostNs ? kMostNs : static_cast<int64_t>(ns); }

// bytes x rate x parts / of, in whole nanoseconds, rounded up once.
Wide moved_ns(int64_t bytes, int64_t fs_per_byte, int64_t parts = 1, int64_t of = 1) {
  const Wide divisor = Wide{of} * kFsPerNs;
  return (Wide{bytes} * fs_per_byte * parts + divisor - 1) / divisor;
}

int64_t log2_down(int64_t ranks) { return std::bit_width(static_cast<uint64_t>(ranks)) - 1; }
int64_t log2_up(int64_t ranks) { return std::bit_width(static_cast<uint64_t>(ranks) - 1); }

int64_t on_host(const CostModel& cost, int64_t ranks) {
  return std::min(ranks, std::max<int64_t>(cost.ranks_per_host, 1));
}
// The last host may have fewer.
int64_t on_smallest_host(const CostModel& cost, int64_t ranks) {
  const int64_t inside = on_host(cost, ranks);
  return ranks % inside == 0 ? inside : ranks % inside;
}
int64_t hosts_of(const CostModel& cost, int64_t ranks) {
  const int64_t inside = on_host(cost, ranks);
  return (ranks + inside - 1) / inside;
}

// That ranks of a host share; one for each where nobody says otherwise.
int64_t nics_of(const CostModel& cost) {
  return cost.nics_per_host > 0 ? cost.nics_per_host : std::max<int64_t>(cost.ranks_per_host, 1);
}

// What a rank's byte costs between hosts where nobody else sends: no less.
int64_t least_across_fs(const CostModel& cost) {
  return cost.stripes ? cost.across.beta_fs_per_byte / nics_of(cost) : cost.across.beta_fs_per_byte;
}

// Must a message between ranks of different places in their hosts change its NIC?
bool changes_rails(const CostModel& cost) {
  return cost.rails && !cost.stripes && nics_of(cost) > 1;
}

// NICs' worth of bandwidth out of a rack, times 1000 / oversubscription_millis.
int64_t nics_of_rack(const CostModel& cost) { return cost.hosts_per_rack * nics_of(cost); }

bool crosses_racks(const CostModel& cost, int64_t ranks) {
  return hosts_of(cost, ranks) > cost.hosts_per_rack;
}

LinkCost slower_of(const LinkCost& a, const LinkCost& b) {
  return {std::max(a.alpha_ns, b.alpha_ns), std::max(a.beta_fs_per_byte, b.beta_fs_per_byte),
          std::max(a.gamma_fs_per_byte, b.gamma_fs_per_byte)};
}

// All ranks of all hosts at once, over racks or, `within_rack`, in each by themselves.
Senders all_at_once(const CostModel& cost, int64_t ranks, bool within_rack) {
  const int64_t inside = on_host(cost, ranks);
  return {inside, within_rack ? 0 : inside * cost.hosts_per_rack};
}

// What a byte costs on the wire, or in the core that moves it where that is shared by so many ranks
// of a host: the slower.
int64_t beta_of(const CostModel& cost, const LinkCost& link, int64_t sharers) {
  Wide core = cost.core_fs_per_byte;
  if (cost.ranks_per_switch > 0) core *= std::min(sharers, cost.ranks_per_switch);
  if (cost.cores_per_host > 0 && sharers > cost.cores_per_host)
    core = (core * sharers + cost.cores_per_host - 1) / cost.cores_per_host;
  return saturated(std::max<Wide>(link.beta_fs_per_byte, core));
}

// A round of a ring of `ranks`, `sharers` of whom are on one host.
Wide round_ns(const CostModel& cost, const LinkCost& link, int64_t bytes, int64_t ranks,
              int64_t sharers) {
  const int64_t segments =
      cost.algorithm == Algorithm::ring_segmented ? segments_of(bytes, ranks) : 1;
  // Adding happens in the first half of the rounds only; here it is spread over all of them.
  const Wide wire = moved_ns(bytes, beta_of(cost, link, sharers), 1, ranks) +
                    moved_ns(bytes, link.gamma_fs_per_byte, 1, 2 * ranks);
  return Wide{segments} * link.alpha_ns + wire;
}

Wide ring_ns(const CostModel& cost, const LinkCost& link, int64_t bytes, int64_t ranks,
             int64_t sharers) {
  return ranks == 1 ? 0 : Wide{2 * (ranks - 1)} * round_ns(cost, link, bytes, ranks, sharers);
}

// Those beyond the largest power of two give theirs away before, and get the sum after.
Wide fold_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  const int64_t power = int64_t{1} << log2_down(ranks);
  if (power == ranks) return 0;
  return Wide{exchange_ns(cost, {power, 1, true}, bytes, ranks)} +
         exchange_ns(cost, {power, 1, false}, bytes, ranks);
}

// Half of the bytes, then a quarter, and back again.
Wide halving_doubling_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  Wide ns = fold_ns(cost, bytes, ranks);
  for (int64_t distance = 1; 2 * distance <= ranks; distance *= 2)
    for (const bool adds : {true, false})
      ns += exchange_ns(cost, {distance, 2 * distance, adds}, bytes, ranks);
  return ns;
}

Wide recursive_doubling_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  Wide ns = fold_ns(cost, bytes, ranks);
  for (int64_t distance = 1; 2 * distance <= ranks; distance *= 2)
    ns += exchange_ns(cost, {distance, 1, true}, bytes, ranks);
  return ns;
}

Wide double_binary_tree_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  const LinkCost link = flat_link(cost, ranks);
  return Wide{2 * log2_up(ranks)} * link.alpha_ns +
         moved_ns(bytes, beta_of(cost, link, on_host(cost, ranks)), 2) +
         moved_ns(bytes, link.gamma_fs_per_byte);
}

// The ranks of a host give each other their parts, each part goes its own ring across, and back.
// With hosts of different sizes the largest one decides within, and across the smallest, which has
// the fewest links for the same bytes.
Wide hierarchical_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  const int64_t inside = on_host(cost, ranks), links = on_smallest_host(cost, ranks);
  const int64_t part = (bytes + links - 1) / links;
  // Of a rack only its last host sends to another one.
  const LinkCost across = shared_across(cost, ranks, {links, links});
  return ring_ns(cost, cost.link, bytes, inside, inside) +
         ring_ns(cost, across, part, hosts_of(cost, ranks), inside);
}

Wide from_table(const std::vector<CostModel::Row>& table, int64_t bytes) {
  const auto above = std::upper_bound(
      table.begin(), table.end(), bytes,
      [](int64_t wanted, const CostModel::Row& row) { return wanted < row.bytes; });
  if (above == table.begin()) return table.front().ns;
  const CostModel::Row& low = *(above - 1);
  if (above == table.end()) return low.bytes > 0 ? Wide{low.ns} * bytes / low.bytes : low.ns;
  return low.ns + Wide{above->ns - low.ns} * (bytes - low.bytes) / (above->bytes - low.bytes);
}

Wide algorithm_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  switch (cost.algorithm) {
    case Algorithm::ring:
    case Algorithm::ring_segmented:
      return ring_ns(cost, flat_link(cost, ranks), bytes, ranks, on_host(cost, ranks));
    case Algorithm::halving_doubling:
    case Algorithm::bcube:
      return halving_doubling_ns(cost, bytes, ranks);
    case Algorithm::recursive_doubling:
      return recursive_doubling_ns(cost, bytes, ranks);
    case Algorithm::double_binary_tree:
      return double_binary_tree_ns(cost, bytes, ranks);
    case Algorithm::hierarchical:
      return hierarchical_ns(cost, bytes, ranks);
  }
  check_failed("algorithm", __FILE__, __LINE__, "no such algorithm");
}

// Nothing where the tables are of other world sizes.
const CostModel::Table* table_for(const CostModel& cost, Operation operation, int64_t ranks) {
  for (const CostModel::Table& table : cost.tables)
    if (table.operation == operation && (table.ranks == ranks || table.ranks == 0)) return &table;
  return nullptr;
}

// "collectives", as all-reduces were called before there was anything else.
std::string plural_of(Operation operation) {
  return operation == Operation::all_reduce ? "collectives"
                                            : fmt::format("{} collectives", to_word(operation));
}

}  // namespace

std::optional<std::pair<int64_t, int64_t>> measured_sizes(const CostModel& cost, int64_t ranks) {
  const CostModel::Table* table = table_for(cost, Operation::all_reduce, ranks);
  if (table == nullptr || table->rows.empty() || ranks < 2) return std::nullopt;
  return std::pair(table->rows.front().bytes, table->rows.back().bytes);
}

int64_t fs_per_byte_of(double mb_per_s) {
  // 1 MB/s is 1e6 bytes in 1e15 fs.
  const double fs = std::ceil(1e9 / mb_per_s);
  return fs > static_cast<double>(kMostFsPerByte) ? kMostFsPerByte + 1 : static_cast<int64_t>(fs);
}

bool shares_cores(const CostModel& cost) {
  return cost.core_fs_per_byte > 0 && (cost.cores_per_host > 0 || cost.ranks_per_switch > 1);
}

CostModel cost_of_ranks(CostModel cost, int64_t ranks) {
  const int64_t inside = on_host(cost, ranks);
  const auto row = std::find_if(cost.mesh.begin(), cost.mesh.end(),
                                [&](const CostModel::Mesh& one) { return inside <= one.ranks; });
  if (row != cost.mesh.end()) {
    const Wide all = Wide{cost.link.beta_fs_per_byte} * cost.mesh.back().links;
    cost.link.beta_fs_per_byte =
        static_cast<int64_t>(std::min<Wide>(kMostFsPerByte, (all + row->links - 1) / row->links));
  }
  cost.mesh.clear();
  return cost;
}

const char* to_word(Algorithm algorithm) {
  for (const auto& [known, word] : kCostWords)
    if (known == algorithm) return word;
  check_failed("algorithm", __FILE__, __LINE__, "no such algorithm");
}

Expected<Algorithm> algorithm_of(const std::string& word) {
  InputError problem;
  problem.message = fmt::format("\"{}\" is no algorithm", word);
  for (const auto& [algorithm, known] : kCostWords) {
    if (word == known) return algorithm;
    problem.allowed += (problem.allowed.empty() ? "" : ", ") + std::string(known);
  }
  return problem;
}

std::string measured_ranks(const CostModel& cost, Operation operation) {
  std::string ranks;
  for (const CostModel::Table& table : cost.tables)
    if (table.operation == operation)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", table.ranks);
  return ranks;
}

std::optional<InputError> problem_with_ranks(const CostModel& cost, int64_t ranks,
                                             Operation operation) {
  if (ranks <= 1 || cost.tables.empty() || table_for(cost, operation, ranks) != nullptr)
    return std::nullopt;
  const std::string measured = measured_ranks(cost, operation);
  InputError problem;
  if (measured.empty()) {
    problem.message =
        fmt::format("of {} nothing was measured, but of others", plural_of(operation));
    problem.allowed = fmt::format("a table of {} at {} ranks too, or a machine of links",
                                  to_word(operation), ranks);
    return problem;
  }
  problem.message =
      fmt::format("{} were measured at {} ranks, not at {}", plural_of(operation), measured, ranks);
  problem.allowed = measured + " ranks, a table of that many, or a machine of links";
  return problem;
}

int64_t segments_of(int64_t bytes, int64_t ranks) {
  const int64_t part = (bytes + ranks - 1) / ranks;
  return std::max<int64_t>(2, (part + kLongestSegment - 1) / kLongestSegment);
}

bool goes_across(const CostModel& cost, int64_t ranks) {
  if (cost.algorithm != Algorithm::hierarchical && cost.ranks_per_host <= 1) return false;
  return ranks > std::max<int64_t>(cost.ranks_per_host, 1);
}

LinkCost shared_across(const CostModel& cost, int64_t ranks, const Senders& senders) {
  const Wide beta = cost.across.beta_fs_per_byte, nics = nics_of(cost);
  Wide shared = (beta * senders.of_host + nics - 1) / nics;
  if (!cost.stripes) shared = std::max(beta, shared);
  if (crosses_racks(cost, ranks)) {
    const Wide above = Wide{nics_of_rack(cost)} * 1000;
    const Wide of_rack = beta * senders.of_rack * cost.oversubscription_millis;
    shared = std::max(shared, (of_rack + above - 1) / above);
  }
  LinkCost link = cost.across;
  link.beta_fs_per_byte = saturated(shared);
  return link;
}

LinkCost flat_link(const CostModel& cost, int64_t ranks) {
  if (!goes_across(cost, ranks) || cost.algorithm == Algorithm::hierarchical) return cost.link;
  LinkCost link = slower_of(cost.link, shared_across(cost, ranks, {}));
  // From a host's last rank to the next one's first.
  if (changes_rails(cost)) link.alpha_ns = cost.across.alpha_ns + cost.link.alpha_ns;
  return link;
}

int64_t exchange_ns(const CostModel& cost, const Exchange& exchange, int64_t bytes, int64_t ranks) {
  const bool within = cost.ranks_per_host % (2 * exchange.distance) == 0;
  const bool in_rack =
      Wide{cost.ranks_per_host} * cost.hosts_per_rack % (2 * exchange.distance) == 0;
  const bool flat = within || !goes_across(cost, ranks);
  LinkCost link =
      flat ? cost.link
           : slower_of(cost.link, shared_across(cost, ranks, all_at_once(cost, ranks, in_rack)));
  const bool same_place = exchange.distance % std::max<int64_t>(cost.ranks_per_host, 1) == 0;
  if (!flat && !same_place && changes_rails(cost))
    link.alpha_ns = cost.across.alpha_ns + cost.link.alpha_ns;
  const Wide wire = moved_ns(bytes, beta_of(cost, link, on_host(cost, ranks)), 1, exchange.of);
  const Wide sum =
      exchange.adds ? moved_ns(bytes, link.gamma_fs_per_byte, 1, exchange.of) : Wide{0};
  return saturated(link.alpha_ns + wire + sum);
}

int64_t ring_round_ns(const CostModel& cost, const LinkCost& link, int64_t bytes, int64_t ranks) {
  return saturated(round_ns(cost, link, bytes, ranks, on_host(cost, ranks)));
}

namespace {

// Whatever the algorithm of sums.
CostModel without_algorithm(CostModel cost) {
  cost.algorithm = Algorithm::ring;
  return cost;
}

// A rank has its neighbours within a host on one kind of link, and all others on the other.
Wide exchange_with_all_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  const int64_t sharers = on_host(cost, ranks);
  const int64_t inside = goes_across(cost, ranks) ? sharers : ranks;
  const auto to = [&](const LinkCost& link, int64_t peers) {
    return Wide{peers} * link.alpha_ns +
           moved_ns(bytes, beta_of(cost, link, sharers), peers, ranks) +
           moved_ns(bytes, link.gamma_fs_per_byte, peers, ranks);
  };
  // Those that stay on the NIC of their sender.
  const int64_t at_nic = (inside + nics_of(cost) - 1) / nics_of(cost);
  const int64_t on_rail = std::min(ranks - inside, (hosts_of(cost, ranks) - 1) * at_nic);
  const Wide changing = changes_rails(cost) ? to(cost.link, ranks - inside - on_rail) : Wide{0};
  return to(cost.link, inside - 1) + changing +
         to(shared_across(cost, ranks, all_at_once(cost, ranks, false)), ranks - inside);
}

// Half of a ring's rounds, of which those that add are paid for it.
Wide half_ring_ns(const CostModel& cost, const LinkCost& link, bool adds, int64_t bytes,
                  int64_t ranks, int64_t sharers) {
  const Wide sum = adds ? moved_ns(bytes, link.gamma_fs_per_byte, ranks - 1, ranks) : Wide{0};
  return Wide{ranks - 1} * link.alpha_ns +
         moved_ns(bytes, beta_of(cost, link, sharers), ranks - 1, ranks) + sum;
}

// Of an all-gather, or of a reduce-scatter, which adds.
Wide half_ns(CostModel cost, bool adds, int64_t bytes, int64_t ranks) {
  const int64_t inside = on_host(cost, ranks);
  if (cost.algorithm != Algorithm::hierarchical) {
    cost = without_algorithm(cost);
    return half_ring_ns(cost, flat_link(cost, ranks), adds, bytes, ranks, inside);
  }
  const int64_t links = on_smallest_host(cost, ranks);
  return half_ring_ns(cost, cost.link, adds, bytes, inside, inside) +
         half_ring_ns(cost, shared_across(cost, ranks, {links, links}), adds,
                      (bytes + links - 1) / links, hosts_of(cost, ranks), inside);
}

Wide by_formula_ns(const CostModel& cost, Operation operation, int64_t bytes, int64_t ranks) {
  if (operation == Operation::all_to_all)
    return exchange_with_all_ns(without_algorithm(cost), bytes, ranks);
  if (operation == Operation::all_gather) return half_ns(cost, false, bytes, ranks);
  if (operation == Operation::reduce_scatter) return half_ns(cost, true, bytes, ranks);
  LOCKSTEP_CHECK(operation == Operation::all_reduce, "a collective of unknown cost");
  return algorithm_ns(cost, bytes, ranks);
}

}  // namespace

int64_t collective_ns(const CostModel& cost, Operation operation, int64_t bytes, int64_t ranks) {
  if (ranks <= 1) return 0;
  if (cost.tables.empty())
    return saturated(cost.overhead_ns + by_formula_ns(cost, operation, bytes, ranks));
  const CostModel::Table* table = table_for(cost, operation, ranks);
  LOCKSTEP_CHECK(table != nullptr, "a collective of ranks that nobody measured");
  return saturated(cost.overhead_ns + from_table(table->rows, bytes));
}

int64_t all_reduce_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  return collective_ns(cost, Operation::all_reduce, bytes, ranks);
}
int64_t all_to_all_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  return collective_ns(cost, Operation::all_to_all, bytes, ranks);
}
int64_t all_gather_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  return collective_ns(cost, Operation::all_gather, bytes, ranks);
}
int64_t reduce_scatter_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  return collective_ns(cost, Operation::reduce_scatter, bytes, ranks);
}

int64_t all_reduce_apart_ns(const CostModel& cost, int64_t bytes, int64_t ranks, int64_t apart) {
  const int64_t inside = on_host(cost, ranks), rings = std::min(apart, inside);
  LinkCost link = cost.link;
  if (goes_across(cost, ranks)) {
    // Of a rack those hosts send out of it whose next one in the ring is in another.
    const int64_t last = std::min(std::max<int64_t>(apart / inside, 1), cost.hosts_per_rack);
    link = shared_across(cost, ranks, {rings, rings * last});
    if (apart < inside) {
      link = slower_of(cost.link, link);
      if (changes_rails(cost)) link.alpha_ns = cost.across.alpha_ns + cost.link.alpha_ns;
    }
  }
  return saturated((ranks > apart ? cost.overhead_ns : 0) +
                   ring_ns(cost, link, bytes, ranks / apart, inside));
}

int64_t wire_ns(const CostModel& cost, Operation operation, int64_t bytes, int64_t ranks) {
  CostModel wire = cost;
  wire.overhead_ns = wire.link.alpha_ns = wire.across.alpha_ns = 0;
  return collective_ns(wire, operation, bytes, ranks);
}

int64_t broadcast_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  if (ranks <= 1) return 0;
  // Over the slowest link on its way.
  const LinkCost link = flat_link(without_algorithm(cost), ranks);
  const Wide hop = link.alpha_ns + moved_ns(bytes, beta_of(cost, link, on_host(cost, ranks)));
  return saturated(cost.overhead_ns + log2_up(ranks) * hop);
}

int64_t least_all_reduce_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  if (ranks <= 1 || !cost.tables.empty()) return 0;
  // Rounded down: a bound must not be above what it bounds.
  const auto least = [&](int64_t members, int64_t links, int64_t fs_per_byte) {
    return Wide{bytes} * fs_per_byte * 2 * (members - 1) / members / links / kFsPerNs;
  };
  const int64_t across = cost.across.beta_fs_per_byte;
  if (!goes_across(cost, ranks)) return saturated(least(ranks, 1, cost.link.beta_fs_per_byte));
  const Wide of_ranks =
      least(ranks, 1, std::min(cost.link.beta_fs_per_byte, least_across_fs(cost)));
  const auto links = [&](int64_t members) {
    return cost.stripes ? nics_of(cost) : std::min(members, nics_of(cost));
  };
  const Wide of_hosts = std::max(least(hosts_of(cost, ranks), links(on_host(cost, ranks)), across),
                                 least(2, links(on_smallest_host(cost, ranks)), across));
  const Wide of_rack = crosses_racks(cost, ranks)
                           ? Wide{bytes} * across * cost.oversubscription_millis / 1000 /
                                 nics_of_rack(cost) / kFsPerNs
                           : Wide{0};
  return saturated(std::max({of_ranks, of_hosts, of_rack}));
}

int64_t least_exchange_ns(const CostModel& cost, int64_t bytes, int64_t ranks) {
  if (ranks <= 1 || !cost.tables.empty()) return 0;
  const bool hosts = goes_across(cost, ranks);
  const int64_t fastest = hosts ? std::min(cost.link.beta_fs_per_byte, least_across_fs(cost))
                                : cost.link.beta_fs_per_byte;
  return saturated(Wide{bytes} * fastest * (ranks - 1) / ranks / kFsPerNs);  // rounded down
}

}  // namespace lockstep
