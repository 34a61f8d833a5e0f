#include "sim/tools/campaign/cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

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

namespace {

constexpr int64_t kCollectiveMs = 1000, kConstructionMs = 1300, kStepMs = 1600;
constexpr int64_t kRendezvousMs = 2500, kRunMs = 30'000;
constexpr int64_t kCrashWithinMs = 1000;
constexpr int64_t kHangSlackMs = 500;

Json training(int64_t world_size, int64_t steps) {
  return {
      {"world_size", world_size},
      {"steps", steps},
      {"batch_size", 4 * world_size},
      {"model",
       {{"kind", "mlp"},
        {"in_features", 8},
        {"hidden", {12, 10}},
        {"out_features", 4},
        {"activation", "tanh"}}},
      {"data", {{"kind", "randn"}, {"samples", 16 * world_size}, {"features", 8}, {"targets", 4}}},
      {"loss", {{"kind", "mse"}}},
      {"optimizer", {{"kind", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}}},
      {"reducer", {{"kind", "bucketed"}, {"bucket_cap_mb", 0.0005}, {"first_bucket_mb", 0.0002}}},
      {"timeouts",
       {{"collective_ms", kCollectiveMs},
        {"construction_ms", kConstructionMs},
        {"step_ms", kStepMs},
        {"rendezvous_ms", kRendezvousMs},
        {"run_ms", kRunMs}}},
      {"lanes", {"replica", "replay"}}};
}

Json scenario(const std::string& name, const Json& fault, const Json& body) {
  Json document = {{"name", name}, {"what", "Drawn: " + fault.dump()}};
  document.update(body);
  document["faults"] = Json::array({fault});
  return document;
}

// What the ranks that wait for this one take to give it up.
int64_t hang_within_ms(const Json& fault) {
  const std::string phase = fault.value("phase", "");
  if (phase == "rendezvous") return kRendezvousMs + kHangSlackMs;
  if (phase == "construction") return kConstructionMs + kHangSlackMs;
  // After the last collective nobody waits but the launcher.
  if (phase == "optimizer" || phase == "wait") return kStepMs + kHangSlackMs;
  return kCollectiveMs + kHangSlackMs;
}

std::string failure_kind(const std::string& kind) {
  if (kind == "exit") return "exit";
  if (kind == "exception" || kind == "out_of_memory") return "exception";
  return kind == "stop" || kind == "deadlock" ? "hang" : "crash";
}

Json failed(const Json& fault) {
  const std::string kind = failure_kind(fault["kind"]);
  return {{"outcome", "failed"},
          {"primary_rank", fault["rank"]},
          {"kind", kind},
          {"within_ms", kind == "hang" ? hang_within_ms(fault) : kCrashWithinMs}};
}

Json passed() { return {{"verdict", "pass"}, {"outcome", "completed"}}; }

Json rejected(const Json& fault, const std::string& phase) {
  return {{"outcome", "failed"},
          {"primary_rank", fault["rank"]},
          {"kind", "rejected"},
          {"named", {{"phase", phase}}}};
}

void put_place(const std::string& place, int64_t steps, Json* fault) {
  if (place == "rendezvous" || place == "construction") {
    (*fault)["phase"] = place;
  } else if (place == "mid_bucket") {
    (*fault)["step"] = std::min<int64_t>(2, steps);
    (*fault)["bucket"] = 1;
  } else {
    (*fault)["step"] = place == "first_step" ? 1 : steps;
    (*fault)["phase"] = "backward";
  }
}

const std::vector<std::string>& fatal_kinds() {
  static const std::vector<std::string> kinds = {"kill",  "terminate",    "interrupt", "segfault",
                                                 "abort", "exception",    "exit",      "deadlock",
                                                 "stop",  "out_of_memory"};
  return kinds;
}

Json fatal_case(Draw* draw, int64_t world_size, int64_t steps, Json* expect) {
  static const std::vector<std::string> kPlaces = {"rendezvous", "construction", "first_step",
                                                   "mid_bucket", "last_step"};
  static const std::vector<std::string> kPhases = {"load", "forward", "backward", "wait",
                                                   "optimizer"};
  Json fault = {{"kind", draw->one_of(fatal_kinds())}, {"rank", draw->below(world_size)}};
  put_place(draw->one_of(kPlaces), steps, &fault);
  if (fault.contains("step") && fault.contains("phase")) fault["phase"] = draw->one_of(kPhases);
  *expect = failed(fault);
  return fault;
}

// Late, but never by as much as a time-out.
Json harmless_case(Draw* draw, int64_t world_size, Json* expect) {
  const std::vector<Json> kinds = {
      {{"kind", "stop"}, {"duration_ms", draw->between(20, 300)}},
      {{"kind", "stall"}, {"phase", "forward"}, {"duration_ms", draw->between(5, 60)}},
      {{"kind", "stall"}, {"duration_ms", 10}, {"distribution", "lognormal"}, {"spread", 0.5}},
      {{"kind", "periodic_pause"}, {"duration_ms", draw->between(10, 80)}, {"every_steps", 2}},
      {{"kind", "slow"}, {"factor", draw->between(2, 4)}},
      {{"kind", "slow_loader"}, {"duration_ms", draw->between(1, 30)}},
      {{"kind", "slow_layer"}, {"layer", "fc2"}, {"duration_ms", draw->between(1, 30)}},
      {{"kind", "late_start"}, {"duration_ms", draw->between(10, 500)}},
      {{"kind", "slow_constructor"}, {"duration_ms", draw->between(10, 300)}},
      {{"kind", "latency"}, {"duration_ms", draw->between(1, 10)}},
      {{"kind", "jitter"}, {"duration_ms", 3}, {"distribution", "uniform"}, {"spread", 1}},
      {{"kind", "slow_link"}, {"bandwidth_mb_per_s", 0.2}},
      {{"kind", "slow_store"}, {"duration_ms", draw->between(1, 10)}}};
  Json fault = draw->one_of(kinds);
  fault["rank"] = draw->below(world_size);
  *expect = passed();
  return fault;
}

Json meaning_case(Draw* draw, int64_t world_size, int64_t steps, Json* expect) {
  // Of two ranks that differ the first is taken to be right.
  const int64_t rank = draw->between(1, world_size - 1);
  static const std::vector<std::string> kKinds = {
      "duplicate_rank", "wrong_world_size", "mismatched_dtype", "mismatched_bucket_order", "nan",
      "fewer_batches"};
  Json fault = {{"kind", draw->one_of(kKinds)}, {"rank", rank}};
  const std::string kind = fault["kind"];
  if (kind == "duplicate_rank") fault["as_rank"] = rank - 1;
  if (kind == "wrong_world_size") fault["world_size"] = world_size + draw->between(1, 3);
  const bool at_rendezvous = kind == "duplicate_rank" || kind == "wrong_world_size";
  *expect = rejected(fault, at_rendezvous ? "rendezvous" : "construction");
  if (kind == "nan") {
    fault["step"] = draw->between(1, steps);
    *expect = {{"verdict", "fail"}, {"cause", "overflow"}, {"step", fault["step"]}};
  }
  if (kind == "fewer_batches")
    *expect = {{"outcome", "failed"}, {"primary_rank", rank}, {"kind", "exit"}};
  return fault;
}

// A step takes 24 ms: lateness of a fifth is far more than what two busy cores add.
constexpr int64_t kForwardMs = 8, kBackwardMs = 16;

// The fault that makes a straggler of this class; null: nobody.
Json lateness(Draw* draw, const std::string& late_class, int64_t rank) {
  const double factor = 1.2 + 0.1 * static_cast<double>(draw->below(14));
  if (late_class == "compute") return {{"kind", "slow"}, {"rank", rank}, {"factor", factor}};
  if (late_class == "wandering")
    return {{"kind", "wandering"}, {"factor", factor + 0.3}, {"every_steps", draw->between(2, 4)}};
  if (late_class == "periodic")
    return {{"kind", "periodic_pause"},
            {"rank", rank},
            {"phase", "forward"},
            {"every_steps", draw->between(3, 5)},
            {"duration_ms", draw->between(20, 60)}};
  if (late_class == "stopped")
    return {{"kind", "stop"},
            {"rank", rank},
            {"step", draw->between(4, 20)},
            {"duration_ms", draw->between(150, 400)}};
  return {{"kind", "latency"}, {"rank", rank}, {"duration_ms", draw->between(5, 12)}};  // link
}

Json enumerated_case(const std::string& kind, int64_t world_size, int64_t rank,
                     const std::string& place) {
  constexpr int64_t kSteps = 3;
  Json fault = {{"kind", kind}, {"rank", rank}};
  put_place(place, kSteps, &fault);
  Json document = scenario(fmt::format("{}-{}-of-{}-{}", kind, rank, world_size, place), fault,
                           training(world_size, kSteps));
  document["expect"] = failed(fault);
  return document;
}

}  // namespace

