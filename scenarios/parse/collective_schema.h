#pragma once

namespace lockstep {

// The text of scenarios/collective_schema.json, compiled in, as those of suite.h are: what
// `lockstep collective --json` writes.
const char* collective_schema_text();

}  // namespace lockstep
