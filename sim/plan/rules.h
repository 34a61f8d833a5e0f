#pragma once

#include <string>
#include <vector>

#include "golden/replay_rule.h"
#include "reducer/bucket.h"
#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The pieces of make_plan(). Errors carry pointer, message and allowed; no place.

// What only the whole scenario shows.
void check_scenario(const Scenario& scenario, InputErrors* errors);

// Fills in the durations that are 0 and checks their order. A default gives way to what is given.
void complete_timeouts(const Scenario& scenario, Timeouts* timeouts, InputErrors* errors);

// How the reducer averages, as its kind promises.
ReplayRule replay_rule_of(const Scenario& scenario);

// Buckets at construction, in launch order; for kinds without buckets those of their collectives.
BucketLayout first_layout(const Scenario& scenario, const ModelManifest& manifest);

bool asks_for(const Scenario& scenario, const std::string& lane);

}  // namespace lockstep
