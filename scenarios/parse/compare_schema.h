#pragma once

namespace lockstep {

// The text of scenarios/compare_schema.json, compiled in, as those of suite.h are: what
// `lockstep compare --json` writes.
const char* compare_schema_text();

}  // namespace lockstep
