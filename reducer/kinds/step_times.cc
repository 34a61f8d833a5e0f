#include "reducer/kinds/step_times.h"

#include <algorithm>

#include "scenarios/base/clock.h"

namespace lockstep {

void StepTimes::forward_begins() { forward_ = now_ns(); }
void StepTimes::backward_begins() {
  backward_ = gradient_ = now_ns();
  bucket_ = 0;
}
void StepTimes::first_bucket() { bucket_ = now_ns(); }
void StepTimes::last_gradient() { gradient_ = now_ns(); }

void StepTimes::ends() {
  const int64_t end = now_ns();
  const int64_t bucket = bucket_ > 0 ? bucket_ : end;
  ++steps_;
  forward_ns_ += backward_ - forward_;
  backward_ns_ += gradient_ - backward_;
  comm_ns_ += end - bucket;
  overlap_ns_ += std::max<int64_t>(0, gradient_ - bucket);
}

void StepTimes::fill(ReducerData* data) const {
  if (steps_ == 0) return;
  data->forward_ns = forward_ns_ / steps_;
  data->backward_ns = backward_ns_ / steps_;
  data->comm_ns = comm_ns_ / steps_;
  data->overlap_ns = overlap_ns_ / steps_;
}

ReducerData& ReducerData::operator+=(const ReducerData& next) {
  const auto append = [](std::vector<int64_t>* to, const std::vector<int64_t>& from) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(&bucket_bytes, next.bucket_bytes);
  append(&rebuilt_bucket_bytes, next.rebuilt_bucket_bytes);
  parameters += next.parameters;
  parameter_bytes += next.parameter_bytes;
  unused_parameter_bytes += next.unused_parameter_bytes;
  forward_ns += next.forward_ns;
  backward_ns += next.backward_ns;
  comm_ns += next.comm_ns;
  overlap_ns += next.overlap_ns;
  return *this;
}

}  // namespace lockstep
