#pragma once

namespace lockstep {

// Where this process was started as a worker: is one, and does not return.
void serve_if_worker(int argc, char** argv);

}  // namespace lockstep
