#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reducer/probe.h"
#include "scenarios/base/error.h"

namespace lockstep {

// How long a collective takes once all ranks are in it, in whole nanoseconds. n bytes, p ranks;
// alpha a message, beta a byte on the wire, gamma a byte that is added (docs/simulation.md).

// One kind of link. Rates are in femtoseconds a byte, so that 50 GB/s (20,000 fs) is exact enough.
struct LinkCost {
  int64_t alpha_ns = 0;
  int64_t beta_fs_per_byte = 0;
  int64_t gamma_fs_per_byte = 0;
  bool operator==(const LinkCost&) const = default;
};
// Of MB/s (10^6 bytes); > 0.
int64_t fs_per_byte_of(double mb_per_s);

enum class Algorithm {
  ring,                // 2(p-1) rounds of n/p
  ring_segmented,      // Gloo's: each part in segments, alpha for each
  halving_doubling,    // reduce-scatter and all-gather by distance; others than 2^k fold first
  recursive_doubling,  // log2 p rounds of n
  bcube,               // Gloo's, of base 2: as halving_doubling, in blocks
  double_binary_tree,  // 2 log2 p latencies, 2 n bytes, pipelined
  hierarchical         // reduce-scatter in a host, ring across hosts, all-gather in a host
};
const char* to_word(Algorithm algorithm);
// Does each rank send to the next one only, round after round?
constexpr bool is_ring(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::ring_segmented;
}
// Of its word; nothing else is one.
Expected<Algorithm> algorithm_of(const std::string& word);

struct CostModel {
  Algorithm algorithm = Algorithm::ring;
  LinkCost link;    // between neighbours, within a host where there are hosts
  LinkCost across;  // between hosts
  // Neighbours by rank; 1: hosts are not told apart, and every link is as `link`, but of
  // hierarchical, whose ring across is as `across`.
  int64_t ranks_per_host = 1;
  // Of ranks that are joined pair by pair within a host (NVLink without a switch): among at most
  // `ranks` of them each has `links` to the others. `link` has the bandwidth of the last row's.
  struct Mesh {
    int64_t ranks = 0, links = 0;
    bool operator==(const Mesh&) const = default;
  };
  std::vector<Mesh> mesh;
  // `across` is one NIC's, and so many are shared by those ranks of a host that send out of it at
  // once, each over one at a time. 0: a link across for each rank.
  int64_t nics_per_host = 0;
  // A message leaves its host over all of its NICs at once, a part over each (NCCL's channels).
  bool stripes = false;
  // A host's i-th NIC reaches the i-th of other hosts alone. A message to a rank of another place
  // in its host first goes within the host, to the rank at that NIC. Nothing with stripes, which
  // keep to their rails.
  bool rails = false;
  // Of neighbouring hosts. What leaves a rack has 1000/oversubscription_millis of the bandwidth
  // that all of its hosts' NICs have together.
  int64_t hosts_per_rack = 1, oversubscription_millis = 1000;
  // What is paid once a collective, whatever its size: a hop between threads, a launch.
  int64_t overhead_ns = 0;
  // Work of the host's cores for each byte that a rank sends. With more ranks on a host than
  // cores they share them.
  int64_t core_fs_per_byte = 0;
  int64_t cores_per_host = 0;  // 0: enough
  // Neighbours of a host below one switch of PCI Express. `core_fs_per_byte` is then that of a
  // switch's link to the host, over which what any of them sends goes; they share it. 0: none.
  int64_t ranks_per_switch = 0;
  // Measured times of one world size, ascending bytes: between rows on the line through them,
  // beyond the last in proportion to its rate.
  struct Row {
    int64_t bytes = 0, ns = 0;
    bool operator==(const Row&) const = default;
  };
  struct Table {
    int64_t ranks = 0;  // 0: it was not said of how many, and the table is taken for any
    std::vector<Row> rows;
    Operation operation = Operation::all_reduce;  // or one more of kMeasuredOperations
    bool operator==(const Table&) const = default;
  };
  // They replace everything above but overhead_ns, for the operations and world sizes that they are
  // of: of others they say nothing (problem_with_ranks()). One of each.
  std::vector<Table> tables;
  bool operator==(const CostModel&) const = default;
};

// The least and the largest size of all-reduces that were measured at so many ranks, in bytes.
std::optional<std::pair<int64_t, int64_t>> measured_sizes(const CostModel& cost, int64_t ranks);

inline constexpr int64_t kMostBytes = int64_t{1} << 50;                   // of one collective
inline constexpr int64_t kMostRanks = 1'000'000;                          // of one run
inline constexpr int64_t kMostNs = int64_t{1} << 60;                      // of a run: 36 years
inline constexpr int64_t kMostAlphaNs = 1'000'000'000'000;                // 1,000 s
inline constexpr int64_t kMostFsPerByte = 1'000'000'000'000;              // 1 kB/s
inline constexpr int64_t kMostSharedFsPerByte = 100'000'000'000'000'000;  // of all that share it
inline constexpr int64_t kMostOversubscriptionMillis = 1'000'000;

// Is there a byte that costs more where several ranks of a host send one at once?
bool shares_cores(const CostModel& cost);

// As runs of so many ranks see it: `link` with the bandwidth of the links that they have, no mesh.
CostModel cost_of_ranks(CostModel cost, int64_t ranks);

// Is everything in range? Where not, an error that names the value and what is allowed.
InputErrors problems_of(const CostModel& cost);

// Those that buckets are brought together by.
inline constexpr Operation kMeasuredOperations[] = {
    Operation::all_reduce, Operation::all_to_all, Operation::all_gather, Operation::reduce_scatter};

// "2, 8": the world sizes of its tables of one operation.
std::string measured_ranks(const CostModel& cost, Operation operation = Operation::all_reduce);

// Are collectives of so many ranks known? Where the tables are of others, or of another operation,
// an error that names these.
std::optional<InputError> problem_with_ranks(const CostModel& cost, int64_t ranks,
                                             Operation operation = Operation::all_reduce);

// Of an all-reduce, from the last rank's arrival to the end. 0 for one rank. Saturates at kMostNs,
// which whoever adds times up must refuse. bytes <= kMostBytes, 1 <= ranks <= kMostRanks, of which
// problem_with_ranks() says nothing.
int64_t all_reduce_ns(const CostModel& cost, int64_t bytes, int64_t ranks);
// Of an all-to-all in which every rank sends each other one its part of so many bytes, one after
// the other, and adds what it gets.
int64_t all_to_all_ns(const CostModel& cost, int64_t bytes, int64_t ranks);
// Of an all-gather after which every rank has so many bytes: half of a ring's rounds. With
// algorithm hierarchical half of its rings.
int64_t all_gather_ns(const CostModel& cost, int64_t bytes, int64_t ranks);
// Of a reduce-scatter to which every rank gives so many bytes: the other half, which adds.
int64_t reduce_scatter_ns(const CostModel& cost, int64_t bytes, int64_t ranks);
// Of an all-reduce between every `apart`-th of so many ranks, in rings. All ranks are in one, each
// with so many bytes, and all go at once: those of a host share what leaves it. `apart` divides
// ranks, and is whole hosts or divides them.
int64_t all_reduce_apart_ns(const CostModel& cost, int64_t bytes, int64_t ranks, int64_t apart);
// Of one of the four.
int64_t collective_ns(const CostModel& cost, Operation operation, int64_t bytes, int64_t ranks);
// Of a broadcast down a binary tree.
int64_t broadcast_ns(const CostModel& cost, int64_t bytes, int64_t ranks);

// One of `rounds` equal rounds of a ring, over a link of its own: what a rank's send of its part
// takes. all_reduce_ns() of a ring is 2(p-1) of them and overhead_ns.
int64_t ring_round_ns(const CostModel& cost, const LinkCost& link, int64_t bytes, int64_t ranks);
// One exchange of n/of bytes between ranks that are `distance` apart, which add what they get or
// keep it. All pairs exchange at once: where one of them is on two hosts, as between hosts.
struct Exchange {
  int64_t distance = 1, of = 1;
  bool adds = true;
};
int64_t exchange_ns(const CostModel& cost, const Exchange& exchange, int64_t bytes, int64_t ranks);
// A link between hosts to a rank of a host of which so many send out of it at once, and so many out
// of its rack: its byte costs as much as the fewer NICs, or what is above the rack, make of it.
struct Senders {
  int64_t of_host = 1, of_rack = 1;
};
LinkCost shared_across(const CostModel& cost, int64_t ranks, const Senders& senders);
// The link that an algorithm waits for that knows nothing of hosts: the slowest on its way. Of
// those that one rank of a host sends over at a time, as of a ring.
LinkCost flat_link(const CostModel& cost, int64_t ranks);
// Do these ranks talk between hosts, so that `across` counts?
bool goes_across(const CostModel& cost, int64_t ranks);
// Gloo cuts each part in two at least, each of 1 MiB at most, and has two under way.
int64_t segments_of(int64_t bytes, int64_t ranks);

// Of collective_ns() what the wire is busy for: collectives that are under way at once take turns
// with it. Of a table, which does not tell it apart, everything but overhead_ns.
int64_t wire_ns(const CostModel& cost, Operation operation, int64_t bytes, int64_t ranks);

// The least that any algorithm takes: 2(p-1)/p n bytes over a rank's link (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Where there are
// hosts the same between them, over all links or NICs of a host, and n bytes out of the host with
// fewest, and out of a rack. A table has no link: 0.
int64_t least_all_reduce_ns(const CostModel& cost, int64_t bytes, int64_t ranks);
// The least of an all-to-all, an all-gather or a reduce-scatter: (p-1)/p n bytes over a rank's
// faster kind of link.
int64_t least_exchange_ns(const CostModel& cost, int64_t bytes, int64_t ranks);

}  // namespace lockstep
