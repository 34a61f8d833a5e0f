#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "sim/tools/campaign/cases.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// What the drawn training is varied by, if it allows it.
class Variation {
 public:
  Variation(Draw* draw, Json* body) : draw_(*draw), body_(*body) {}

  void draw() {
    switch (draw_.below(24)) {
      case 0:
        return own_statistics();
      case 1:
        return power_sgd();
      case 2:
      case 3:
        return averaged_models();
      case 4:
        return every_micro_batch();
      case 5:
        return virtual_shards();
      case 6:
      case 7:
        return ignored();
      default:
        return;
    }
  }

 private:
  bool is(const char* key, const char* kind) const {
    return body_.contains(key) && body_[key]["kind"] == kind;
  }
  bool has(const char* key) const { return body_.contains(key); }
  int64_t number(const char* key) const { return body_[key].get<int64_t>(); }
  bool is_ddp() const { return is("reducer", "bucketed") || is("reducer", "c10d"); }
  // A training that only its model, its sizes and its optimizer tell from others.
  bool is_plain_ddp() const {
    for (const char* key : {"join", "comm_hook", "loss_scaling", "optimizer_sharding", "checkpoint",
                            "averaging", "wrapped_modules"})
      if (has(key)) return false;
    return is_ddp() && !has_sparse() && !is_bfloat16();
  }
  bool has_sparse() const { return body_["model"].value("sparse", false); }
  bool is_bfloat16() const { return body_.value("dtype", "") == "bfloat16"; }
  void ask(std::initializer_list<const char*> lanes) {
    body_["lanes"] = Json::array();
    for (const char* lane : lanes) body_["lanes"].push_back(lane);
  }

  // Each rank's batch norm has the statistics of its own shard: no function of the whole batch.
  void own_statistics() {
    if (!takes_another_model()) return;
    enlarge(4);
    model({{"kind", "batch_norm_mlp"}, {"hidden", Json::array({draw_.between(4, 12)})}});
    // After the first of several forwards is refused.
    const char* last = has("accumulate_steps") ? "none" : "average_after_forward";
    body_["reducer"]["buffer_hook"] =
        draw_.one_of<std::string>({"none", "average_before_forward", last});
    ask({"replica", "replay"});
  }

  bool takes_another_model() const {
    return is_plain_ddp() && !has("frozen") && !is("data", "routed") && !is("split", "manual");
  }

  // In place of the drawn one, of numbers.
  void model(const Json& kind) {
    const int64_t in = draw_.between(3, 9), out = draw_.between(2, 5);
    body_["model"] = {{"in_features", in}, {"out_features", out}};
    body_["model"].update(kind);
    body_["data"] = {{"kind", "randn"},
                     {"samples", body_["data"]["samples"]},
                     {"features", in},
                     {"targets", out}};
    body_["loss"] = {{"kind", "mse"}};
  }

  void enlarge(int64_t times) {
    body_["batch_size"] = number("batch_size") * times;
    body_["data"]["samples"] = body_["data"]["samples"].get<int64_t>() * times;
  }

  // Left out of DDP by name, and averaged by hand.
  void ignored() {
    if (!takes_another_model()) return;
    model({{"kind", "mlp"}, {"hidden", Json::array({draw_.between(2, 9), draw_.between(1, 9)})}});
    body_["rank_seeds"] = "equal";  // what is left out is not broadcast
    body_["ignored"] = Json::array({draw_.one_of<std::string>({"fc1", "fc2", "fc1.weight"})});
    body_["reducer"]["average_ignored"] = true;
  }

  void power_sgd() {
    if (!is_plain_ddp() || is("communicator", "c10d") || number("world_size") < 2) return;
    if (body_["reducer"].value("static_graph", false)) return;
    body_["comm_hook"] = {
        {"kind", "powersgd"}, {"rank", draw_.between(1, 2)}, {"start_step", draw_.between(2, 3)}};
    ask({"replica", "replay"});
  }

  // Local steps between averages of the parameters: one device trains another function.
  void averaged_models() {
    if (!is_plain_ddp() || is("model", "batch_norm_mlp")) return;
    if (body_["reducer"].value("find_unused_parameters", false)) return;
    if (has("accumulate_sync")) return;
    const int64_t warmup = draw_.between(0, number("steps") - 1);
    body_["comm_hook"] = {{"kind", "post_local_sgd"}, {"start_step", warmup + 1}};
    body_["model_averaging"] = {
        {"kind", "periodic"}, {"period", draw_.between(1, 3)}, {"warmup_steps", warmup}};
    ask({"replica", "replay"});
  }

  // Of which some rank, or none, uses a branch.
  void every_micro_batch() {
    // SyncBatchNorm normalizes a micro-batch: another function than the whole batch's.
    if (!is_plain_ddp() || has("accumulate_steps") || is("model", "batch_norm_mlp")) return;
    const int64_t parts = draw_.between(2, 3);
    enlarge(parts);
    body_["accumulate_steps"] = parts;
    body_["accumulate_sync"] = "each";
    if (is("data", "routed"))
      body_["data"]["block"] = draw_.between(1, number("batch_size") / number("world_size"));
  }

  void virtual_shards() {
    if (!is_plain_ddp() || has("faults") || has("accumulate_steps") || is("split", "manual") ||
        body_["model"].contains("checkpointing"))
      return;
    // Each virtual shard by itself is no function of the whole batch.
    if (is("model", "batch_norm_mlp") && body_["model"]["norm"] != "sync") return;
    const int64_t ranks = number("world_size"),
                  shards = draw_.between(std::max<int64_t>(ranks, 3), ranks + 5);
    enlarge(shards);
    Json& reducer = body_["reducer"];
    reducer["kind"] = "invariant";
    reducer["virtual_shards"] = shards;
    if (reducer.value("static_graph", false)) reducer["find_unused_parameters"] = true;
    for (const char* key : {"static_graph", "gradient_as_bucket_view", "write_back"})
      reducer.erase(key);
    if (is("communicator", "c10d")) body_["communicator"] = {{"kind", "gloo"}};
    ask({"replica", "invariant", "float64"});
  }

  Draw& draw_;
  Json& body_;
};

}  // namespace

void vary_clean_case(Draw* draw, Json* body) { Variation(draw, body).draw(); }

}  // namespace lockstep
