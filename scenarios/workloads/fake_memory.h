#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace lockstep {

// The queues (streams) of emulated devices, all of which are late: what is put into one has not
// been done, as far as anybody can tell, before somebody has waited for it, by an event or on the
// host. So a wait that is missing shows in every run, not in one of a thousand. Only the order is
// kept here, as vector clocks: happens-before, as ThreadSanitizer has it, with queues for threads.
// No LibTorch. Thread-safe.
class LateQueues {
 public:
  // A piece of work: the count-th of a queue. Queue -1: done before everything.
  struct Mark {
    int64_t queue = -1;
    uint64_t count = 0;
  };
  // How much of each queue is known to have been done: an event.
  using Known = std::map<int64_t, uint64_t>;

  // The next piece of work of `queue`, which comes after all that the queue has waited for and that
  // this host thread knows.
  Mark put(int64_t queue);
  // Would what this thread puts into `queue` next come after `mark`?
  bool is_before(const Mark& mark, int64_t queue);
  // All that is in `queue` now, with what it has waited for; and a queue that waits for it.
  Known record(int64_t queue);
  void wait(int64_t queue, const Known& event);

  // This host thread waits: what was to be done on the host by then is done now.
  void wait_on_host(const Known& event);
  // `publish` changes memory of the host once a thread has waited for `mark`; it must not call
  // back.
  void on_host_after(const Mark& mark, std::function<void()> publish);

 private:
  struct Pending {
    Mark mark;
    std::function<void()> publish;
  };
  std::mutex mutex_;
  std::map<int64_t, Known> queues_;
  std::vector<Pending> pending_;
};

// Memory of fake devices, and what copies to and from it see. With late streams every copy, and
// so every operation, is put into the stream that is current on its thread: what has been written
// there by another one, and not waited for, is not what it reads, but NaN. Tensors are those of
// fake devices, or the host's.

inline constexpr auto kFakeDevice = c10::DeviceType::PrivateUse1;

// From now on, in this process: streams are late.
void make_streams_late();

// Undefined contents. Throws std::bad_alloc.
c10::DataPtr fake_memory(size_t bytes, c10::Device device);

// The stream that is current on this thread, and one in its place; the one before.
c10::Stream fake_stream(c10::Device device);
c10::Stream exchange_fake_stream(c10::Stream stream);
// A stream that nobody else has.
c10::Stream new_fake_stream(c10::Device device);
// Everything that is in a stream now; and a stream, or this thread, that waits for that.
LateQueues::Known record_fake_event(c10::Stream stream);
void wait_for_fake_event(const LateQueues::Known& event, c10::Stream stream);
void wait_for_fake_event(const LateQueues::Known& event);

// While it lives, copies of this thread are an operation's: no one waits on the host.
class OperationOnFake {
 public:
  OperationOnFake();
  ~OperationOnFake();
  OperationOnFake(const OperationOnFake&) = delete;
  OperationOnFake& operator=(const OperationOnFake&) = delete;
};

// at::copy_ of which at least one side is of a fake device.
void copy_with_fake_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

// What a tensor holds, as the host's, once the stream that is current has come so far.
at::Tensor read_fake_device(const at::Tensor& tensor);

}  // namespace lockstep
