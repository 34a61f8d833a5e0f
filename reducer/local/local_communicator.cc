#include <atomic>

#include "reducer/local/hub.h"

namespace lockstep {
namespace {

class LocalCommunicator : public CollectiveCommunicator {
 public:
  LocalCommunicator(const CommOptions& options, std::shared_ptr<LocalHub> hub)
      : CollectiveCommunicator(options.rank, options.world_size),
        order_(sum_order(options.algorithm)),
        hub_(std::move(hub)) {}
  ~LocalCommunicator() override { leave(); }

  // Nothing of a peer's is lost when this rank goes: it does not wait.
  void close(Deadline) noexcept override { leave(); }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    if (*closed_) {
      throw CommError(CommFailure::closed, describe(call) + ": the communicator is closed");
    }
    CommWorkPtr work = hub_->arrive(rank(), sequence_++, order_, std::move(call));
    work->on_done([closed = closed_](const std::exception_ptr& error) {
      if (error) *closed = true;
    });
    return work;
  }

 private:
  void leave() noexcept {
    if (std::exchange(left_, true)) return;
    *closed_ = true;
    hub_->leave(rank(), sequence_);
  }

  const SumOrder order_;
  const std::shared_ptr<LocalHub> hub_;
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<uint64_t> sequence_{0};
  bool left_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(const CommOptions& options,
                                                      std::shared_ptr<LocalHub> hub) {
  return std::make_unique<LocalCommunicator>(options, std::move(hub));
}

}  // namespace lockstep
