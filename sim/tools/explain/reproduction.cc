#include "sim/tools/explain/reproduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "scenarios/base/text.h"
#include "scenarios/faults.h"
#include "sim/plan/plans.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostProcesses = 16;        // that `run` starts; two cores take seconds for them
constexpr int64_t kFewerProcesses = 8;        // where the job has more
constexpr int64_t kMostInScenario = 256;      // ranks that are processes; more by --world-size
constexpr int64_t kMostGuilty = 7;            // runs of seconds; each of them is another rank
constexpr int64_t kTimeoutMs = 2'000;         // what `run` waits
constexpr int64_t kUsualTimeoutMs = 600'000;  // of NCCL
constexpr int64_t kMostMs = 604'800'000;      // that a scenario may say
// A rank that comes a moment after a time-out may come before it on a busy machine.
constexpr double kLeastLateness = 2, kMostLateness = 4;

// How a class is acted out, and what lockstep is to say of it.
struct Acted {
  FaultKind kind;
  const char* phase;  // null: where the kind acts by itself
  const char* failure;
  std::string what;
};

Acted died(int64_t signal) {
  if (signal == 0)
    return {FaultKind::exception, nullptr, "exception", "ends with an exception of its own"};
  for (const FaultRow& row : fault_rows())
    if (row.ends_by == signal)
      return {row.kind, nullptr, "crash", fmt::format("is ended by signal {}", signal)};
  return {FaultKind::kill, nullptr, "crash",
          fmt::format("is ended by SIGKILL, in place of signal {}", signal)};
}

std::optional<Acted> acted(const FlightFinding& found) {
  switch (found.kind) {
    case FlightClass::never_entered:
      return Acted{FaultKind::deadlock, nullptr, "hang", "never enters a collective"};
    case FlightClass::held:
    case FlightClass::not_started:
      return Acted{FaultKind::deadlock, "wait", "hang",
                   "hangs in its wait for collectives that peers complete"};
    case FlightClass::late:
      return Acted{FaultKind::stall, nullptr, "hang", "comes after the time-out"};
    case FlightClass::mismatch:
    case FlightClass::order:
      if (found.difference == Difference::dtype)
        return Acted{FaultKind::mismatched_dtype, nullptr, "rejected", "trains in another dtype"};
      if (found.difference == Difference::size)
        return Acted{FaultKind::mismatched_bucket_order, nullptr, "rejected",
                     "calls collectives of different sizes"};
      return std::nullopt;
    case FlightClass::died:
      return died(found.signal);
    case FlightClass::silent:
      if (found.lost_connection)
        return Acted{FaultKind::kill, nullptr, "crash", "disappears without a word"};
      return Acted{FaultKind::deadlock, nullptr, "hang", "hangs without a word"};
    case FlightClass::ahead:
    case FlightClass::straggler:
    case FlightClass::nothing:
      return std::nullopt;
  }
  return std::nullopt;
}

// One scenario of one finding.
class Reproducer {
 public:
  Reproducer(const FlightFinding& found, Acted how) : found_(found), how_(std::move(how)) {
    guilty_.assign(found.guilty.begin(), found.guilty.end());
    ranks_ = std::max({found.ranks, guilty_.back() + 1, int64_t{2}});
    fewer_ = ranks_ > kMostProcesses;
    if (guilty_.size() > kMostGuilty) guilty_.resize(kMostGuilty);
    stand_ins_ = fewer_ ? stand_ins() : guilty_;
    timeout_ms_ = std::min(found.timeout_ms > 0 ? found.timeout_ms : kUsualTimeoutMs, kMostMs);
  }

  Reproduction run() const {
    const FaultRow& row = row_of(how_.kind);
    Reproduction made;
    made.ranks = ranks_;
    made.simulated = row.in_virtual_time == InVirtualTime::counts;
    made.ranks_by_option = ranks_ > kMostInScenario;
    made.scenario = scenario();
    return made;
  }

 private:
  // Each keeps its number where the smaller job has it.
  std::vector<int64_t> stand_ins() const {
    const auto fits = [](int64_t rank) { return rank < kFewerProcesses; };
    if (std::all_of(guilty_.begin(), guilty_.end(), fits)) return guilty_;
    std::vector<int64_t> ranks;
    for (size_t i = 0; i < guilty_.size(); ++i) ranks.push_back(static_cast<int64_t>(i) + 1);
    return ranks;
  }

  int64_t run_timeout_ms() const { return std::max(timeout_ms_, kTimeoutMs); }

  // By which everything is faster in `run`.
  double time_scale() const {
    return static_cast<double>(kTimeoutMs) / static_cast<double>(run_timeout_ms());
  }

  int64_t lateness_ms() const {
    const double least = static_cast<double>(timeout_ms_) + 1;
    const double late = std::max(found_.lateness_ms.value_or(0), least);
    return std::min(static_cast<int64_t>(std::llround(std::min(late, 1e12))), kMostMs);
  }

  int64_t run_lateness_ms() const {
    const auto timeout = static_cast<double>(run_timeout_ms());
    const double late = std::clamp(found_.lateness_ms.value_or(0), kLeastLateness * timeout,
                                   kMostLateness * timeout);
    return std::min(static_cast<int64_t>(std::llround(late)), kMostMs);
  }

  Json fault(int64_t rank) const {
    Json made = {{"kind", to_word(how_.kind)}, {"rank", rank}};
    if (row_of(how_.kind).acts == FaultActs::once) made["step"] = 2;
    if (how_.phase != nullptr) made["phase"] = how_.phase;
    if (how_.kind == FaultKind::stall) {
      made["step"] = 2;
      made["duration_ms"] = run_lateness_ms();
    }
    return made;
  }

