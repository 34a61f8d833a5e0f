#pragma once

#include <cstdint>

namespace lockstep {

enum class Operation : uint8_t {
  all_reduce = 1,
  broadcast,
  all_gather,
  reduce_scatter,
  scatter,
  gather,
  barrier,
  all_to_all
};
const char* to_word(Operation operation);
// Is this number, read from a record, one of them?
bool is_operation(uint8_t code);

// What a communicator decorator and a reducer report while they work. Called on any thread, in the
// middle of a step: an implementation records and returns, within tens of nanoseconds.
class Probe {
 public:
  virtual ~Probe() = default;
  // The gradient of parameter `parameter` (registration index) is complete.
  virtual void parameter_ready(int64_t parameter) noexcept = 0;
  // All gradients of bucket `bucket` are complete and copied in.
  virtual void bucket_ready(int64_t bucket) noexcept = 0;
  // The communicator is called (arrival) and the result is there (end). bucket is -1 where the
  // collective carries none. sequence counts from 1 over all collectives of a communicator.
  virtual void arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
                       uint8_t dtype) noexcept = 0;
  virtual void end(uint32_t sequence, int64_t bucket) noexcept = 0;
  // Parameter `parameter` lies in bucket `bucket` at place `place` from now on.
  virtual void assigned(int64_t parameter, int64_t bucket, int64_t place) noexcept = 0;
};

// For where nobody looks at what a reducer reports.
class NoProbe : public Probe {
 public:
  void parameter_ready(int64_t) noexcept override {}
  void bucket_ready(int64_t) noexcept override {}
  void arrival(uint32_t, Operation, int64_t, int64_t, uint8_t) noexcept override {}
  void end(uint32_t, int64_t) noexcept override {}
  void assigned(int64_t, int64_t, int64_t) noexcept override {}
};

}  // namespace lockstep
