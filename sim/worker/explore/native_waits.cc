#include "sim/worker/explore/native_waits.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>
#include <vector>

namespace lockstep {
namespace {

class EngineWaits : public NativeWaits {
 public:
  explicit EngineWaits(Communicator& inner) : inner_(inner) {}

  int64_t rank() const override { return inner_.rank(); }
  int64_t world_size() const override { return inner_.world_size(); }
  // The engine calls back in the order in which it was asked: the reducer asks behind its last one.
  CommWorkPtr all_reduce(const at::Tensor& tensor, Deadline deadline) override {
    CommWorkPtr work = inner_.all_reduce(tensor, deadline);
    if (!in_backward_) return work;
    open_.push_back(work);
    torch::autograd::Engine::get_default_engine().queue_callback([this] { wait(); });
    return work;
  }
  CommWorkPtr broadcast(const at::Tensor& tensor, int64_t root, Deadline deadline) override {
    return inner_.broadcast(tensor, root, deadline);
  }
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input,
                         Deadline deadline) override {
    return inner_.all_gather(output, input, deadline);
  }
  CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                             Deadline deadline) override {
    return inner_.reduce_scatter(output, input, deadline);
  }
  CommWorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int64_t root,
                      Deadline deadline) override {
    return inner_.scatter(output, input, root, deadline);
  }
  CommWorkPtr gather(const at::Tensor& output, const at::Tensor& input, int64_t root,
                     Deadline deadline) override {
    return inner_.gather(output, input, root, deadline);
  }
  CommWorkPtr barrier(Deadline deadline) override { return inner_.barrier(deadline); }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_.allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }

  void begin_backward() override {
    open_.clear();
    in_backward_ = true;
  }
  void end_backward() override { in_backward_ = false; }

 private:
  void wait() {
    const auto works = std::exchange(open_, {});
    for (const CommWorkPtr& work : works) work->wait();
  }

  Communicator& inner_;
  bool in_backward_ = false;
  std::vector<CommWorkPtr> open_;
};

}  // namespace

std::unique_ptr<NativeWaits> make_native_waits(Communicator& inner) {
  return std::make_unique<EngineWaits>(inner);
}

}  // namespace lockstep
