#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <string>

#include "sim/tools/explain/attribution.h"

namespace lockstep {

const char* name_of(FlightClass kind) {
  switch (kind) {
    case FlightClass::nothing:
      return "nothing";
    case FlightClass::never_entered:
      return "never_entered";
    case FlightClass::held:
      return "held";
    case FlightClass::late:
      return "late";
    case FlightClass::mismatch:
      return "mismatch";
    case FlightClass::order:
      return "order";
    case FlightClass::ahead:
      return "ahead";
    case FlightClass::not_started:
      return "not_started";
    case FlightClass::died:
      return "died";
    case FlightClass::silent:
      return "silent";
    case FlightClass::straggler:
      return "straggler";
  }
  return "nothing";
}

std::string rank_list(const RankSet& ranks) {
  constexpr size_t kMostListed = 20;
  if (ranks.size() > kMostListed)
    return fmt::format("ranks {} and {} more",
                       fmt::join(ranks.begin(), std::next(ranks.begin(), kMostListed), ", "),
                       ranks.size() - kMostListed);
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

void leave_undecided(const RankSet& others, const std::string& why, FlightFinding* finding) {
  finding->decided = false;
  finding->missing.push_back(why);
  finding->candidates.insert(others.begin(), others.end());
  finding->candidates.insert(finding->guilty.begin(), finding->guilty.end());
  finding->guilty.clear();
}

}  // namespace lockstep
