#include <fmt/format.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "scenarios/workloads/workload.h"
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
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return Json::parse(text.str());
}

}  // namespace

int run_explore(const std::string& file) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ExploreResult result;
  try {
    Signals signals;  // before any thread: they all leave them to us
    const Json given = read_json(file);
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
