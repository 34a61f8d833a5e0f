#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>

#include "scenarios/parse/suite.h"
#include "sim/cli/simulate_arguments.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/program/option_tree.h"
#include "sim/report/document.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Which runs, and how they are shown: nothing of time.
const std::set<std::string> kOthers = {"FILE",   "--set",         "--device", "--seed",   "--full",
                                       "--data", "--trust-model", "-k",       "--filter", "--color",
                                       "-q",     "--quiet",       "-h",       "--help"};

TEST(OptionUses, HaveARowForEachOption) {
  CLI::App app("A test.", "lockstep");
  std::function<int()> action;
  add_simulate(app, &action);
  std::set<std::string> known;
  for (const OptionUse& use : option_uses()) known.insert(use.name);
  size_t seen = 0;
  const VerbWords words = words_of(app);
  for (const OptionWords& option : words.verbs.at(0).options)
    for (const std::string& name : option.names) {
      if (kOthers.contains(name)) continue;
      EXPECT_TRUE(known.contains(name)) << name;
      ++seen;
    }
  EXPECT_EQ(seen, known.size());
}

std::vector<RunPlan> plans_from(const std::string& file, std::vector<std::string> sets) {
  const auto loaded = load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/" + file,
                                         {.sets = std::move(sets), .seed = {}});
  EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
  return make_plans(loaded.value()).value();
}

// 20 steps of 24 ms of emulated compute and three small buckets, on so many ranks.
std::vector<RunPlan> emulated() {
  return plans_from("stragglers/named_compute.json",
                    {"/world_size=4", "/reducer/kind=bucketed", "/faults=[]"});
}
std::vector<RunPlan> real() {
  return plans_from(
      "stragglers/named_compute.json",
      {"/world_size=4", "/reducer/kind=bucketed", "/faults=[]", R"(/compute={"kind": "real"})"});
}

std::vector<RunPlan> of_shards() {
  return plans_from("stragglers/named_compute.json", {"/world_size=4", "/reducer/kind=invariant",
                                                      "/reducer/virtual_shards=8", "/faults=[]"});
}

std::string refusal(const SimulateVerb& verb, const std::vector<RunPlan>& plans) {
  const auto machine = machine_of(verb);
  EXPECT_TRUE(machine);
  const InputErrors errors = unused_options(verb, machine.value(), plans);
  return errors.empty() ? "" : errors.front().message;
}

// What is said of each run, but for its name.
std::string answer(const SimulateVerb& verb, const std::vector<RunPlan>& plans) {
  EXPECT_THAT(refusal(verb, plans), IsEmpty());
  const auto machine = machine_of(verb);
  SimulateDocument document;
  if (verb.predict.empty()) {
    const auto lines = simulate_plans(verb, machine.value(), plans);
    EXPECT_TRUE(lines) << to_text(lines.errors().front());
    document.lines = lines.value();
  } else {
    document.lines = predict(verb, machine.value(), plans.front()).value().lines;
  }
  return as_json(document)["runs"].dump();
}

using Change = void (*)(SimulateVerb*);
struct Example {
  const char* name;
  Change before, after;  // after comes on top of before
  std::vector<RunPlan> (*plans)() = emulated;
};

void nothing(SimulateVerb*) {}
void hosts(SimulateVerb* verb) {
  verb->ranks_per_host = 2;
  verb->across_latency_us = 300;
  verb->across_bandwidth_mb_per_s = 100;
}
void days(SimulateVerb* verb) {
  verb->mtbf_hours = 10;
  verb->work_hours = 100;
  verb->checkpoint_s = 5;
  verb->restart_s = 5;
}

// Measured at the 4 ranks of emulated().
std::string measured_file() {
  static const std::string path = testing::TempDir() + "/measured_collectives.txt";
  std::string text;
  for (int rank = 0; rank < 4; ++rank)
    text += fmt::format("#  Rank  {} on device {}\n", rank, rank);
  text += "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n";
  text += "4096  1024  float  sum  -1  777.5  0.1  0.1  0\n";
  write_atomically(path, text);
  return path;
}

