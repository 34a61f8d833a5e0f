// lockstep-worker, started by `lockstep`.
#include <unistd.h>

#include <cstdio>

#include "sim/worker/main/worker_main.h"

int main(int argc, char** argv) {
  const int code = lockstep::worker_main(argc, argv);
  std::fflush(nullptr);
  ::_exit(code);  // LibTorch's static destructors are of no use to anyone
}
