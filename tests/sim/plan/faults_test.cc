#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

std::string fault(const std::string& text) { return "/faults=[" + text + "]"; }

TEST(Faults, AreInThePlanWithTheirDefaults) {
  const auto plan = plan_of({fault(R"({"kind":"stall","rank":1,"duration_ms":5})")});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  const Fault& stall = plan.value().scenario.faults.at(0);
  EXPECT_EQ(stall.options.text("phase"), "backward");
  EXPECT_EQ(stall.options.number("probability"), 1);
  EXPECT_EQ(plan_from_json(as_json(plan.value())).scenario.faults.at(0), stall);
}

TEST(Faults, NeedRanksStepsAndLayersThatThereAre) {
  EXPECT_EQ(errors_of({fault(R"({"kind":"kill","rank":4})")}),
            "/faults/0/rank: there is no rank 4; expected a rank from 0 to 3");
  EXPECT_EQ(errors_of({fault(R"({"kind":"kill","rank":1,"step":99})")}).substr(0, 15),
            "/faults/0/step:");
  EXPECT_EQ(
      errors_of({fault(R"({"kind":"slow_layer","layer":"fc9","duration_ms":1})")}).substr(0, 48),
      "/faults/0/layer: the model has no layer \"fc9\"; e");
  EXPECT_EQ(errors_of({fault(R"({"kind":"partition","ranks":[0,1,2,3]})")}),
            "/faults/0/ranks: all ranks are on one side; expected fewer ranks than there are");
}

TEST(Faults, HaveOnePlaceAndAFiniteDuration) {
  EXPECT_EQ(errors_of({fault(R"({"kind":"kill","rank":1,"phase":"forward","bucket":0})")}),
            "/faults/0/phase: both phase and bucket say where it acts; expected one of them");
  EXPECT_EQ(errors_of({fault(R"({"kind":"kill","rank":1,"phase":"rendezvous","step":1})")}),
            "/faults/0/step: rendezvous is before all steps; expected no step");
  EXPECT_EQ(errors_of({fault(
                R"({"kind":"stall","duration_ms":1,"distribution":"pareto","spread":0.5})")}),
            "/faults/0/spread: a shape of 0.5 has no mean; expected more than 1 for pareto");
}

TEST(Faults, OfProcessesAreRefusedWhereRanksAreThreads) {
  EXPECT_EQ(errors_of({"/communicator/kind=local", fault(R"({"kind":"kill","rank":1})")}),
            "/faults/0/kind: kill needs ranks that are processes, but of communicator local they "
            "are threads of one; expected communicator gloo, c10d, shm or hierarchical");
  EXPECT_EQ(errors_of({"/communicator/kind=local",
                       fault(R"({"kind":"half_open","rank":1,"means":"veth"})")}),
            "/faults/0/means: ranks of communicator local have no links; expected decorator, or "
            "communicator gloo or c10d");
  EXPECT_EQ(errors_of({"/communicator/kind=local",
                       fault(R"({"kind":"stall","rank":1,"duration_ms":1})")}),
            "");
}

TEST(Faults, OfConnectionsAreRefusedWhereThereAreNone) {
  EXPECT_EQ(errors_of({"/communicator/kind=shm", fault(R"({"kind":"reset","rank":1})")}),
            "/faults/0/kind: reset needs connections, but ranks of communicator shm share memory; "
            "expected communicator gloo or c10d");
  EXPECT_EQ(errors_of({"/communicator/kind=shm", fault(R"({"kind":"kill","rank":1})")}), "");
  const std::string hosts = R"(/communicator={"kind":"hierarchical","ranks_per_host":2})";
  EXPECT_THAT(errors_of({hosts, fault(R"({"kind":"reset","rank":1})")}),
              testing::HasSubstr("ranks of communicator hierarchical share memory"));
  EXPECT_EQ(errors_of({hosts, fault(R"({"kind":"kill","rank":1})")}), "");
}

TEST(Faults, AndTimeOutsAreScaledTogether) {
  const auto plan = plan_of({"/time_scale=0.001", R"(/timeouts={"collective_ms":1800000})",
                             fault(R"({"kind":"stop","rank":1,"duration_ms":2400000})")});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  EXPECT_EQ(plan.value().scenario.timeouts.collective_ms, 1800);
  EXPECT_EQ(plan.value().scenario.faults.at(0).options.number("duration_ms"), 2400);
  EXPECT_EQ(plan.value().scenario.timeouts.construction_ms, 60'000) << "a default";
}

}  // namespace
}  // namespace lockstep
