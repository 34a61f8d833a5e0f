#pragma once

namespace lockstep {

// Opens what is closed of standard input, output and error, so that no file of ours gets their
// numbers: what is printed there fails as on a closed descriptor. First thing in a program.
void open_standard_descriptors();

}  // namespace lockstep
