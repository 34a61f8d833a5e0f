#pragma once

namespace lockstep {

// scenarios/simulate_schema.json: of what `lockstep simulate --json` writes.
const char* simulate_schema_text();

}  // namespace lockstep
