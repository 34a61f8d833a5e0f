#pragma once

namespace lockstep {

const char* lockstep_version();  // "0.1.0"
const char* lockstep_commit();   // "a1b2c3d", or "unknown"

}  // namespace lockstep
