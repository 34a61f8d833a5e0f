
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <gloo/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "reducer/c10d/c10d_adapters.h"
#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "reducer/gloo/gloo_context.h"
#include "scenarios/base/error.h"

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

// Versions before the middle of 2025 ignore time-outs of single operations: the deadline is ours.
class AbortableGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void abort_all() noexcept {
    for (const auto& context : contexts_) abort_gloo(*context);
  }
};

// What outlives the communicator in callbacks of works.
struct C10dShared {
  c10::intrusive_ptr<AbortableGloo> group;
  std::atomic<bool> failed{false};
  DeadlineTimer timer;
};

class C10dCommunicator : public CollectiveCommunicator {
 public:
  C10dCommunicator(const CommOptions& options, std::shared_ptr<Store> store, Deadline deadline)
      : CollectiveCommunicator(options.rank, options.world_size),
        prefix_(options.prefix),
        store_(std::move(store)) {
    if (options.world_size == 1) return;
    using c10d::ProcessGroupGloo;
    auto gloo = ProcessGroupGloo::Options::create(time_left(deadline));
    const std::string token = shared_token(options.rank, *store_, prefix_ + "c10d/", deadline);
    on_device_thread([&] {
      gloo->devices.push_back(kOneGloo
                                  ? make_guarded_device(options.address, token)
                                  : ProcessGroupGloo::createDeviceForHostname(options.address));
    });
    gloo->threads = 1;  // collectives run in the order of the calls
    const auto rank = static_cast<int>(options.rank);
    try {
      auto adapter = c10::make_intrusive<StoreAdapter>(store_, prefix_ + "c10d/", deadline);
      shared_->group = c10::make_intrusive<AbortableGloo>(
          adapter, rank, static_cast<int>(options.world_size), gloo);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      throw gloo_error("connecting ProcessGroupGloo", error, Clock::now() >= deadline);
    }
  }

  ~C10dCommunicator() override {
    if (shared_->group != nullptr && !said_closed_) close_without_waiting(*store_, prefix_);
    shut_down();
  }

  void close(Deadline deadline) noexcept override {
    if (std::exchange(said_closed_, true)) return;
    if (shared_->group != nullptr) {
      drain(deadline);
      if (!shared_->failed) {
        wait_until_all_close(*store_, prefix_, world_size(), deadline);
      } else {
        close_without_waiting(*store_, prefix_);
      }
    }
    shut_down();
  }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    const std::string what = describe(call);
    if (shared_->failed || said_closed_) {
      throw CommError(CommFailure::closed, what + ": the communicator is closed");
    }
    auto work = std::make_shared<PendingWork>(what, call.deadline);
    const at::Tensor& own = own_tensor(call);
    if (shared_->group == nullptr) {
      run_alone(call);
      work->complete();
    } else if (own.defined() && own.numel() == 0) {
      work->complete();
    } else {
      last_ = work;
      begin(std::move(call), work);
    }
    return work;
  }

 private:
  void begin(CollectiveCall call, const std::shared_ptr<PendingWork>& work) {
    c10::NoGradGuard no_grad;
    at::Tensor summed;
    c10::intrusive_ptr<c10d::Work> started;
    try {
      started = start_call(*shared_->group, call, summed);
    } catch (const c10::Error& error) {
      shared_->failed = true;
      throw CommError(CommFailure::rejected, work->what() + ": " + error.msg());
    } catch (const std::exception& error) {
      shared_->failed = true;
      throw gloo_error(work->what(), error, false);
    }
    auto aborted = std::make_shared<std::atomic<bool>>(false);
    const auto timer = shared_->timer.at(call.deadline, [shared = shared_.get(), aborted] {
      *aborted = true;
      shared->group->abort_all();
    });
    started->getFuture()->addCallback([shared = shared_.get(), work, call = std::move(call), summed,
                                       aborted, timer](c10::ivalue::Future& future) {
      shared->timer.cancel(timer);
      std::exception_ptr error;
      if (future.hasError()) {
        shared->failed = true;
        error = translate(future.exception_ptr(), work->what(), *aborted);
      } else if (call.operation == Operation::reduce_scatter) {
        c10::NoGradGuard off;
        call.output.view({-1}).copy_(
            part_of(summed, shared->group->getRank(), shared->group->getSize()));
      }
      work->complete(error);
    });
  }

  static std::exception_ptr translate(const std::exception_ptr& error, const std::string& what,
                                      bool aborted) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      return std::make_exception_ptr(gloo_error(what, caught, aborted));
    }
  }

  void drain(Deadline deadline) noexcept {
    if (last_ == nullptr || shared_->failed) return;
    auto gone = std::make_shared<PendingWork>("close", deadline);
    last_->on_done([gone](const std::exception_ptr&) { gone->complete(); });
    if (!gone->ends_by(deadline)) shared_->failed = true;
  }

  // The group's destructor waits for its queue: abort what is still in it.
  void shut_down() noexcept {
    if (shared_->group == nullptr) return;
    if (last_ != nullptr && (shared_->failed || !last_->is_done())) shared_->group->abort_all();
    last_.reset();
    shared_->timer.stop();
    shared_->group.reset();
  }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
  const std::unique_ptr<C10dShared> shared_ = std::make_unique<C10dShared>();
  std::shared_ptr<PendingWork> last_;
  bool said_closed_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_backend_communicator(c10::intrusive_ptr<C10dBackend> backend,
                                                        c10::Device device,
                                                        std::function<void()> abort) {
  return std::make_unique<BackendCommunicator>(std::move(backend), device, std::move(abort));
}

std::unique_ptr<Communicator> make_c10d_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline) {
  LOCKSTEP_CHECK(options.algorithm == "ring", "ProcessGroupGloo only has the ring");
  return std::make_unique<C10dCommunicator>(options, std::move(store), deadline);
}

}  // namespace lockstep