// What is let in changes the answer.
TEST(OptionUses, EachThatIsTakenCounts) {
  const std::vector<Example> examples = {
      {"--world-size", nothing, [](auto* v) { v->ranks = 8; }},
      {"--steps", nothing, [](auto* v) { v->steps = 8; }},
      {"--predict", nothing, [](auto* v) { v->predict = "worlds=2..8"; }},
      {"--average", nothing, [](auto* v) { v->average = "2:2"; }},
      {"--engine", nothing, [](auto* v) { v->engine = "L1"; }},
      {"--machine", nothing, [](auto* v) { v->machine = "10gbe"; }},
      {"--collectives", nothing, [](auto* v) { v->collectives = {measured_file()}; }},
      {"--algorithm", nothing, [](auto* v) { v->algorithm = "recursive_doubling"; }},
      {"--latency-us", nothing, [](auto* v) { v->latency_us = 99; }},
      {"--bandwidth-mb-per-s", nothing, [](auto* v) { v->bandwidth_mb_per_s = 1; }},
      {"--ranks-per-host", hosts,
       [](auto* v) {
         v->ranks_per_host = 1;
         v->algorithm = "hierarchical";
       }},
      {"--across-latency-us", hosts, [](auto* v) { v->across_latency_us = 400; }},
      {"--across-bandwidth-mb-per-s", hosts, [](auto* v) { v->across_bandwidth_mb_per_s = 1; }},
      {"--channels", nothing, [](auto* v) { v->channels = 2; }},
      {"--overlap-slowdown", nothing, [](auto* v) { v->overlap_slowdown = 0.5; }},
      {"--comm-slowdown", nothing, [](auto* v) { v->comm_slowdown = 0.5; }},
      {"--backward-ms", [](auto* v) { v->backward_ms = 20; }, [](auto* v) { v->backward_ms = 30; },
       real},
      {"--forward-ms", [](auto* v) { v->backward_ms = 20; }, [](auto* v) { v->forward_ms = 30; },
       real},
      {"--noise", nothing, [](auto* v) { v->noise = "normal:0.1"; }},
      {"--mtbf-hours", days, [](auto* v) { v->mtbf_hours = 20; }},
      {"--work-hours", days, [](auto* v) { v->work_hours = 20; }},
      {"--checkpoint-s", days, [](auto* v) { v->checkpoint_s = 20; }},
      {"--checkpoint-every-s", days, [](auto* v) { v->checkpoint_every_s = 20; }},
      {"--restart-s", days, [](auto* v) { v->restart_s = 20; }},
  };
  std::set<std::string> shown = {"--threads",    "--json", "--html", "--trace",
                                 "--trace-kind", "--svg",  "--out"};
  for (const Example& example : examples) {
    SimulateVerb verb;
    example.before(&verb);
    const std::string before = answer(verb, example.plans());
    example.after(&verb);
    EXPECT_NE(answer(verb, example.plans()), before) << example.name;
    shown.insert(example.name);
  }
  for (const OptionUse& use : option_uses()) EXPECT_TRUE(shown.contains(use.name)) << use.name;
}

// Exchanges have no algorithm, but links, hosts, channels and contention.
TEST(OptionUses, EachCountsForVirtualShardsToo) {
  const std::vector<Example> examples = {
      {"--world-size", nothing, [](auto* v) { v->ranks = 8; }},
      {"--predict", nothing, [](auto* v) { v->predict = "caps=0.0003,1,worlds=2..8"; }},
      {"--machine", nothing, [](auto* v) { v->machine = "10gbe"; }},
      {"--latency-us", nothing, [](auto* v) { v->latency_us = 99; }},
      {"--bandwidth-mb-per-s", nothing, [](auto* v) { v->bandwidth_mb_per_s = 1; }},
      {"--ranks-per-host", nothing, [](auto* v) { v->ranks_per_host = 2; }},
      {"--across-latency-us", hosts, [](auto* v) { v->across_latency_us = 400; }},
      {"--across-bandwidth-mb-per-s", hosts, [](auto* v) { v->across_bandwidth_mb_per_s = 1; }},
      {"--channels", nothing, [](auto* v) { v->channels = 2; }},
      {"--overlap-slowdown", nothing, [](auto* v) { v->overlap_slowdown = 0.5; }},
      {"--comm-slowdown", nothing, [](auto* v) { v->comm_slowdown = 0.5; }},
      {"--noise", nothing, [](auto* v) { v->noise = "normal:0.1"; }},
  };
  for (const Example& example : examples) {
    SimulateVerb verb;
    example.before(&verb);
    const std::string before = answer(verb, of_shards());
    example.after(&verb);
    EXPECT_NE(answer(verb, of_shards()), before) << example.name;
  }
  SimulateVerb verb;
  verb.algorithm = "bcube";
  EXPECT_THAT(refusal(verb, of_shards()), HasSubstr("reducer invariant has no all-reduce"));
  verb = {};
  verb.collectives = {measured_file()};
  EXPECT_THAT(refusal(verb, of_shards()), HasSubstr("no run has an all_reduce"));
  verb = {};
  verb.ranks_per_host = 4;
  EXPECT_THAT(refusal(verb, of_shards()), HasSubstr("--ranks-per-host changes nothing"));
}

TEST(OptionUses, FlatAlgorithmsAreSlowerOverHosts) {
  SimulateVerb verb;
  const std::string alone = answer(verb, emulated());
  hosts(&verb);
  EXPECT_NE(answer(verb, emulated()), alone);
}

