#include <c10/core/GradMode.h>
#include <gloo/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>

#include "reducer/c10d/start_call.h"
#include "reducer/c10d/store_adapter.h"
#include "reducer/comm/closing.h"
#include "reducer/comm/collective.h"
#include "reducer/comm/deadline_timer.h"
#include "reducer/comm/device_thread.h"
#include "reducer/comm/pending_work.h"
#include "reducer/gloo/gloo_context.h"
#include "reducer/gloo/guarded_device.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

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
      auto device = make_guarded_device(options.address, token);
      if (device == nullptr) device = ProcessGroupGloo::createDeviceForHostname(options.address);
      gloo->devices.push_back(std::move(device));
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

std::unique_ptr<Communicator> make_c10d_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline) {
  LOCKSTEP_CHECK(options.algorithm == "ring", "ProcessGroupGloo only has the ring");
  return std::make_unique<C10dCommunicator>(options, std::move(store), deadline);
}

}  // namespace lockstep
