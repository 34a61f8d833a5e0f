#include "tests/fuzz/dump_among_peers.h"

// A dump of PyTorch's flight recorder as a pickle.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::fuzz::check_dump(data, size);
  return 0;
}
