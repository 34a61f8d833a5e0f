#include "reducer/device/staged.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <thread>
#include <utility>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"

namespace lockstep {
namespace {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Blocks this thread; versions before 2.4 can only ask again and again.
template <class Event>
void wait_on_host(const Event& event) {
  if constexpr (requires { event.synchronize(); }) {
    event.synchronize();
  } else {
    while (!event.query()) std::this_thread::yield();
  }
}

at::Tensor host_memory_for(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto options = at::dtype(tensor.scalar_type()).pinned_memory(tensor.device().is_cuda());
  return at::empty(tensor.sizes(), options);
}

class StagedWork : public PendingWork {
 public:
  // copies: the stream of the copy back.
  StagedWork(std::string what, Deadline deadline, const c10::Stream& copies, bool waits)
      : PendingWork(std::move(what), deadline),
        copies_(copies),
        back_(copies.device_type()),
        waits_(waits) {}

  void wait() override {
    PendingWork::wait();
    if (waits_) back_.block(current_stream(copies_.device()));
  }
  // On whichever thread: what the callback puts into the stream that it finds comes after the copy.
  void on_done(std::function<void(std::exception_ptr)> callback) override {
    PendingWork::on_done(
        [copies = copies_, callback = std::move(callback)](const std::exception_ptr& error) {
          const c10::StreamGuard guard(copies);
          callback(error);
        });
  }
  void copied_back() { back_.record(copies_); }

 private:
  const c10::Stream copies_;
  c10::Event back_;
  const bool waits_;
};

class Staged : public CollectiveCommunicator {
 public:
  Staged(std::unique_ptr<Communicator> inner, const StagingWaits& waits)
      : CollectiveCommunicator(inner->rank(), inner->world_size()),
        waits_(waits),
        inner_(std::move(inner)) {}

  void close(Deadline deadline) noexcept override {
    drained(thread_, deadline);
    inner_->close(deadline);
  }

 private:
  CommWorkPtr submit(CollectiveCall call) override {
    const at::Tensor& own = own_tensor(call);
    if (!own.defined() || own.device().is_cpu()) return on_host(std::move(call));
    return on_device(std::move(call), own.device());
  }

  // In the order of the calls, among those of the device.
  CommWorkPtr on_host(CollectiveCall call) {
    auto work = std::make_shared<PendingWork>(describe(call), call.deadline);
    thread_.post([this, work, call = std::move(call)] { run(*work, call, [] {}); });
    return work;
  }

  CommWorkPtr on_device(CollectiveCall call, c10::Device device) {
    const c10::Stream stream = copy_stream(device);
    const StagingWaits waits = call.operation == Operation::all_reduce ? waits_ : StagingWaits();
    auto copied = std::make_shared<c10::Event>(device.type());
    CollectiveCall host = call;
    {
      c10::Event made(device.type());
      made.record(current_stream(device));
      const c10::StreamGuard guard(stream);
      if (waits.for_gradients) made.block(stream);
      const bool in_place = call.output.is_same(call.input);
      host.input = host_memory_for(call.input);
      host.output = in_place ? host.input : host_memory_for(call.output);
      if (call.input.defined()) host.input.copy_(call.input.detach(), true);
      copied->record(stream);
    }
    auto work =
        std::make_shared<StagedWork>(describe(call), call.deadline, stream, waits.for_results);
    thread_.post([this, work, waits, copied, stream, host, call = std::move(call)] {
      if (waits.for_copies) wait_on_host(*copied);
      run(*work, host, [&] {
        const c10::StreamGuard guard(stream);
        if (call.output.defined()) call.output.detach().copy_(host.output, true);
        work->copied_back();
      });
    });
    return work;
  }

  template <class Then>
  void run(PendingWork& work, const CollectiveCall& call, const Then& then) {
    std::exception_ptr error;
    try {
      forward(*inner_, call)->wait();
      then();
    } catch (...) {
      error = std::current_exception();
    }
    work.complete(error);
  }

  // One for all calls of a communicator.
  c10::Stream copy_stream(c10::Device device) {
    if (!stream_)
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    return *stream_;
  }

  const StagingWaits waits_;
  const std::unique_ptr<Communicator> inner_;
  std::optional<c10::Stream> stream_;
  CommThread thread_;  // ends before what it uses
};

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> inner,
                                          const StagingWaits& waits) {
  return std::make_unique<Staged>(std::move(inner), waits);
}

}  // namespace lockstep
