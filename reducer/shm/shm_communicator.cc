#include <ATen/ops/from_blob.h>

#include <atomic>

#include "reducer/comm/closing.h"
#include "reducer/comm/comm_thread.h"
#include "reducer/comm/pending_work.h"
#include "reducer/shm/shm_collectives.h"

namespace lockstep {
namespace {

class ShmCommunicator : public CollectiveCommunicator {
 public:
  ShmCommunicator(const CommOptions& options, const std::shared_ptr<Store>& store,
                  Deadline deadline)
      : CollectiveCommunicator(options.rank, options.world_size) {
    if (options.world_size == 1) return;
    group_ = std::make_unique<ShmGroup>(options, *store, deadline);
    collectives_ = std::make_unique<ShmCollectives>(*group_, sum_order(options.algorithm));
    thread_ = std::make_unique<CommThread>();
  }

  ~ShmCommunicator() override { shut_down(); }

  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    const auto bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
    std::shared_ptr<ShmMemory> memory = group_ != nullptr ? group_->memory() : nullptr;
    std::byte* const taken = memory != nullptr ? memory->take(bytes) : nullptr;
    if (taken == nullptr) return CollectiveCommunicator::allocate(elements, dtype);
    return at::from_blob(
        taken, {elements}, [memory, taken, bytes](void*) { memory->release(taken, bytes); }, dtype);
  }

  // After a failure nobody waits; before one, what is queued is let through first. What this rank
  // has shared stays in the others' memory when it goes: it does not wait for them.
  void close(Deadline deadline) noexcept override {
    if (group_ != nullptr && !failed_) drained(*thread_, deadline);
    shut_down();
  }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    const std::string what = describe(call);
    if (failed_) throw CommError(CommFailure::closed, what + ": the communicator is closed");
    auto work = std::make_shared<PendingWork>(what, call.deadline);
    if (world_size() == 1) {
      run_alone(call);
      work->complete();
    } else {
      thread_->post([this, work, call = std::move(call)] { run(call, *work); });
    }
    return work;
  }

 private:
  void run(const CollectiveCall& call, PendingWork& work) {
    std::exception_ptr error;
    try {
      if (failed_) throw CommError(CommFailure::closed, "an earlier collective failed");
      collectives_->run(call);
    } catch (const CommError& failure) {
      error = comm_error(work.what(), failure);
    } catch (const std::exception& failure) {
      error = comm_error(CommFailure::rejected, work.what(), failure.what());
    }
    if (error) {
      failed_ = true;
      group_->leave();
    }
    work.complete(error);
  }

  // Whatever is still queued ends as closed; what is under way is cut short.
  void shut_down() noexcept {
    failed_ = true;
    if (group_ == nullptr) return;
    group_->cancel();
    thread_.reset();
    collectives_.reset();
    group_.reset();
  }

  std::atomic<bool> failed_{false};  // or closed
  std::unique_ptr<ShmGroup> group_;
  std::unique_ptr<ShmCollectives> collectives_;
  std::unique_ptr<CommThread> thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const CommOptions& options,
                                                    std::shared_ptr<Store> store,
                                                    Deadline deadline) {
  return std::make_unique<ShmCommunicator>(options, store, deadline);
}

}  // namespace lockstep
