#pragma once

#include <cstdint>

#include "reducer/reducer.h"

namespace lockstep {

// Times of a reducer's steps, and their means, by the points of time that DDP's logger takes.
// Called in the order of the functions, last_gradient() and first_bucket() in any; one thread at a
// time.
class StepTimes {
 public:
  void forward_begins();
  void backward_begins();
  void first_bucket();   // its collective is started
  void last_gradient();  // so far
  void ends();           // the last collective has ended: the step counts

  void fill(ReducerData* data) const;

 private:
  int64_t forward_ = 0, backward_ = 0, bucket_ = 0, gradient_ = 0;  // of this step
  int64_t steps_ = 0;
  int64_t forward_ns_ = 0, backward_ns_ = 0, comm_ns_ = 0, overlap_ns_ = 0;  // of all
};

}  // namespace lockstep
