#pragma once

#include <string>

namespace lockstep {

// What this worker is linked with, as one line of JSON: torch, gloo, blas and the CPU capability
// that ATen and BLAS chose on this machine. The fingerprint of bits (NUMERICS.md).
std::string libraries_json();

// The same in one line for people and for stored goldens.
std::string fingerprint();

// Writes libraries_json() beside the run directories, once per invocation.
void leave_libraries(const std::string& run_dir);

}  // namespace lockstep
