#include "sim/worker/data_parallel_model.h"

#include "reducer/data_parallel.h"

namespace lockstep {
namespace {

class OnReplicas : public Model {
 public:
  OnReplicas(const Scenario& scenario, const std::string& dtype, std::unique_ptr<Model> model)
      : model_(std::move(model)) {
    // Their own weights are never used.
    const RandomSection random(scenario.seed);
    for (int64_t r = 0; r < scenario.world_size; ++r)
      models_.push_back(build_model(scenario.model, dtype));
    std::vector<DataParallel::Replica> replicas;
    for (const std::unique_ptr<Model>& one : models_)
      replicas.push_back(
          {[replica = one.get()](const at::Tensor& input) { return replica->forward(input); },
           one->parameters(), one->buffers()});
    parallel_ = std::make_unique<DataParallel>(model_->parameters(), model_->buffers(),
                                               std::move(replicas));
  }

  at::Tensor forward(const at::Tensor& input) override { return parallel_->forward(input); }
  NamedTensors parameters() const override { return model_->parameters(); }
  NamedTensors buffers() const override { return model_->buffers(); }

 private:
  std::unique_ptr<Model> model_;                // on the first device
  std::vector<std::unique_ptr<Model>> models_;  // one on each
  std::unique_ptr<DataParallel> parallel_;
};

}  // namespace

void run_on_replicas(const Scenario& scenario, const std::string& dtype, Training* training) {
  if (scenario.reducer.kind != "data_parallel") return;
  training->model = std::make_unique<OnReplicas>(scenario, dtype, std::move(training->model));
}

}  // namespace lockstep
