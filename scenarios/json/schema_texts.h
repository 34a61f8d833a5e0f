#pragma once

namespace lockstep {

// The texts of scenarios/*schema.json, as shipped and compiled in.
const char* scenario_schema_text();
const char* result_schema_text();      // of what `lockstep verify --json` writes
const char* sweep_schema_text();       // ... `lockstep sweep`
const char* what_if_schema_text();     // ... `lockstep whatif`, and `analyze` of a trace
const char* collective_schema_text();  // ... `lockstep collective`
const char* explore_schema_text();     // ... `lockstep explore`
const char* compare_schema_text();     // ... `lockstep compare`
const char* simulate_schema_text();    // ... `lockstep simulate`
const char* profile_schema_text();     // of scenarios/layer_profile.h
const char* machine_schema_text();     // of sim/des/machine_model.h

}  // namespace lockstep
