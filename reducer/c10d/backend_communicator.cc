#include "reducer/c10d/backend_communicator.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "reducer/comm/closing.h"
#include "reducer/comm/comm_thread.h"
#include "reducer/comm/pending_work.h"

namespace lockstep {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{20};

// One call on its way: what was given, and what the backend works on.
struct Travel {
  CollectiveCall given, on_device;
  at::Tensor summed;
  c10::intrusive_ptr<c10d::Work> started;
};

class BackendCommunicator : public CollectiveCommunicator {
 public:
  BackendCommunicator(c10::intrusive_ptr<C10dBackend> backend, c10::Device device,
                      std::function<void()> abort)
      : CollectiveCommunicator(backend->getRank(), backend->getSize()),
        device_(device),
        backend_(std::move(backend)),
        abort_(std::move(abort)) {}

  void close(Deadline deadline) noexcept override {
    if (std::exchange(closed_, true)) return;
    if (!drained(thread_, deadline)) end_all();
  }

 private:
  CommWorkPtr submit(CollectiveCall call) override {
    const std::string what = describe(call);
    if (closed_ || failed_)
      throw CommError(CommFailure::closed, what + ": the communicator is closed");
    auto work = std::make_shared<PendingWork>(what, call.deadline);
    const at::Tensor& own = own_tensor(call);
    if (own.defined() && own.numel() == 0) {
      work->complete();
      return work;
    }
    auto travel = std::make_shared<Travel>();
    travel->given = std::move(call);
    begin(*travel, what);
    thread_.post([this, work, travel] { finish(*work, *travel); });
    return work;
  }

  void begin(Travel& travel, const std::string& what) {
    const c10::NoGradGuard no_grad;
    try {
      travel.on_device = to_device(travel.given);
      travel.started = start_call(*backend_, travel.on_device, travel.summed);
    } catch (const c10::Error& error) {
      end_all();
      throw CommError(CommFailure::rejected, what + ": " + error.msg());
    }
  }

  CollectiveCall to_device(CollectiveCall call) const {
    if (call.operation == Operation::barrier) {
      call.operation = Operation::all_reduce;
      call.input = call.output = at::zeros({1}, at::dtype(at::kFloat).device(device_));
      return call;
    }
    const bool in_place = call.output.is_same(call.input);
    call.input = moved(call.input);
    call.output = in_place ? call.input : moved(call.output);
    return call;
  }

  at::Tensor moved(const at::Tensor& tensor) const {
    const bool stays = !tensor.defined() || tensor.device() == device_;
    return stays ? tensor : tensor.detach().to(device_);
  }

  // On the thread.
  void finish(PendingWork& work, Travel& travel) {
    const c10::NoGradGuard no_grad;
    const c10::DeviceGuard guard(device_);
    const std::string why = wait_for(*travel.started, work.deadline());
    if (!why.empty()) {
      const bool late = Clock::now() >= work.deadline();
      end_all();
      return work.complete(
          comm_error(late ? CommFailure::timeout : CommFailure::peer_lost, work.what(), why));
    }
    std::exception_ptr error;
    try {
      give_back(travel);
    } catch (const c10::Error& caught) {
      error = comm_error(CommFailure::rejected, work.what(), caught.msg());
    }
    work.complete(error);
  }

  // "" where it has ended well.
  std::string wait_for(c10d::Work& started, Deadline deadline) const {
    try {
      while (!started.isCompleted()) {
        if (failed_) return "an earlier collective has failed";
        if (Clock::now() >= deadline) return "the deadline has passed";
        std::this_thread::sleep_for(kBetweenLooks);
      }
      if (const std::exception_ptr error = started.exception()) std::rethrow_exception(error);
      return "";
    } catch (const std::exception& error) {
      const std::string text = error.what();
      return text.substr(0, text.find('\n'));
    }
  }

  void give_back(Travel& travel) const {
    const CollectiveCall& call = travel.given;
    if (call.operation == Operation::reduce_scatter)
      travel.on_device.output.view({-1}).copy_(part_of(travel.summed, rank(), world_size()));
    if (call.output.defined() && !call.output.is_same(travel.on_device.output) &&
        call.operation != Operation::barrier)
      call.output.detach().copy_(travel.on_device.output);
  }

  void end_all() noexcept {
    if (failed_.exchange(true)) return;
    try {
      abort_();
    } catch (...) {  // it is gone either way
    }
  }

  const c10::Device device_;
  const c10::intrusive_ptr<C10dBackend> backend_;
  const std::function<void()> abort_;
  std::atomic<bool> failed_{false};
  bool closed_ = false;
  CommThread thread_;  // ends before what it uses
};

}  // namespace

std::unique_ptr<Communicator> make_backend_communicator(c10::intrusive_ptr<C10dBackend> backend,
                                                        c10::Device device,
                                                        std::function<void()> abort) {
  return std::make_unique<BackendCommunicator>(std::move(backend), device, std::move(abort));
}

}  // namespace lockstep
