#pragma once

#include <memory>

#include "reducer/communicator.h"

namespace lockstep {

// Tensors of an accelerator over a communicator that knows the host's memory alone, as Gloo does.
// What is asked for on the thread's current stream is copied to the host on a stream of its own,
// which waits for an event there; a thread waits for the copy, calls the collective and lets the
// copy back begin; CommWork::wait() returns then, having made the stream that is current where it
// is called wait for that copy. So nobody's stream is stopped, and buckets of a backward travel
// while it goes on. Streams and events are c10's, for whichever device the tensors are on.

// Each of these waits of a sum (all_reduce) can be left out, for scenarios that must fail.
struct StagingWaits {
  bool for_gradients = true;  // of the copy to the host, for the stream that made the tensor
  bool for_copies = true;     // of the collective, for that copy
  bool for_results = true;    // of the stream that goes on, for the copy back
};

// Takes tensors of the host too, and keeps the order of all calls. on_done() callbacks come when
// the copy back has begun, with the stream of the copies as the current one.
std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> inner,
                                          const StagingWaits& waits = {});

}  // namespace lockstep
