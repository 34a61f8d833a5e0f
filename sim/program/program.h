#pragma once

namespace lockstep {

// The program `lockstep`: parses the command line, runs one verb, returns the exit code of
// docs/verdicts.md. Ignores SIGPIPE for the whole process.
int run_cli(int argc, char** argv);

// Opens what is closed of standard input, output and error, so that no file of ours gets their
// numbers: what is printed there fails as on a closed descriptor. First thing in a program.
void open_standard_descriptors();

}  // namespace lockstep
