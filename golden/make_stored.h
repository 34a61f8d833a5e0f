#pragma once

#include "golden/stored.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The weights of one device after the scenario's last step, to be kept in golden/data. float32
// only. What, source, fingerprint and published values are left to the caller.
StoredGolden make_stored_golden(const Scenario& scenario);

}  // namespace lockstep
