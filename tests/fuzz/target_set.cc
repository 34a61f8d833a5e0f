#include "scenarios/parse/suite.h"
#include "sim/plan/plan.h"
#include "tests/fuzz/fuzz.h"

// Values of --set, one a line, for a scenario with axes and a long form.
namespace {

constexpr const char* kScenario = R"({"name": "a", "what": "b", "seed": 1, "world_size": 2,
  "steps": 3, "data": {"kind": "teacher", "samples": 12, "features": 4}, "batch_size": 2,
  "model": {"kind": "linear", "in": 4, "out": 1}, "loss": {"kind": "mse"},
  "optimizer": {"kind": "sgd", "lr": 0.1}, "communicator": {"kind": "gloo"},
  "reducer": {"kind": "bucketed"},
  "matrix": [{"/world_size": [2, 3], "/reducer": [{"kind": "manual"}, {"kind": "bucketed"}]}],
  "full": {"/steps": 9}, "lanes": ["replica"], "expect": {"verdict": "pass"}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  static const std::string path = file.holding(kScenario);
  SuiteOptions options;
  for (const std::string_view line : fuzz::parts_of(fuzz::text_of(data, size), "\n", 20))
    options.sets.emplace_back(line);
  options.full = size % 2 == 1;
  const auto read = load_scenario_file(path, options);
  if (!read) {
    // Whoever gave an option gets it back whole.
    fuzz::check_errors(read.errors(), 100'000 + 10 * size);
    return 0;
  }
  const auto plans = make_plans(read.value());
  if (!plans) fuzz::check_errors(plans.errors());
  return 0;
}
