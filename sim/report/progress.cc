#include "sim/report/progress.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kMoveEvery{100};
constexpr std::chrono::seconds kPlainEvery{5};

}  // namespace

Progress::Progress(std::map<std::string, Group> groups, bool terminal, bool quiet)
    : groups_(std::move(groups)),
      terminal_(terminal),
      quiet_(quiet),
      start_(Clock::now()),
      last_(start_) {
  for (const auto& [name, group] : groups_) cost_ += group.runs * group.cost;
}

Progress::~Progress() {
  if (shown_ && terminal_) print_error("\r\033[K");
}

std::string Progress::line(const std::string& name, std::chrono::nanoseconds elapsed) const {
  const auto done = done_.find(name);
  const auto group = groups_.find(name);
  std::string text = fmt::format("{} {}/{}  {} %", name, done == done_.end() ? 0 : done->second,
                                 group == groups_.end() ? 0 : group->second.runs,
                                 cost_ == 0 ? 100 : cost_done_ * 100 / cost_);
  if (cost_done_ > 0) {
    const double left = std::chrono::duration<double>(elapsed).count() *
                        static_cast<double>(cost_ - cost_done_) / static_cast<double>(cost_done_);
    text += fmt::format("  {:.0f} s left", std::ceil(left));
  }
  return text + fmt::format("  {} failed", failed_);
}

void Progress::done(const RunResult& run) {
  ++done_[run.name];
  if (const auto group = groups_.find(run.name); group != groups_.end())
    cost_done_ += group->second.cost;
  const bool failed = run.met == false && run.baseline != "known";
  failed_ += failed;
  if (quiet_) return;
  if (terminal_ && failed)
    print_error(fmt::format("\r\033[K{}  {}  {}\n", run.verdict, run.name, run.label));
  const Deadline now = Clock::now();
  const auto every = terminal_ ? std::chrono::nanoseconds(kMoveEvery) : kPlainEvery;
  if (now - last_ < every) return;
  last_ = now;
  shown_ = true;
  print_error(fmt::format("{}{}{}", terminal_ ? "\r\033[K" : "", line(run.name, now - start_),
                          terminal_ ? "" : "\n"));
}

}  // namespace lockstep
