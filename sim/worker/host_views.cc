#include "sim/worker/host_views.h"

#include <utility>

#include "reducer/comm/collective.h"
#include "scenarios/workloads/rank_devices.h"

namespace lockstep {
namespace {

class HostViews : public CollectiveCommunicator {
 public:
  explicit HostViews(std::unique_ptr<Communicator> inner)
      : CollectiveCommunicator(inner->rank(), inner->world_size()), inner_(std::move(inner)) {}
  void close(Deadline deadline) noexcept override { inner_->close(deadline); }

 private:
  CommWorkPtr submit(CollectiveCall call) override {
    call.output = on_host(call.output);
    call.input = on_host(call.input);
    return forward(*inner_, call);
  }

  const std::unique_ptr<Communicator> inner_;
};

}  // namespace

std::unique_ptr<Communicator> with_host_views(std::unique_ptr<Communicator> inner) {
  return std::make_unique<HostViews>(std::move(inner));
}

}  // namespace lockstep
