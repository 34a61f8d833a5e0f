#pragma once

namespace lockstep {

// The program `lockstep`: parses the command line, runs one verb, returns the exit code of
// docs/verdicts.md. Ignores SIGPIPE for the whole process.
int run_cli(int argc, char** argv);

}  // namespace lockstep
