#include "sim/main/lockstep_main.h"

#include <unistd.h>

#include <cstdio>

#include "sim/cli/worker_program.h"
#include "sim/program/program.h"
#include "sim/worker/main/worker_main.h"

namespace lockstep {

void serve_if_worker(int argc, char** argv) {
  if (!is_worker_call(argc, argv)) return;
  const int code = worker_main(argc, argv);
  std::fflush(nullptr);
  ::_exit(code);  // LibTorch's static destructors are of no use to anyone
}

int main(int argc, char** argv) {
  serve_if_worker(argc, argv);
  be_own_worker(argc > 0 ? argv[0] : "lockstep");
  return run_cli(argc, argv);
}

}  // namespace lockstep
