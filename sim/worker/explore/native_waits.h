#pragma once

#include <memory>

#include "reducer/communicator.h"

namespace lockstep {

// c10d::Reducer waits for its buckets at the end of a backward inside LibTorch, where a rank that
// waits cannot give its token away. This decorator waits for them right before, as the reducer
// would: on this rank's thread, after its last bucket was started, in the engine's callbacks of the
// same backward. What is waited for is what the reducer was given, mutants included.
class NativeWaits : public Communicator {
 public:
  virtual void begin_backward() = 0;
  virtual void end_backward() = 0;
};
std::unique_ptr<NativeWaits> make_native_waits(Communicator& inner);

}  // namespace lockstep
