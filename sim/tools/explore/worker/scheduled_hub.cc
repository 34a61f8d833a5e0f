#include "sim/tools/explore/worker/scheduled_hub.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "reducer/local/local_communicator.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr unsigned char kLostBytes = 0xff;

bool is_in_place(const CollectiveCall& call) {
  return call.operation == Operation::all_reduce || call.operation == Operation::broadcast;
}

bool is_dense(const at::Tensor& tensor) { return tensor.defined() && !tensor.is_sparse(); }

void poison(const at::Tensor& tensor) {
  if (is_dense(tensor)) std::memset(tensor.data_ptr(), kLostBytes, tensor.nbytes());
}

bool is_poisoned(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
  const size_t size = tensor.nbytes();
  return size == 0 || (bytes[0] == kLostBytes && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Nobody but the hub knows these values any more: no view into them is left.
bool is_released(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.storage().use_count() == 1 && tensor.use_count() == 1;
}

void put(const at::Tensor& from, const at::Tensor& to) {
  if (!to.defined()) return;
  if (is_dense(to)) {
    std::memcpy(to.data_ptr(), from.data_ptr(), to.nbytes());
  } else {
    at::Tensor target = to;
    target.copy_(from);
  }
}

CollectiveCall copies_of(const CollectiveCall& call) {
  CollectiveCall copies = call;
  if (call.input.defined()) copies.input = call.input.clone();
  if (is_in_place(call))
    copies.output = copies.input;
  else if (call.output.defined())
    copies.output = at::empty_like(call.output);
  return copies;
}

bool agree(const CollectiveCall& a, const CollectiveCall& b) {
  const at::Tensor &own = own_tensor(a), &other = own_tensor(b);
  if (a.operation != b.operation || a.root != b.root || own.defined() != other.defined())
    return false;
  return !own.defined() ||
         (own.numel() == other.numel() && own.scalar_type() == other.scalar_type());
}

}  // namespace

// A completion that the scheduler delivers.
class ScheduledWork : public CommWork {
 public:
  ScheduledWork(Scheduler& scheduler, int64_t rank, uint64_t sequence, Operation operation)
      : scheduler_(scheduler),
        rank_(rank),
        name_(fmt::format("{} {}", to_word(operation), sequence)) {}

  bool is_done() const override { return done_; }
  void wait() override {
    scheduler_.point(rank_, [this] { return "waits for " + name_; });
    scheduler_.block(rank_, done_, name_.c_str());
  }
  void on_done(std::function<void(std::exception_ptr)> callback) override {
    scheduler_.point(rank_, [this] { return "asks to be told of " + name_; });
    if (done_) return callback(nullptr);
    callbacks_.push_back(std::move(callback));
  }
  void complete() {
    done_ = true;
    const auto callbacks = std::move(callbacks_);
    for (const auto& callback : callbacks) callback(nullptr);
  }
  const std::string& name() const { return name_; }

 private:
  Scheduler& scheduler_;
  const int64_t rank_;
  const std::string name_;
  bool done_ = false;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

ScheduledHub::ScheduledHub(int64_t world_size, SumOrder order, Scheduler& scheduler)
    : world_size_(world_size), order_(order), scheduler_(scheduler) {
  clear();
}

ScheduledHub::~ScheduledHub() = default;

void ScheduledHub::clear() {
  meetings_.clear();
  first_ = 0;
  arrived_.assign(static_cast<size_t>(world_size_), 0);
  delivered_.assign(static_cast<size_t>(world_size_), 0);
}

ScheduledHub::Meeting& ScheduledHub::meeting(uint64_t sequence) {
  while (first_ + meetings_.size() <= sequence)
    meetings_.emplace_back().parts.resize(static_cast<size_t>(world_size_));
  return meetings_[sequence - first_];
}

CommWorkPtr ScheduledHub::submit(int64_t rank, CollectiveCall call) {
  const auto place = static_cast<size_t>(rank);
  scheduler_.point(rank, [&] {
    return fmt::format("starts collective {}: {}", arrived_[place] + 1, describe(call));
  });
  const c10::NoGradGuard no_grad;
  const uint64_t sequence = arrived_[place]++;
  Meeting& here = meeting(sequence);
  Part& part = here.parts[place];
  part.work = std::make_shared<ScheduledWork>(scheduler_, rank, sequence + 1, call.operation);
  part.copies = copies_of(call);
  poison(call.output);
  part.call = std::move(call);
  CommWorkPtr work = part.work;
  if (++here.arrived == world_size_) complete(rank, here);
  return work;
}

// All are there: what each will get is known now, and given when the schedule says so.
void ScheduledHub::complete(int64_t last_rank, Meeting& meeting) {
  std::vector<CollectiveCall> calls;
  for (size_t r = 0; r < meeting.parts.size(); ++r) {
    if (!agree(meeting.parts[r].copies, meeting.parts[0].copies)) {
      const std::string text =
          fmt::format("{}: rank {} calls {}, rank 0 calls {}", meeting.parts[r].work->name(), r,
                      describe(meeting.parts[r].copies), describe(meeting.parts[0].copies));
      scheduler_.fail(
          {"mismatched_collective", static_cast<int64_t>(r), scheduler_.step(last_rank), text});
      throw ScheduleOver();
    }
    calls.push_back(meeting.parts[r].copies);
  }
  run_together(calls, order_);
}

bool ScheduledHub::can_deliver(int64_t rank) const {
  const auto place = static_cast<size_t>(rank);
  const uint64_t next = delivered_[place];
  return next < arrived_[place] && meetings_[next - first_].arrived == world_size_;
}

std::string ScheduledHub::next_delivery(int64_t rank) const {
  const auto place = static_cast<size_t>(rank);
  return meetings_[delivered_[place] - first_].parts[place].work->name();
}

void ScheduledHub::deliver(int64_t rank) {
  const auto place = static_cast<size_t>(rank);
  const uint64_t sequence = delivered_[place]++;
  Part part = std::move(meetings_[sequence - first_].parts[place]);
  give(rank, part);
  while (!meetings_.empty() && std::all_of(delivered_.begin(), delivered_.end(),
                                           [&](uint64_t d) { return d > first_; })) {
    meetings_.pop_front();
    ++first_;
  }
}

void ScheduledHub::give(int64_t rank, Part& part) {
  const c10::NoGradGuard no_grad;
  if (part.call.input.defined() && is_in_place(part.call)) part.call.input = at::Tensor();
  if (!buffer_is_untouched(rank, part)) return;
  put(part.copies.output, part.call.output);
  part.work->complete();
}

bool ScheduledHub::buffer_is_untouched(int64_t rank, const Part& part) {
  const at::Tensor &output = part.call.output, &input = part.call.input;
  if (is_released(output) || is_released(input)) {
    fail("released_in_flight", rank, part, "its buffer was freed while in flight");
    return false;
  }
  const bool output_kept = !is_dense(output) || is_poisoned(output);
  const bool input_kept = !is_dense(input) || same_bytes(input, part.copies.input);
  if (output_kept && input_kept) return true;
  fail("lost_update", rank, part, "its buffer was written while in flight");
  return false;
}

void ScheduledHub::fail(const char* kind, int64_t rank, const Part& part, const char* what) {
  scheduler_.fail({kind, rank, scheduler_.step(rank),
                   fmt::format("{} ({}): {}", part.work->name(), describe(part.call), what)});
}

namespace {

class ScheduledCommunicator : public CollectiveCommunicator {
 public:
  ScheduledCommunicator(int64_t rank, int64_t world_size, ScheduledHub& hub)
      : CollectiveCommunicator(rank, world_size), hub_(hub) {}
  void close(Deadline) noexcept override {}

 protected:
  CommWorkPtr submit(CollectiveCall call) override { return hub_.submit(rank(), std::move(call)); }

 private:
  ScheduledHub& hub_;
};

}  // namespace

std::unique_ptr<Communicator> make_scheduled_communicator(int64_t rank, int64_t world_size,
                                                          ScheduledHub& hub) {
  return std::make_unique<ScheduledCommunicator>(rank, world_size, hub);
}

namespace {

class EngineWaits : public CommDecorator {
 public:
  using CommDecorator::CommDecorator;
  void begin_backward() override {
    open_.clear();
    CommDecorator::begin_backward();
  }

 protected:
  // The engine calls back in the order in which it was asked: the reducer asks behind its last one.
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    CommWorkPtr work = forward(inner(), call);
    if (bucket < 0) return work;
    open_.push_back(work);
    torch::autograd::Engine::get_default_engine().queue_callback([this] { wait(); });
    return work;
  }

 private:
  void wait() {
    const auto works = std::exchange(open_, {});
    for (const CommWorkPtr& work : works) work->wait();
  }

  std::vector<CommWorkPtr> open_;
};

}  // namespace

std::unique_ptr<Communicator> make_native_waits(Communicator& inner) {
  return std::make_unique<EngineWaits>(inner);
}

}  // namespace lockstep
