#include "sim/worker/data_parallel_model.h"

#include "reducer/data_parallel.h"
#include "scenarios/workloads/draws.h"

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

  at::Tensor forward(const at::Tensor& input) override {
    if (draws_ != nullptr) share_out_draws(input.size(0));
    return parallel_->forward(input);
  }
  bool draw_from(SampleDraws* draws) override {
    bool any = false;
    of_replicas_.clear();
    for (const std::unique_ptr<Model>& one : models_) {
      of_replicas_.push_back(std::make_unique<SampleDraws>(*draws));
      any = one->draw_from(of_replicas_.back().get()) || any;
    }
    draws_ = any ? draws : nullptr;
    return any;
  }
  std::vector<std::string> undeclared_random_layers() const override {
    return model_->undeclared_random_layers();
  }
  NamedTensors parameters() const override { return model_->parameters(); }
  NamedTensors buffers() const override { return model_->buffers(); }

 private:
  // Each replica draws for its rows: the first ones have one more where they do not divide.
  void share_out_draws(int64_t rows) {
    const auto replicas = static_cast<int64_t>(models_.size());
    int64_t begin = 0;
    for (int64_t r = 0; r < replicas; ++r) {
      const int64_t count = rows / replicas + (r < rows % replicas ? 1 : 0);
      of_replicas_[static_cast<size_t>(r)]->begin_part(*draws_, begin, count);
      begin += count;
    }
  }

  std::unique_ptr<Model> model_;                // on the first device
  std::vector<std::unique_ptr<Model>> models_;  // one on each
  std::unique_ptr<DataParallel> parallel_;
  SampleDraws* draws_ = nullptr;  // of the forward; null where no layer draws
  std::vector<std::unique_ptr<SampleDraws>> of_replicas_;
};

}  // namespace

void run_on_replicas(const Scenario& scenario, const std::string& dtype, Training* training) {
  if (scenario.reducer.kind != "data_parallel") return;
  training->model = std::make_unique<OnReplicas>(scenario, dtype, std::move(training->model));
  training->model->draw_from(training->draws.get());
}

}  // namespace lockstep
