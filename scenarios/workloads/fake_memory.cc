#include "scenarios/workloads/fake_memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace lockstep {
namespace {

// Of this host thread: threads learn of each other's waits by events alone, as they should.
thread_local LateQueues::Known host;

void merge(const LateQueues::Known& from, LateQueues::Known* into) {
  for (const auto& [queue, count] : from) {
    uint64_t& known = (*into)[queue];
    known = std::max(known, count);
  }
}

bool covers(const LateQueues::Known& known, const LateQueues::Mark& mark) {
  if (mark.queue < 0) return true;
  const auto found = known.find(mark.queue);
  return found != known.end() && found->second >= mark.count;
}

}  // namespace

LateQueues::Mark LateQueues::put(int64_t queue) {
  const std::lock_guard lock(mutex_);
  Known& known = queues_[queue];
  merge(host, &known);
  return {queue, ++known[queue]};
}

bool LateQueues::is_before(const Mark& mark, int64_t queue) {
  const std::lock_guard lock(mutex_);
  return covers(host, mark) || covers(queues_[queue], mark);
}

LateQueues::Known LateQueues::record(int64_t queue) {
  const std::lock_guard lock(mutex_);
  Known event = queues_[queue];
  merge(host, &event);
  return event;
}

void LateQueues::wait(int64_t queue, const Known& event) {
  const std::lock_guard lock(mutex_);
  merge(event, &queues_[queue]);
}

void LateQueues::wait_on_host(const Known& event) {
  const std::lock_guard lock(mutex_);
  merge(event, &host);
  const auto due = std::stable_partition(
      pending_.begin(), pending_.end(), [](const Pending& one) { return !covers(host, one.mark); });
  for (auto one = due; one != pending_.end(); ++one) one->publish();
  pending_.erase(due, pending_.end());
}

void LateQueues::on_host_after(const Mark& mark, std::function<void()> publish) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({mark, std::move(publish)});
}

namespace {

using Mark = LateQueues::Mark;

constexpr size_t kAlignment = 64;

std::atomic<bool> late{false};
std::atomic<int64_t> streams_made{0};
thread_local std::map<c10::DeviceIndex, int64_t> current_stream;
thread_local int operations = 0;
std::mutex marks_mutex;

LateQueues& queues() {
  static LateQueues all;
  return all;
}

// What is done with a piece of memory, and in which order.
struct Memory {
  void* bytes = nullptr;
  Mark written;
  LateQueues::Known read;  // the last by each queue, since it was written
};

void free_memory(void* context) {
  auto* memory = static_cast<Memory*>(context);
  std::free(memory->bytes);
  delete memory;
}

Memory& memory_of(const at::Tensor& tensor) {
  return *static_cast<Memory*>(tensor.storage().data_ptr().get_context());
}

bool is_fake(const at::Tensor& tensor) { return tensor.device().type() == kFakeDevice; }

// The same bytes as a tensor of the host.
at::Tensor raw(const at::Tensor& tensor) {
  if (!is_fake(tensor)) return tensor;
  const at::Tensor held = tensor.detach();
  return at::from_blob(
      held.data_ptr(), held.sizes(), held.strides(), [held](void*) {},
      held.options().device(at::kCPU));
}

// What somebody sees who did not wait.
at::Tensor garbage_like(const at::Tensor& values) {
  if (values.is_floating_point())
    return at::full_like(values, std::numeric_limits<double>::quiet_NaN());
  return at::full_like(values, values.scalar_type() == at::kBool ? 1 : 0x55);
}

int64_t queue_of(c10::Stream stream) {
  constexpr int64_t kStreamsMost = int64_t{1} << 32;
  return stream.device_index() * kStreamsMost + stream.id();
}

int64_t current_queue(const at::Tensor& tensor) { return queue_of(fake_stream(tensor.device())); }

// What work that is put into the queue now would read.
at::Tensor seen_from(int64_t queue, const at::Tensor& tensor) {
  const at::Tensor bytes = raw(tensor);
  const std::lock_guard lock(marks_mutex);
  return queues().is_before(memory_of(tensor).written, queue) ? bytes : garbage_like(bytes);
}

void note_read(const at::Tensor& tensor, const Mark& mark) {
  const std::lock_guard lock(marks_mutex);
  memory_of(tensor).read[mark.queue] = mark.count;
}

// Over what others may still be reading or writing, nothing good is written.
void write(int64_t queue, const at::Tensor& values, const at::Tensor& tensor) {
  const std::lock_guard lock(marks_mutex);
  Memory& memory = memory_of(tensor);
  bool in_order = queues().is_before(memory.written, queue);
  for (const auto& [reader, count] : memory.read)
    in_order = in_order && queues().is_before({reader, count}, queue);
  raw(tensor).copy_(in_order ? values : garbage_like(values));
  memory.written = queues().put(queue);
  memory.read.clear();
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const int64_t queue = current_queue(from);
  const at::Tensor values = seen_from(queue, from);
  const Mark mark = queues().put(queue);
  note_read(from, mark);
  if (operations > 0) {
    to.copy_(values);
  } else if (!non_blocking) {
    queues().wait_on_host(queues().record(queue));
    to.copy_(values);
  } else {
    to.copy_(garbage_like(to));
    queues().on_host_after(mark, [to, values = values.clone()] { to.copy_(values); });
  }
}

}  // namespace

void make_streams_late() { late = true; }

c10::DataPtr fake_memory(size_t bytes, c10::Device device) {
  void* place = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (place == nullptr) throw std::bad_alloc();
  return {place, new Memory{place, {}, {}}, &free_memory, device};
}

c10::Stream fake_stream(c10::Device device) {
  return c10::Stream(c10::Stream::UNSAFE, device, current_stream[device.index()]);
}

c10::Stream exchange_fake_stream(c10::Stream stream) {
  const c10::Stream before = fake_stream(stream.device());
  current_stream[stream.device_index()] = stream.id();
  return before;
}

c10::Stream new_fake_stream(c10::Device device) {
  return c10::Stream(c10::Stream::UNSAFE, device, ++streams_made);
}

LateQueues::Known record_fake_event(c10::Stream stream) {
  return queues().record(queue_of(stream));
}

void wait_for_fake_event(const LateQueues::Known& event, c10::Stream stream) {
  queues().wait(queue_of(stream), event);
}

void wait_for_fake_event(const LateQueues::Known& event) { queues().wait_on_host(event); }

OperationOnFake::OperationOnFake() { ++operations; }
OperationOnFake::~OperationOnFake() { --operations; }

void copy_with_fake_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!late) {
    raw(to).copy_(raw(from));
  } else if (!is_fake(to)) {
    copy_to_host(from, to, non_blocking);
  } else {
    const int64_t queue = current_queue(to);
    const bool both = is_fake(from);
    write(queue, both ? seen_from(queue, from) : from, to);
    if (both) note_read(from, queues().put(queue));
  }
}

at::Tensor read_fake_device(const at::Tensor& tensor) {
  if (!late) return raw(tensor);
  const int64_t queue = current_queue(tensor);
  queues().wait_on_host(queues().record(queue));
  return seen_from(queue, tensor);
}

}  // namespace lockstep
