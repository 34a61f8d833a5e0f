#include "sim/tools/campaign/cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// One training while it is drawn: each part of it sees what those before have chosen.
class CleanDraw {
 public:
  explicit CleanDraw(uint64_t seed) : draw_(seed) {}

  Json body() {
    if (draw_.once_in(12)) return exact();
    reducer();
    sizes();
    model();
    body_["optimizer"] = optimizer();
    communicator();
    split();
    accumulation();
    if (is_ddp()) ddp_options();
    if (draw_.once_in(8)) frozen();
    if (draw_.once_in(3)) update();
    if (draw_.once_in(8)) resume();
    if (draw_.once_in(6)) delay();
    lanes();
    vary_clean_case(&draw_, &body_);
    return body_;
  }

 private:
  bool is_ddp() const { return reducer_ == "bucketed" || reducer_ == "c10d"; }
  bool is(const char* key, const char* kind) const { return body_.at(key).at("kind") == kind; }
  bool is_model(const char* kind) const { return is("model", kind); }
  bool joins() const { return body_.contains("join"); }
  bool is_tokens() const { return is("data", "tokens"); }

  void reducer() {
    reducer_ = draw_.one_of<std::string>({"bucketed", "bucketed", "bucketed", "bucketed", "c10d",
                                          "c10d", "c10d", "c10d", "flat", "per_parameter", "manual",
                                          "sharded", "data_parallel"});
    body_["reducer"] = {{"kind", reducer_}};
    draw_caps(&draw_, &body_["reducer"]);
  }

  void sizes() {
    ranks_ = draw_.between(1, 9);
    parts_ = draw_.once_in(3) ? draw_.between(2, 3) : 1;
    batches_ = draw_.between(1, 4);
    batch_ = ranks_ * parts_ * draw_.between(1, 3);
    body_["world_size"] = ranks_;
    body_["steps"] = draw_.between(2, 6);
    body_["batch_size"] = batch_;
  }

  void model() {
    const int64_t samples = batch_ * batches_;
    body_.update(drawn_model(&draw_, samples));
    if (draw_.once_in(7)) batch_norm();
    if (is_ddp() && draw_.once_in(6)) unused();
    if (!unused_ && draw_.once_in(24)) images();
    if (draw_.once_in(10)) single_elements();
    if (is_model("mlp")) mlp();
    const bool whole = reducer_ != "sharded" && reducer_ != "data_parallel";
    if (is_model("embedding") && whole && draw_.once_in(2)) body_["model"]["sparse"] = true;
    dtype();
    if (draw_.once_in(4)) memory_format();
    if (draw_.once_in(4)) dropout();
  }

  // The weights of convolutions have four dimensions.
  void images() {
    one_part(draw_.between(1, 2));
    const int64_t classes = draw_.between(2, 5);
    body_["model"] = {{"kind", "mnist_convnet"}, {"classes", classes}};
    body_["data"] = {{"kind", "images"}, {"samples", batch_ * batches_},
                     {"channels", 1},    {"height", 28},
                     {"width", 28},      {"classes", classes}};
    body_["loss"] = {{"kind", "cross_entropy"}};
  }

  // Tensors of one element: less than one for each rank.
  void single_elements() {
    Json& model = body_["model"];
    if (!is_model("linear") && !is_model("mlp")) return;
    if (is("data", "randn")) body_["data"]["targets"] = model["out_features"] = 1;
    if (draw_.once_in(2)) body_["data"]["features"] = model["in_features"] = 1;
    if (is_model("mlp") && !model["hidden"].empty()) model["hidden"][0] = 1;
  }

  void memory_format() {
    std::vector<std::string> formats = {"transposed"};
    if (reducer_ != "sharded") formats.emplace_back("sliced");
    if (is_model("mnist_convnet")) formats = {"channels_last", "channels_last", "transposed"};
    if (!is_model("embedding")) body_["model"]["memory_format"] = draw_.one_of(formats);
  }

  void dropout() {
    if (!is_model("mlp") && !is_model("gpt") && !is_model("mnist_convnet")) return;
    if (body_["model"].contains("checkpointing")) return;  // it would draw its masks again
    body_["model"]["dropout"] = draw_.one_of<double>({0.1, 0.25, 0.5});
  }

