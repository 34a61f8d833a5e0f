#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/golden_run.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Golden runs of a host of many short runs: a golden run does not know which reducer or
// communicator it judges, so runs that differ only in these share it. Keeps the newest kEntriesMax.
// One thread.
class GoldenCache {
 public:
  static constexpr size_t kEntriesMax = 64;

  // A stream that holds all items of the golden run already, for ranks_of(plan.scenario)
  // consumers: made now, or copied from an earlier one with the same settings.
  std::shared_ptr<StateStream> stream(const RunPlan& plan, GoldenKind kind);

 private:
  struct Items {
    int64_t slot_bytes = 0;
    std::vector<std::byte> bytes;
  };
  Items make(const RunPlan& plan, GoldenKind kind) const;

  std::map<std::string, Items> entries_;
  std::vector<std::string> order_;  // oldest first
};

}  // namespace lockstep
