#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/des/cost.h"

// Is everything in a cost model in range?

namespace lockstep {
namespace {

using Wide = __int128;

void check_range(const char* name, int64_t value, int64_t least, int64_t most,
                 InputErrors* problems) {
  if (value >= least && value <= most) return;
  InputError problem;
  problem.message = fmt::format("{} is {}", name, value);
  problem.allowed = fmt::format("{} to {}", least, most);
  problems->push_back(problem);
}

void check_link(const std::string& name, const LinkCost& link, InputErrors* problems) {
  check_range((name + ".alpha_ns").c_str(), link.alpha_ns, 0, kMostAlphaNs, problems);
  check_range((name + ".beta_fs_per_byte").c_str(), link.beta_fs_per_byte, 0, kMostFsPerByte,
              problems);
  check_range((name + ".gamma_fs_per_byte").c_str(), link.gamma_fs_per_byte, 0, kMostFsPerByte,
              problems);
}

// What ranks of a host, and hosts of a rack, share.
void check_network(const CostModel& cost, InputErrors* problems) {
  check_range("nics_per_host", cost.nics_per_host, 0, kMostRanks, problems);
  check_range("hosts_per_rack", cost.hosts_per_rack, 1, kMostRanks, problems);
  check_range("oversubscription_millis", cost.oversubscription_millis, 1000,
              kMostOversubscriptionMillis, problems);
  if (!problems->empty()) return;
  // One for each rank where nobody says otherwise.
  const int64_t nics = cost.nics_per_host > 0 ? cost.nics_per_host : cost.ranks_per_host;
  const Wide most = Wide{cost.across.beta_fs_per_byte} * cost.ranks_per_host *
                    cost.oversubscription_millis / 1000 / nics;
  if (most <= kMostSharedFsPerByte) return;
  InputError problem;
  problem.message = fmt::format(
      "{} ranks of a host share {} NICs of {} fs a byte, {} times "
      "oversubscribed",
      cost.ranks_per_host, nics, cost.across.beta_fs_per_byte,
      static_cast<double>(cost.oversubscription_millis) / 1000);
  problem.allowed = fmt::format("at most {} fs a byte for each", kMostSharedFsPerByte);
  problems->push_back(problem);
}

void check_mesh(const CostModel& cost, InputErrors* problems) {
  CostModel::Mesh last;
  for (const CostModel::Mesh& row : cost.mesh) {
    check_range("mesh_links ranks", row.ranks, last.ranks + 1, kMostRanks, problems);
    check_range("mesh_links links", row.links, std::max<int64_t>(last.links, 1), kMostRanks,
                problems);
    last = row;
  }
}

// Rows that ascend, at least one of each table, and one table of each operation and world size.
void check_tables(const std::vector<CostModel::Table>& tables, InputErrors* problems) {
  std::set<std::pair<Operation, int64_t>> seen;
  const auto tables_of = [&](Operation operation) {
    return std::count_if(tables.begin(), tables.end(), [&](const CostModel::Table& table) {
      return table.operation == operation;
    });
  };
  for (const CostModel::Table& table : tables) {
    if (table.ranks != 0) check_range("table ranks", table.ranks, 2, kMostRanks, problems);
    if (table.rows.empty()) check_range("table rows", 0, 1, kMostBytes, problems);
    const bool again = !seen.insert({table.operation, table.ranks}).second;
    if (again || (seen.contains({table.operation, 0}) && tables_of(table.operation) > 1)) {
      InputError problem;
      problem.message = fmt::format("a second table of {} ranks", table.ranks);
      problem.allowed = "one of each operation and world size";
      problems->push_back(problem);
    }
    int64_t last_bytes = -1, last_ns = 0;
    for (const CostModel::Row& row : table.rows) {
      check_range("table bytes", row.bytes, last_bytes + 1, kMostBytes, problems);
      check_range("table ns", row.ns, last_ns, kMostNs, problems);
      last_bytes = row.bytes;
      last_ns = row.ns;
    }
  }
}

}  // namespace

InputErrors problems_of(const CostModel& cost) {
  InputErrors problems;
  check_link("link", cost.link, &problems);
  check_link("across", cost.across, &problems);
  check_range("ranks_per_host", cost.ranks_per_host, 1, kMostRanks, &problems);
  check_network(cost, &problems);
  check_mesh(cost, &problems);
  check_range("overhead_ns", cost.overhead_ns, 0, kMostAlphaNs, &problems);
  check_range("core_fs_per_byte", cost.core_fs_per_byte, 0, kMostFsPerByte, &problems);
  check_range("cores_per_host", cost.cores_per_host, 0, kMostRanks, &problems);
  check_range("ranks_per_switch", cost.ranks_per_switch, 0, kMostRanks, &problems);
  check_tables(cost.tables, &problems);
  return problems;
}

}  // namespace lockstep
