#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "scenarios/workloads/late_queues.h"

namespace lockstep {

// Memory of stand-in devices, and what copies to and from it see. With late streams every copy, and
// so every operation, is put into the stream that is current on its thread: what has been written
// there by another one, and not waited for, is not what it reads, but NaN. Tensors are those of
// stand-in devices, or the host's.

inline constexpr auto kStandIn = c10::DeviceType::PrivateUse1;

// From now on, in this process: streams are late.
void make_streams_late();

// Undefined contents. Throws std::bad_alloc.
c10::DataPtr stand_in_memory(size_t bytes, c10::Device device);

// The stream that is current on this thread, and one in its place; the one before.
c10::Stream stand_in_stream(c10::Device device);
c10::Stream exchange_stand_in_stream(c10::Stream stream);
// A stream that nobody else has.
c10::Stream new_stand_in_stream(c10::Device device);
// Everything that is in a stream now; and a stream, or this thread, that waits for that.
LateQueues::Known record_stand_in(c10::Stream stream);
void wait_for_stand_in(const LateQueues::Known& event, c10::Stream stream);
void wait_for_stand_in(const LateQueues::Known& event);

// While it lives, copies of this thread are an operation's: no one waits on the host.
class OperationOnStandIn {
 public:
  OperationOnStandIn();
  ~OperationOnStandIn();
  OperationOnStandIn(const OperationOnStandIn&) = delete;
  OperationOnStandIn& operator=(const OperationOnStandIn&) = delete;
};

// at::copy_ of which at least one side is a stand-in's.
void copy_with_stand_in(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

// What a tensor holds, as the host's, once the stream that is current has come so far.
at::Tensor read_stand_in(const at::Tensor& tensor);

}  // namespace lockstep
