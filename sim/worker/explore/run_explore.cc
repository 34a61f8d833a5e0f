#include <fmt/format.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/memory_room.h"
#include "sim/launch/signals.h"
#include "sim/worker/explore/explore.h"
#include "sim/worker/libraries.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void say(const Json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

Json read_json(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) throw std::runtime_error(to_text(text.errors().front()));
  auto json = parse_foreign_json(text.value(), path, "a plan and what to explore of it");
  if (!json) throw std::runtime_error(to_text(json.errors().front()));
  return std::move(json.value());
}

}  // namespace

int run_explore(const std::string& file) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ExploreResult result;
  try {
    Signals signals;  // before any thread: they all leave them to us
    const Json given = read_json(file);
    take_room(1);
    prepare_libtorch(1);
    const ExploreWatch watch{.progress =
                                 [](int64_t explored) {
                                   say({{"explored", explored}});
                                 },
                             .signal = [&] { return signals.next(); }};
    result = explore_schedules(plan_from_json(given.at("plan")),
                               explore_spec_from_json(given.at("spec")), watch);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    result.broken = text.substr(0, text.find('\n'));
  }
  result.libraries = libraries_json();
  say({{"result", as_json(result)}});
  return 0;
}

}  // namespace lockstep