  void batch_norm() {
    const int64_t in = draw_.between(3, 9), out = draw_.between(2, 5);
    const bool sync = draw_.once_in(2) && reducer_ != "data_parallel";
    // Statistics of the whole batch, over enough samples that rounding is not what decides.
    if (sync) one_part(4);
    body_["model"] = {{"kind", "batch_norm_mlp"},
                      {"in_features", in},
                      {"hidden", Json::array({draw_.between(4, 12)})},
                      {"out_features", out},
                      {"norm", sync ? "sync" : "frozen"}};
    body_["data"] = numbers(in, out);
    body_["loss"] = {{"kind", "mse"}};
  }

  Json numbers(int64_t in, int64_t out) const {
    return {{"kind", "randn"}, {"samples", batch_ * batches_}, {"features", in}, {"targets", out}};
  }

  // Parameters that the loss does not depend on, always or in some steps.
  void unused() {
    const int64_t in = draw_.between(3, 9), out = draw_.between(2, 5);
    const bool routed = draw_.once_in(2);
    body_["model"] = {{"kind", "branches"},
                      {"in_features", in},
                      {"hidden", draw_.between(4, 12)},
                      {"out_features", out},
                      {"unused", routed ? "routed" : "always"}};
    body_["data"] = numbers(in, out);
    if (routed) {
      body_["data"]["kind"] = "routed";
      body_["data"]["block"] = draw_.between(1, batch_ / ranks_);
    }
    body_["loss"] = {{"kind", "mse"}};
    const bool is_static = !routed && draw_.once_in(2);
    body_["reducer"][is_static ? "static_graph" : "find_unused_parameters"] = true;
    unused_ = true;
    if (reducer_ == "c10d" || is_static) one_part();  // c10d forgets micro-batches under no_sync
  }

  // A step's samples at once; with `samples` of them on each rank.
  void one_part(int64_t samples = 0) {
    parts_ = 1;
    if (samples > 0) body_["batch_size"] = batch_ = ranks_ * samples;
  }

  void mlp() {
    Json& model = body_["model"];
    if (draw_.once_in(6) && reducer_ != "data_parallel" && !model["hidden"].empty())
      model["float64_layers"] = Json::array({2});
    else if (draw_.once_in(6) && model["hidden"].size() > 1 && is_ddp())
      model["checkpointing"] = draw_.one_of<std::string>({"reentrant", "non_reentrant"});
  }

  void dtype() {
    const Json& model = body_["model"];
    if (draw_.once_in(6))
      body_["dtype"] = "float64";
    else if (draw_.once_in(8) && is_ddp() && is_model("mlp") && !model.contains("float64_layers"))
      body_["dtype"] = "bfloat16";
  }

  bool is_bfloat16() const { return body_.value("dtype", "") == "bfloat16"; }
  bool is_sliced() const { return body_["model"].value("memory_format", "") == "sliced"; }
  bool is_sparse() const { return body_["model"].value("sparse", false); }
  // Gradients that are zero but for rounding.
  bool has_idle_gradients() const { return is_model("gpt") || is_model("batch_norm_mlp"); }

  Json optimizer() {
    if (is_sparse()) return {{"kind", draw_.one_of<std::string>({"sgd", "adagrad"})}, {"lr", 0.1}};
    Json drawn = drawn_optimizer(&draw_);
    if (has_idle_gradients() && drawn["kind"] != "sgd") return {{"kind", "sgd"}, {"lr", 0.05}};
    return drawn;
  }

  void communicator() {
    if (reducer_ == "data_parallel") {
      body_["communicator"] = {{"kind", "local"}, {"algorithm", "rank_order"}};
      return;
    }
    body_["communicator"] = drawn_communicator(&draw_);
    if (ranks_ > 1 && draw_.once_in(24))
      body_["communicator"] = {{"kind", "hierarchical"}, {"ranks_per_host", draw_.between(1, 4)}};
    if (is_bfloat16() && !is("communicator", "local")) body_["communicator"] = {{"kind", "gloo"}};
  }

  void split() {
    const int64_t which = draw_.below(8);
    if (which == 0 && is_ddp() && !unused_ && ranks_ > 1) return join();
    if (which == 1 && !is_tokens() && reducer_ != "data_parallel")
      body_["split"] = {{"kind", "manual"}};
    if (which == 2) body_["split"] = {{"kind", "distributed"}, {"shuffle", draw_.once_in(2)}};
    if (which == 3) body_["split"] = {{"kind", "libtorch_random"}};
    if (which == 4 && reducer_ != "data_parallel") uneven();
    if (draw_.once_in(8)) body_["data"]["workers"] = draw_.between(1, 3);
  }

