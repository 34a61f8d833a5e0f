#pragma once

namespace lockstep {

// The text of scenarios/explore_schema.json, compiled in, as those of suite.h are: what
// `lockstep explore --json` writes.
const char* explore_schema_text();

}  // namespace lockstep
