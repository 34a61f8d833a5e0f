#include "sim/campaign/parts.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json numbers(Draw* draw, const Json& model, int64_t samples) {
  const int64_t features = model["in_features"], targets = model["out_features"];
  if (model["kind"] == "mlp" && draw->once_in(4))
    return {
        {"model", model},
        {"data",
         {{"kind", "classes"}, {"samples", samples}, {"features", features}, {"classes", targets}}},
        {"loss", {{"kind", "cross_entropy"}}}};
  Json data = {
      {"kind", "randn"}, {"samples", samples}, {"features", features}, {"targets", targets}};
  return {{"model", model}, {"data", data}, {"loss", {{"kind", "mse"}}}};
}

Json drawn_mlp(Draw* draw) {
  Json hidden = Json::array();
  for (int64_t layers = draw->below(4); layers > 0; --layers)
    hidden.push_back(draw->between(2, 14));
  return {{"kind", "mlp"},
          {"in_features", draw->between(2, 10)},
          {"hidden", hidden},
          {"out_features", draw->between(2, 6)},
          {"activation", draw->one_of<std::string>({"relu", "tanh", "tanh", "gelu", "softplus"})},
          {"bias", !draw->once_in(5)},
          {"register", draw->one_of<std::string>({"forwards", "forwards", "backwards"})}};
}

Json tokens(Draw* draw, int64_t samples) {
  const int64_t vocabulary = draw->between(5, 40), length = draw->between(3, 8);
  Json model = {{"kind", "embedding"},
                {"vocabulary", vocabulary},
                {"width", draw->between(2, 9)},
                {"sparse", false}};
  if (draw->once_in(2))
    model = {{"kind", "gpt"},     {"vocabulary", vocabulary},
             {"context", length}, {"layers", 1},
             {"heads", 2},        {"width", 8}};
  return {
      {"model", model},
      {"data",
       {{"kind", "tokens"}, {"samples", samples}, {"vocabulary", vocabulary}, {"length", length}}},
      {"loss", {{"kind", "cross_entropy"}}}};
}

}  // namespace

Json drawn_model(Draw* draw, int64_t samples) {
  const int64_t which = draw->below(10);
  if (which < 5) return numbers(draw, drawn_mlp(draw), samples);
  const int64_t in = draw->between(2, 9), out = draw->between(2, 5);
  const int64_t hidden = draw->between(3, 12);
  if (which < 7)
    return numbers(draw,
                   {{"kind", "linear"},
                    {"in_features", in},
                    {"out_features", out},
                    {"bias", !draw->once_in(3)}},
                   samples);
  if (which < 9) {
    Json model = {{"kind", "branches"},
                  {"in_features", in},
                  {"hidden", hidden},
                  {"out_features", out},
                  {"unused", "none"}};
    if (draw->once_in(2))
      model = {{"kind", "two_heads"},
               {"in_features", in},
               {"hidden", hidden},
               {"out_features", out},
               {"container", draw->one_of<std::string>({"tuple", "list", "dict", "nested"})}};
    return numbers(draw, model, samples);
  }
  return tokens(draw, samples);
}

Json drawn_optimizer(Draw* draw) {
  const std::vector<Json> kinds = {
      {{"kind", "sgd"}, {"lr", 0.1}},
      {{"kind", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}},
      {{"kind", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}, {"nesterov", true}},
      {{"kind", "sgd"}, {"lr", 0.05}, {"momentum", 0.5}, {"weight_decay", 0.01}},
      {{"kind", "adam"}, {"lr", 0.01}},
      {{"kind", "adam"}, {"lr", 0.01}, {"amsgrad", true}},
      {{"kind", "adamw"}, {"lr", 0.01}},
      {{"kind", "adagrad"}, {"lr", 0.05}},
      {{"kind", "rmsprop"}, {"lr", 0.005}, {"momentum", 0.5}},
      {{"kind", "rmsprop"}, {"lr", 0.005}, {"centered", true}}};
  return draw->one_of(kinds);
}

void draw_caps(Draw* draw, Json* reducer) {
  (*reducer)["bucket_cap_mb"] = draw->one_of<double>({0.0001, 0.0002, 0.0005, 0.001, 25});
  (*reducer)["first_bucket_mb"] = draw->one_of<double>({0.00005, 0.0002, 0.001, 1});
}

Json drawn_communicator(Draw* draw) {
  const std::vector<std::string> common = {"ring", "bcube", "halving_doubling", "ring_chunked"};
  const int64_t which = draw->below(16);
  if (which == 0) return {{"kind", "c10d"}};
  if (which == 1) return {{"kind", "gloo"}, {"algorithm", draw->one_of(common)}};
  const std::string kind = which == 2 ? "shm" : "local";
  const bool by_rank = draw->once_in(5);
  return {{"kind", kind}, {"algorithm", by_rank ? "rank_order" : draw->one_of(common)}};
}

}  // namespace lockstep