  // Ranks that run out of batches shadow the others.
  void join() {
    if (is_model("batch_norm_mlp") && body_["model"]["norm"] == "sync") return;
    if (is_sparse()) return;
    Json batches = Json::array();
    for (int64_t rank = 0; rank < ranks_; ++rank) batches.push_back(draw_.between(1, batches_));
    batches[static_cast<size_t>(draw_.below(ranks_))] = batches_;
    body_["split"] = {{"batches_per_rank", batches}};
    body_["join"] = {{"divide_by", "active_ranks"}};
    // What an optimizer remembers is not handed over where ranks meet again: one epoch.
    const Json& optimizer = body_["optimizer"];
    const bool remembers = optimizer["kind"] != "sgd" || optimizer.value("momentum", 0.0) > 0;
    body_["steps"] = batches_ * (remembers ? 1 : draw_.between(1, 2));
  }

  // Shards of different sizes, weighted by them.
  void uneven() {
    one_part();
    batch_ += draw_.below(ranks_);
    body_["batch_size"] = batch_;
    body_["data"]["samples"] = batch_ * batches_;
    body_["averaging"] = "sample_weighted";
  }

  void accumulation() {
    if (parts_ > 1) body_["accumulate_steps"] = parts_;
    if (parts_ > 1 && !joins() && reducer_ != "sharded" && draw_.once_in(4))
      body_["accumulate_sync"] = "each";
    body_["zero_grad"] = draw_.one_of<std::string>({"zero", "none"});
  }

  void ddp_options() {
    Json& reducer = body_["reducer"];
    reducer["gradient_as_bucket_view"] = draw_.once_in(2);
    if (reducer_ == "bucketed" && !unused_ && draw_.once_in(4))
      reducer["write_back"] = "per_bucket";
    const bool checkpoints = body_["model"].contains("checkpointing");
    if (!unused_ && !checkpoints && draw_.once_in(8)) reducer["find_unused_parameters"] = true;
    if (reducer.value("write_back", "") == "per_bucket") reducer["find_unused_parameters"] = false;
    if (!is_sparse() && draw_.once_in(3)) hook();
    if (is_model("mlp") && !joins() && draw_.once_in(8)) wrap();
  }

  void hook() {
    if (joins() || is("communicator", "c10d")) return;  // ProcessGroupGloo adds no bfloat16
    body_["comm_hook"] = {{"kind", draw_.one_of<std::string>({"allreduce", "fp16", "bf16"})}};
    halves_ = !is("comm_hook", "allreduce");
  }

  // A reducer for each layer.
  void wrap() {
    Json modules = Json::array();
    const auto layers = static_cast<int64_t>(body_["model"]["hidden"].size()) + 1;
    for (int64_t layer = 1; layer <= layers; ++layer) modules.push_back(fmt::format("fc{}", layer));
    if (body_["model"].value("register", "") == "backwards" ||
        body_["model"].contains("checkpointing"))
      return;
    body_["wrapped_modules"] = modules;
  }

  void frozen() {
    if (!is_model("mlp") || body_.contains("wrapped_modules")) return;
    if (body_["model"]["hidden"].empty() || is("optimizer", "adagrad")) return;
    body_["frozen"] = Json::array({draw_.one_of<std::string>({"fc1", "fc2", "fc1.weight"})});
    if (body_["model"].contains("checkpointing")) body_["model"].erase("checkpointing");
  }