TEST(OptionUses, WhatWouldBeIgnoredIsRefused) {
  const auto refused = [](Change change, std::vector<RunPlan> (*plans)() = emulated) {
    SimulateVerb verb;
    change(&verb);
    return refusal(verb, plans());
  };
  EXPECT_THAT(refused([](auto* v) { v->across_latency_us = 300; }), HasSubstr("--ranks-per-host"));
  EXPECT_THAT(refused([](auto* v) { v->ranks_per_host = 2; }), HasSubstr("the slower counts"));
  EXPECT_THAT(refused([](auto* v) {
                hosts(v);
                v->ranks_per_host = 4;
              }),
              HasSubstr("changes nothing here"));
  EXPECT_THAT(refused([](auto* v) {
                v->ranks_per_host = 2;
                v->across_latency_us = 1;
              }),
              HasSubstr("changes nothing here"));
  EXPECT_THAT(refused([](auto* v) { v->backward_ms = 3; }), HasSubstr("compute is emulated"));
  EXPECT_THAT(refused([](auto* v) { v->forward_ms = 3; }), HasSubstr("compute is emulated"));
  EXPECT_THAT(refused([](auto* v) {
                v->predict = "worlds=2..4";
                v->trace.path = "x";
              }),
              HasSubstr("--predict"));
  EXPECT_THAT(refused([](auto* v) {
                v->predict = "worlds=2..4";
                v->ranks = 9;
              }),
              HasSubstr("--world-size"));
  EXPECT_THAT(refused([](auto* v) {
                v->ranks = 1;
                v->channels = 2;
              }),
              HasSubstr("one rank sends nothing"));
  EXPECT_THAT(refused([](auto* v) {
                v->algorithm = "hierarchical";
                v->latency_us = 2;
              }),
              HasSubstr("--across"));
  EXPECT_THAT(refused([](auto* v) { v->restart_s = 3; }), HasSubstr("--mtbf-hours"));
  for (const Change over :
       {Change([](auto* v) { v->latency_us = 2; }), Change([](auto* v) { v->algorithm = "ring"; }),
        Change([](auto* v) { v->channels = 2; }), Change(hosts)}) {
    SimulateVerb verb;
    verb.collectives = {measured_file()};
    over(&verb);
    EXPECT_THAT(refusal(verb, emulated()), HasSubstr("collectives take what was measured"));
  }
  EXPECT_THAT(refused([](auto* v) { v->backward_ms = 3; }, real), IsEmpty());
}

// Of a machine's keys and of a seed it is told where they change nothing.
TEST(OptionUses, WhatAMachineSaysInVainIsTold) {
  const auto notes = [](const std::string& keys, const SimulateVerb& asked = {}) {
    SimulateVerb verb = asked;
    verb.machine = testing::TempDir() + "/machine_in_vain.json";
    write_atomically(verb.machine, R"({"format": "lockstep_machine", "version": 1)" + keys + "}");
    const auto machine = machine_of(verb);
    EXPECT_TRUE(machine) << to_text(machine.errors().front());
    const auto lines = simulate_plans(verb, machine.value(), emulated());
    EXPECT_TRUE(lines) << to_text(lines.errors().front());
    std::string text;
    for (const std::string& note : lines.value().front().notes) text += note + "\n";
    return text;
  };
  EXPECT_THAT(notes(""), IsEmpty());
  EXPECT_THAT(notes(R"(, "across": {"latency_us": 5})"), HasSubstr("across of the machine"));
  EXPECT_THAT(notes(R"(, "across": {"latency_us": 5}, "ranks_per_host": 2)"), IsEmpty());
  EXPECT_THAT(notes(R"(, "cores_per_host": 2)"), HasSubstr("core_mb_per_s"));
  EXPECT_THAT(notes(R"(, "link": {"latency_us": 5}, "table": [[8, 5], [80000, 9]])"),
              HasSubstr("link of the machine"));
  SimulateVerb seeded;
  seeded.selection.seed = 7;
  EXPECT_THAT(notes("", seeded), HasSubstr("--seed"));
  EXPECT_THAT(notes(R"(, "noise": "normal:0.1")", seeded), IsEmpty());
}

// Of a machine by its word parameters are gathered in NCCL's rings, unless somebody asks for more.
TEST(OptionUses, AnAlgorithmIsOfGathersToo) {
  SimulateVerb verb;
  verb.machine = "dgx_h100";
  EXPECT_TRUE(machine_of(verb).value().flat_gathers);
  verb.algorithm = "hierarchical";
  EXPECT_FALSE(machine_of(verb).value().flat_gathers);
}

TEST(OptionUses, HostsCountWhereRanksShareSwitches) {
  SimulateVerb verb;
  verb.machine = testing::TempDir() + "/machine_of_switches.json";
  verb.ranks_per_host = 2;
  const auto write = [&](const std::string& keys) {
    write_atomically(verb.machine, R"({"format": "lockstep_machine", "version": 1,
      "ranks_per_host": 4, "core_mb_per_s": 100)" +
                                       keys + "}");
  };
  write(R"(, "ranks_per_switch": 2)");
  EXPECT_THAT(refusal(verb, emulated()), IsEmpty());
  write("");
  EXPECT_THAT(refusal(verb, emulated()), HasSubstr("takes what it takes without it"));
}

}  // namespace

}  // namespace lockstep