  Json expectation(const std::vector<int64_t>& ranks) const {
    Json all = Json::array();
    for (const int64_t rank : ranks) {
      Json one = {{"outcome", "failed"}, {"primary_rank", rank}, {"kind", how_.failure}};
      if (ranks.size() > 1) one["when"] = {{"/faults/0/rank", rank}};
      all.push_back(std::move(one));
    }
    return ranks.size() > 1 ? all : all.front();
  }

  std::string what() const {
    const bool several = guilty_.size() > 1;
    std::string text = fmt::format("From `lockstep explain`: {}{} {}{}", several ? "each of " : "",
                                   named(guilty_), how_.what, several ? ", in its own run" : "");
    if (found_.guilty.size() > guilty_.size())
      text += fmt::format(" ({} more did)", found_.guilty.size() - guilty_.size());
    if (found_.sequence >= 0 && !found_.operation.empty())
      text += fmt::format("; in the job {} {}, here the first of step 2",
                          shortened(found_.operation), found_.sequence);
    if (fewer_)
      text += fmt::format("; {} ranks stand for the job's {} ({} for {})", kFewerProcesses,
                          grouped(ranks_), named(stand_ins_), named(guilty_));
    return text + "; " + time_text();
  }

  static std::string named(const std::vector<int64_t>& ranks) {
    return rank_list(RankSet(ranks.begin(), ranks.end()));
  }

  std::string time_text() const {
    std::string text = fmt::format("a time-out of {} s{}", static_cast<double>(timeout_ms_) / 1e3,
                                   found_.timeout_ms > 0 ? "" : " (the job's is not known)");
    if (timeout_ms_ != kTimeoutMs) text += fmt::format(" is {} s here", kTimeoutMs / 1000);
    if (how_.kind == FaultKind::stall && run_lateness_ms() != lateness_ms())
      text += fmt::format(", {:.1f} s late is {:.1f} s", static_cast<double>(lateness_ms()) / 1e3,
                          static_cast<double>(run_lateness_ms()) * time_scale() / 1e3);
    return text;
  }

  Json full() const {
    Json made = {{"/time_scale", 1}};
    if (run_timeout_ms() != timeout_ms_) made["/timeouts/collective_ms"] = timeout_ms_;
    if (how_.kind == FaultKind::stall) made["/faults/0/duration_ms"] = lateness_ms();
    if (!fewer_ || ranks_ > kMostInScenario) return made;
    made["/world_size"] = ranks_;
    made["/batch_size"] = 2 * ranks_;
    made["/data/samples"] = 8 * ranks_;
    made["/expect"] = expectation(guilty_);
    if (guilty_.size() > 1)
      made["/matrix"] = {{"/faults/0/rank", guilty_}};
    else
      made["/faults/0/rank"] = guilty_.front();
    return made;
  }

  Json scenario() const {
    const int64_t ranks = fewer_ ? kFewerProcesses : ranks_;
    Json made = {
        {"name", "explained"},
        {"what", what()},
        {"world_size", ranks},
        {"steps", 3},
        {"batch_size", 2 * ranks},
        {"time_scale", time_scale()},
        {"compute", {{"kind", "emulated"}, {"forward_ms", 100}, {"backward_ms", 200}}},
        {"model", {{"kind", "mlp"}, {"in_features", 8}, {"hidden", {12, 10}}, {"out_features", 4}}},
        {"data", {{"kind", "randn"}, {"samples", 8 * ranks}, {"features", 8}, {"targets", 4}}},
        {"loss", {{"kind", "mse"}}},
        {"optimizer", {{"kind", "sgd"}, {"lr", 0.1}}},
        {"reducer", {{"kind", "bucketed"}, {"bucket_cap_mb", 0.0005}, {"first_bucket_mb", 0.0002}}},
        {"timeouts", {{"collective_ms", run_timeout_ms()}}},
        {"faults", Json::array({fault(stand_ins_.front())})},
        {"lanes", {"replica"}},
        {"expect", expectation(stand_ins_)}};
    if (stand_ins_.size() > 1) made["matrix"] = {{"/faults/0/rank", stand_ins_}};
    made["full"] = full();
    return made;
  }

  const FlightFinding& found_;
  Acted how_;
  std::vector<int64_t> guilty_, stand_ins_;
  int64_t ranks_ = 0, timeout_ms_ = 0;
  bool fewer_ = false;
};

}  // namespace

Reproduction reproduce(const FlightFinding& found) {
  Reproduction made;
  if (!found.decided) {
    made.why_not = "the guilty rank is undecided";
  } else if (found.guilty.empty()) {
    made.why_not = "there is nothing to explain";
  } else if (const auto how = acted(found)) {
    return Reproducer(found, *how).run();
  } else if (found.kind == FlightClass::straggler) {
    made.why_not = "nothing failed, and scenarios are written only for failures";
  } else {
    made.why_not = found.kind == FlightClass::ahead
                       ? "no fault of lockstep gives a rank more steps than the others"
                       : "no fault of lockstep makes a rank call a different operation";
  }
  return made;
}

std::string reproduction_text(const Reproduction& made, const std::string& path) {
  if (!made.scenario) return fmt::format("no scenario was written: {}\n", made.why_not);
  const std::string file = printable(shell_word(path));
  std::string text = fmt::format("to reproduce it:\n  lockstep run {}\n", file);
  if (!made.simulated) return text + "  (lockstep simulate has no such fault)\n";
  text += fmt::format("  lockstep simulate {} --full{}  (all {} ranks, at the job's time-out)\n",
                      file, made.ranks_by_option ? fmt::format(" --world-size {}", made.ranks) : "",
                      grouped(made.ranks));
  return text;
}

}  // namespace lockstep