  // What comes between the averaged gradients and the weights.
  void update() {
    const std::vector<Json> schedules = {
        {{"kind", "step"}, {"step_size", 2}, {"gamma", 0.5}},
        {{"kind", "exponential"}, {"gamma", 0.8}},
        {{"kind", "cosine"}, {"steps_total", 5}, {"min_lr", 0.001}},
        {{"kind", "linear_warmup"}, {"warmup_steps", 3}}};
    if (draw_.once_in(2)) body_["lr_schedule"] = draw_.one_of(schedules);
    const int64_t which = draw_.below(5);
    const bool sharded = reducer_ == "sharded";
    if (which == 0 && !sharded && !is_sparse())
      body_["clipping"] = {{"kind", "norm"}, {"max_norm", 0.1}};
    // Clipped to a small value, gradients that a norm makes zero but for rounding count as others
    // do.
    const bool normed = is_model("batch_norm_mlp");
    if (which == 1 && !is_sparse() && !normed)
      body_["clipping"] = {{"kind", "value"}, {"max_value", 0.02}};
    if (which == 2 && !sharded && !joins() && !is_bfloat16())
      body_["loss_scaling"] = {{"kind", "dynamic"},
                               {"initial_scale", 256},
                               {"growth_interval", 2},
                               {"overflow_step", draw_.below(body_["steps"].get<int64_t>() + 1)},
                               {"overflow_rank", draw_.below(ranks_)}};
    if (which == 3 && !sharded && reducer_ != "data_parallel" && !joins() && !is_sparse() &&
        !is_sliced())
      body_["optimizer_sharding"] = {
          {"kind", "zero"},
          {"broadcast", draw_.one_of<std::string>({"per_parameter", "per_rank"})}};
  }

  void resume() {
    const int64_t steps = body_["steps"];
    if (joins() || steps < 2) return;
    body_["checkpoint"] = {{"kind", "save_and_resume"},
                           {"after_step", draw_.between(1, steps - 1)}};
  }

  // Late, but never by as much as a time-out.
  void delay() {
    if (reducer_ == "data_parallel" || is("communicator", "local")) return;
    const std::vector<Json> kinds = {
        {{"kind", "stop"}, {"step", 1}, {"duration_ms", draw_.between(20, 200)}},
        {{"kind", "stall"}, {"phase", "forward"}, {"duration_ms", draw_.between(5, 40)}},
        {{"kind", "slow"}, {"factor", 3}},
        {{"kind", "late_start"}, {"duration_ms", draw_.between(10, 300)}},
        {{"kind", "slow_constructor"}, {"duration_ms", draw_.between(10, 200)}},
        {{"kind", "latency"}, {"duration_ms", draw_.between(1, 5)}}};
    Json fault = draw_.one_of(kinds);
    fault["rank"] = draw_.below(ranks_);
    body_["faults"] = Json::array({fault});
  }

  void lanes() {
    body_["lanes"] = {"replica", "replay", "float64"};
    // Half precision on purpose is not what float32 rounds.
    if (!halves_ && draw_.once_in(2)) body_["lanes"].push_back("rounding");
  }

  // On data whose arithmetic does not round.
  Json exact() {
    const int64_t in = draw_.between(2, 6), out = draw_.between(2, 4);
    // Enough addends that the control on random data has an order to get wrong.
    const int64_t ranks = draw_.between(3, 8), batch = ranks * draw_.between(2, 4);
    return {
        {"world_size", ranks},
        {"steps", draw_.between(2, 5)},
        {"batch_size", batch},
        {"dtype", "float64"},
        {"requantize", 64},
        {"model",
         {{"kind", "mlp"},
          {"in_features", in},
          {"hidden", Json::array({draw_.between(2, 8)})},
          {"out_features", out}}},
        {"data",
         {{"kind", "dyadic"},
          {"samples", batch * 2},
          {"features", in},
          {"targets", out},
          {"denominator", 1024}}},
        {"loss",
         {{"kind", "mse"}, {"reduction", "sum"}, {"scale", 0.0078125}, {"times_world_size", true}}},
        {"optimizer", {{"kind", "sgd"}, {"lr", 0.25}}},
        {"reducer", {{"kind", draw_.one_of<std::string>({"bucketed", "c10d", "flat", "manual"})}}},
        {"communicator", drawn_communicator(&draw_)},
        {"lanes", {"replica", "replay", "exact"}}};
  }

  Draw draw_;
  Json body_ = Json::object();
  std::string reducer_;
  int64_t ranks_ = 1, parts_ = 1, batches_ = 1, batch_ = 1;
  bool unused_ = false, halves_ = false;
};

}  // namespace

Json clean_case(uint64_t seed) {
  Json document = {{"name", fmt::format("clean-{}", seed)}, {"what", "Drawn: a correct training"}};
  document["seed"] = seed % (uint64_t{1} << 53);
  document.update(CleanDraw(seed).body());
  document["expect"] = {{"verdict", "pass"}};
  return document;
}

}  // namespace lockstep
