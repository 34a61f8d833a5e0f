// PyTorch's published sweep of bucket sizes (golden/data/pytorch_gloo_sweep.json), 68 numbers that
// nobody here made. What is fitted on what stands above each test.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "reducer/bucket.h"
#include "scenarios/manifest.h"
#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/plan/bucket_layout.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

using Rows = std::vector<std::pair<double, double>>;  // cap, ms

enum Series { kCore = 0, kAsync, kSync };
Rows published(Series series) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/golden/data/pytorch_gloo_sweep.json");
  const auto document = nlohmann::json::parse(file, nullptr, true, true);
  return document["series"][series]["rows"].get<Rows>();
}

RunPlan resnet50() {
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/sweeps/pytorch_gloo_resnet50.json",
                         {.sets = {"/faults=[]"}, .seed = {}});
  return make_plans(file.value()).value().front();
}

double mean_ms(const Rows& rows, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += rows[i].second;
  return sum / static_cast<double>(end - begin);
}

double megabytes(const RunPlan& plan) {
  const auto layout = *settled_layout(plan, bytes_of_mib(25));
  const auto bytes = bytes_of(plan, layout);
  return static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0})) * 1e-6;
}

// A link on which an all-reduce of two ranks takes beta x bytes.
CostModel link_of(double beta_ms_per_mb) {
  CostModel cost;
  cost.link.beta_fs_per_byte = std::llround(beta_ms_per_mb * 1e6);
  return cost;
}

double simulated_ms(const RunPlan& plan, double backward_ms, const CostModel& cost, double cap) {
  RunPlan real = plan;
  real.layer_times.clear();
  real.scenario.compute = {"real", {}};
  MachineModel machine;
  machine.cost = cost;
  machine.backward_ms = backward_ms;
  machine.forward_ms = 0;
  SimulatedAs as;
  as.cap_mb = cap;
  as.steps = 3;
  const auto planned = job_of_plan(real, machine, as);
  EXPECT_TRUE(planned) << to_text(planned.errors().front());
  const auto run = simulate(planned.value().job);
  return static_cast<double>(run.value().steps[2].duration_ns) * 1e-6;
}

// Their reducer in Python: greedy, in registration order, a limit in elements that is not passed.
double simulated_async_ms(const RunPlan& plan, double backward_ms, const CostModel& cost,
                          double cap) {
  const auto manifest = *manifest_of(plan.scenario.model, "float32");
  const auto ready_ms = *planned_ready_ms(plan, backward_ms);
  const auto limit = static_cast<int64_t>(cap * 1024 * 1024);
  std::vector<BucketWork> buckets;
  int64_t elements = limit;
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    const int64_t more = manifest.parameters[p].numel();
    if (buckets.empty() || elements + more > limit) {
      buckets.push_back({static_cast<int64_t>(buckets.size()), 0, 0, 0});
      elements = 0;
    }
    elements += more;
    buckets.back().bytes += 4 * more;
    buckets.back().ready_ns =
        std::max<int64_t>(buckets.back().ready_ns, std::llround(ready_ms[p] * 1e6));
  }
  std::reverse(buckets.begin(), buckets.end());
  Job job;
  job.ranks = 2;
  job.backward_ns = std::llround(backward_ms * 1e6);
  job.first_step = job.settled = buckets;
  job.cost = cost;
  return static_cast<double>(simulate(job).value().steps[0].duration_ns) * 1e-6;
}

struct Errors {
  double mean = 0, most = 0;
};
template <class Simulated>
Errors errors_of(const Rows& rows, Simulated simulated) {
  Errors errors;
  for (const auto& [cap, ms] : rows) {
    const double error = std::fabs(simulated(cap) / ms - 1);
    errors.mean += error / static_cast<double>(rows.size());
    errors.most = std::max(errors.most, error);
  }
  testing::Test::RecordProperty("mean_error_percent", std::to_string(errors.mean * 100));
  testing::Test::RecordProperty("largest_error_percent", std::to_string(errors.most * 100));
  return errors;
}

// Fitted: T_bwd on the `core` rows 3 to 11, beta on the `sync` rows. Judged: the 23 `async` rows,
// on which nothing was fitted.
TEST(Published, AsyncRowsFollowFromTheOthers) {
  const RunPlan plan = resnet50();
  const Rows core = published(kCore), sync = published(kSync);
  const double backward_ms = mean_ms(core, 0, 9);
  const double beta = (mean_ms(sync, 0, sync.size()) - backward_ms) / megabytes(plan);
  EXPECT_NEAR(backward_ms, 472.28, 0.01);
  EXPECT_NEAR(beta, 0.964, 0.001);
  const Errors errors = errors_of(published(kAsync), [&](double cap) {
    return simulated_async_ms(plan, backward_ms, link_of(beta), cap);
  });
  EXPECT_LT(errors.mean, 0.010);
  EXPECT_LT(errors.most, 0.025);
}

// Fitted: T_bwd = 469.4 ms on these very rows, beta as above. Judged: the 23 `core` rows.
TEST(Published, CoreRowsAreExplainedByTheirTailBuckets) {
  const RunPlan plan = resnet50();
  const Errors errors = errors_of(
      published(kCore), [&](double cap) { return simulated_ms(plan, 469.4, link_of(0.964), cap); });
  EXPECT_LT(errors.mean, 0.002);
  EXPECT_LT(errors.most, 0.006);
}

// The cap that is best in virtual time, looked up in the published rows: within 0.2 % of their
// best.
TEST(Published, TheBestCapIsOneOfTheBestPublished) {
  const RunPlan plan = resnet50();
  const Rows core = published(kCore);
  std::pair<double, double> best{0, INFINITY};
  double least = INFINITY;
  for (const auto& [cap, ms] : core) {
    const double simulated = simulated_ms(plan, 469.4, link_of(0.964), cap);
    if (simulated < best.second) best = {cap, simulated};
    least = std::min(least, ms);
  }
  for (const auto& [cap, ms] : core)
    if (cap == best.first) {
      EXPECT_LT(ms, least * 1.002) << "cap " << cap;
    }
}

// For comparison: what the model must beat on the async rows.
TEST(Published, SimplerModelsAreFurtherOff) {
  const RunPlan plan = resnet50();
  const double all = 98.55;  // ms for all bytes at once, by the sync rows
  const Errors none = errors_of(published(kAsync), [&](double) { return 472.28 + all; });
  const Errors perfect = errors_of(published(kAsync), [&](double) { return 472.28; });
  EXPECT_GT(none.mean, 0.05);
  EXPECT_GT(perfect.mean, 0.05);
}

}  // namespace
}  // namespace lockstep