Json drawn_case(uint64_t seed) {
  Draw draw(seed);
  const int64_t world_size = draw.between(2, 5), steps = draw.between(2, 5);
  Json body = training(world_size, steps);
  body["seed"] = seed % (uint64_t{1} << 53);
  body["reducer"]["kind"] = draw.one_of<std::string>({"bucketed", "c10d"});
  body["reducer"]["gradient_as_bucket_view"] = draw.below(2) == 1;
  body["communicator"]["kind"] = draw.one_of<std::string>({"gloo", "gloo", "c10d"});
  if (draw.below(2) == 1) body["optimizer"] = {{"kind", "adam"}, {"lr", 0.01}};
  Json expect;
  const int64_t which = draw.below(10);
  const Json fault = which < 5   ? fatal_case(&draw, world_size, steps, &expect)
                     : which < 8 ? harmless_case(&draw, world_size, &expect)
                                 : meaning_case(&draw, world_size, steps, &expect);
  Json document = scenario(fmt::format("seed-{}", seed), fault, body);
  document["expect"] = expect;
  return document;
}

Json straggler_case(uint64_t seed) {
  Draw draw(seed);
  const int64_t world_size = draw.between(3, 4), rank = draw.below(world_size);
  const auto late_class = draw.one_of<std::string>(
      {"none", "compute", "compute", "link", "periodic", "stopped", "wandering"});
  Json body = training(world_size, 24);
  body["seed"] = seed % (uint64_t{1} << 53);
  body["timeouts"] = Json::object();  // the defaults: nobody fails
  body["lanes"] = {"replica"};
  body["compute"] = {
      {"kind", "emulated"}, {"forward_ms", kForwardMs}, {"backward_ms", kBackwardMs}};
  body["reducer"]["kind"] = draw.one_of<std::string>({"bucketed", "c10d"});
  const bool late = late_class != "none";
  Json document = scenario(fmt::format("straggler-{}", seed),
                           late ? lateness(&draw, late_class, rank) : Json{{"kind", "none"}}, body);
  if (!late) document["faults"] = Json::array();
  Json straggler = {{"class", late_class}};
  if (late && late_class != "wandering") straggler["rank"] = rank;
  document["expect"] = {{"outcome", "completed"}, {"verdict", "pass"}, {"straggler", straggler}};
  return document;
}

std::vector<Json> enumerated_cases() {
  std::vector<Json> cases;
  for (const std::string& kind : fatal_kinds())
    for (int64_t world_size = 2; world_size <= 4; ++world_size)
      for (int64_t rank = 0; rank < world_size; ++rank)
        for (const char* place :
             {"rendezvous", "construction", "first_step", "mid_bucket", "last_step"})
          cases.push_back(enumerated_case(kind, world_size, rank, place));
  return cases;
}

std::vector<Json> some_enumerated_cases(uint64_t seed, int64_t count) {
  std::vector<Json> cases = enumerated_cases();
  Draw draw(seed);
  while (static_cast<int64_t>(cases.size()) > count)
    cases.erase(cases.begin() + draw.below(static_cast<int64_t>(cases.size())));
  return cases;
}

}  // namespace lockstep
