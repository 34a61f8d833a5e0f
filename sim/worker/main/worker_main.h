#pragma once

namespace lockstep {

// The program lockstep-worker: a rank, a golden run or a host of many small runs, as the launcher
// that started it asks for on the command line. Its exit code; be_worker() does not return at all.
int worker_main(int argc, char** argv);

// Is this command line one by which a launcher starts its worker?
bool is_worker_call(int argc, char** argv);

}  // namespace lockstep
