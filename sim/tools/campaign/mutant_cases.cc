#include "sim/tools/campaign/cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// What a defect may be addressed to.
struct Subject {
  int64_t world_size = 2, steps = 2;
  std::vector<TensorSpec> parameters;
  std::string reducer;
  double first_bucket_bytes = 0;

  // Buckets that there are for sure in this step.
  int64_t buckets(int64_t step) const {
    if (reducer == "per_parameter" || reducer == "manual")
      return static_cast<int64_t>(parameters.size());
    if (reducer == "flat" || (step == 1 && reducer != "sharded")) return 1;
    int64_t total = 0, largest = 0;
    for (const TensorSpec& parameter : parameters) {
      total += parameter.bytes();
      largest = std::max(largest, parameter.bytes());
    }
    // Whichever tensor is ready last: the first bucket is full without it.
    return static_cast<double>(total - largest) >= first_bucket_bytes ? 2 : 1;
  }
};

Json drawn_reducer(Draw* draw, const std::string& kind) {
  std::string reducer =
      draw->one_of<std::string>({"bucketed", "bucketed", "bucketed", "c10d", "c10d", "c10d", "flat",
                                 "per_parameter", "manual"});
  // One sum must come after another.
  if (kind == "swap_launches")
    return {{"kind", draw->one_of<std::string>({"bucketed", "per_parameter", "manual"})},
            {"bucket_cap_mb", 0.0001},
            {"first_bucket_mb", 0.00005}};
  // Sums in another order: ranks that each have a part of a sum cannot.
  if (draw->once_in(14) && kind != "short_slice" && kind != "reorder_sum") reducer = "sharded";
  Json json = {{"kind", reducer}};
  draw_caps(draw, &json);
  if (reducer == "bucketed" || reducer == "c10d")
    json["gradient_as_bucket_view"] = draw->once_in(2);
  if (reducer == "bucketed" && draw->once_in(4)) json["write_back"] = "per_bucket";
  return json;
}

Json mutant_training(Draw* draw, const std::string& kind) {
  const int64_t world_size = draw->one_of<int64_t>({2, 3, 3, 4, 5, 5, 6, 7, 7});
  const int64_t parts = draw->once_in(4) ? 2 : 1;
  const int64_t batch = world_size * parts * draw->between(1, 3);
  Json body = {{"world_size", world_size}, {"steps", draw->between(3, 5)}, {"batch_size", batch}};
  body.update(drawn_model(draw, batch * draw->between(2, 4)));
  body["optimizer"] = drawn_optimizer(draw);
  body["reducer"] = drawn_reducer(draw, kind);
  body["communicator"] = drawn_communicator(draw);
  body["accumulate_steps"] = parts;
  body["zero_grad"] = draw->one_of<std::string>({"zero", "none"});
  if (draw->once_in(6)) body["dtype"] = "float64";
  if (draw->once_in(4)) body["split"] = {{"kind", "distributed"}};
  body["timeouts"] = {{"collective_ms", 10'000}};
  body["lanes"] = {"replica", "replay"};
  // Adam and its like make a step of the rounding of a gradient that is zero, attention's key bias:
  // lane float64 would fail first, and elsewhere.
  if (draw->once_in(4) && body["model"]["kind"] != "gpt") body["lanes"].push_back("float64");
  return body;
}

Subject subject_of(const Json& body) {
  const auto manifest = manifest_of(part_from(body["model"]), body.value("dtype", "float32"));
  LOCKSTEP_CHECK(manifest != nullptr, "a shipped model");
  const Json& reducer = body["reducer"];
  return {.world_size = body["world_size"].get<int64_t>(),
          .steps = body["steps"].get<int64_t>(),
          .parameters = manifest->parameters,
          .reducer = reducer["kind"].get<std::string>(),
          .first_bucket_bytes = reducer["first_bucket_mb"].get<double>() * (1 << 20)};
}

bool ends_with(const std::string& kind, const char* place) { return kind.ends_with(place); }

bool has_element(const std::string& kind) {
  return kind.starts_with("flip_") || kind.starts_with("shift_") || kind == "short_slice";
}
bool is_of_buckets(const std::string& kind) {
  return ends_with(kind, "_contribution") || kind == "flip_bit" || kind == "drop_bucket" ||
         kind == "short_slice" || kind == "reorder_sum" || kind == "swap_launches";
}

// On every rank alike: a collective that one rank leaves out would be another one's.
bool is_of_all_ranks(const std::string& kind) {
  return kind == "drop_bucket" || kind == "reorder_sum" || kind == "skip_broadcast" ||
         kind == "forget_sync";
}
bool is_of_construction(const std::string& kind) {
  return kind == "skip_broadcast" || kind == "drop_broadcast" || kind == "stale_momentum";
}
bool needs_state(const std::string& kind) {
  return kind == "stale_momentum" || kind == "lose_momentum";
}

void put_element(Draw* draw, const std::string& kind, int64_t elements, bool wide, Json* mutant) {
  if (has_element(kind)) (*mutant)["element"] = draw->below(elements);
  if (kind.starts_with("flip_")) (*mutant)["bit"] = draw->below(wide ? 64 : 32);
}

// Reducer manual sums tensor after tensor, and has no buckets to name.
void put_bucket(const Subject& subject, int64_t bucket, Json* mutant, Json* expect) {
  (*mutant)["bucket"] = bucket;
  if (subject.reducer == "manual")
    (*expect)["tensor"] = subject.parameters[static_cast<size_t>(bucket)].name;
  else
    (*expect)["bucket"] = bucket;
}

// Where and when, and what the first divergence must be.
void put_mutant_place(Draw* draw, const Subject& subject, bool wide, Json* mutant, Json* expect) {
  const std::string kind = (*mutant)["kind"];
  if (!is_of_all_ranks(kind)) (*mutant)["rank"] = draw->below(subject.world_size);
  if (kind == "drop_broadcast") (*mutant)["rank"] = draw->between(1, subject.world_size - 1);
  if (kind == "swap_launches" && draw->once_in(2)) mutant->erase("rank");
  if (kind == "swap_shards")
    (*mutant)["other"] =
        ((*mutant)["rank"].get<int64_t>() + draw->between(1, subject.world_size - 1)) %
        subject.world_size;
  if (is_of_construction(kind)) {
    (*expect)["step"] = 0;
    return;
  }
  // Buckets are laid out anew after step 1: what is stale is of the same bucket from step 3 on.
  const int64_t first = kind == "stale_contribution"                            ? 3
                        : kind.starts_with("stale_") || kind == "swap_launches" ? 2
                                                                                : 1;
  const int64_t step = kind == "duplicate_shard" ? 1 : draw->between(first, subject.steps);
  if (kind != "duplicate_shard") (*mutant)["step"] = step;
  (*expect)["step"] = step;
  if (ends_with(kind, "_gradient")) {
    const TensorSpec& tensor = draw->one_of(subject.parameters);
    (*mutant)["tensor"] = (*expect)["tensor"] = tensor.name;
    put_element(draw, kind, tensor.numel(), wide, mutant);
  }
  if (!is_of_buckets(kind)) return;
  if (kind == "swap_launches") {
    (*mutant)["bucket"] = 0;
    return;
  }
  // Without a bucket: all that the rank adds.
  const bool all = ends_with(kind, "_contribution") && draw->once_in(3);
  if (!all) put_bucket(subject, draw->below(subject.buckets(step)), mutant, expect);
  put_element(draw, kind, 24, wide, mutant);
}

// What the defect needs of the training.
void suit(Draw* draw, const std::string& kind, Json* body) {
  const int64_t steps = (*body)["steps"];
  if (needs_state(kind) && (*body)["optimizer"]["kind"] == "sgd")
    (*body)["optimizer"]["momentum"] = 0.9;
  if (kind == "lose_momentum")
    (*body)["checkpoint"] = {{"kind", "save_and_resume"},
                             {"after_step", draw->between(1, steps - 1)}};
  if (kind == "clip_before_sum")
    (*body)["clipping"] = {{"kind", "value"},
                           {"max_value", draw->one_of<double>({0.05, 0.01, 0.002})}};
}

}  // namespace

const std::vector<std::string>& drawn_mutant_kinds() {
  static const std::vector<std::string> kinds = {
      "flip_bit",           "flip_gradient",      "drop_gradient",       "double_gradient",
      "swap_gradient",      "shift_gradient",     "stale_gradient",      "cast_gradient",
      "flip_contribution",  "drop_contribution",  "double_contribution", "swap_contribution",
      "shift_contribution", "stale_contribution", "cast_contribution",   "drop_bucket",
      "short_slice",        "duplicate_shard",    "swap_shards",         "stale_shard",
      "shift_shard",        "wrong_divisor",      "reorder_sum",         "skip_broadcast",
      "drop_broadcast",     "forget_sync",        "clip_before_sum",     "stale_momentum",
      "lose_momentum",      "wrong_lr",           "swap_launches"};
  return kinds;
}

Json mutant_case(uint64_t seed) {
  Draw draw(seed);
  const std::string kind = draw.one_of(drawn_mutant_kinds());
  Json body = mutant_training(&draw, kind);
  suit(&draw, kind, &body);
  Json mutant = {{"kind", kind}}, expect = {{"verdict", "fail"}};
  if (kind == "lose_momentum") {
    if (draw.once_in(2)) mutant["rank"] = draw.below(body["world_size"].get<int64_t>());
    expect["step"] = body["checkpoint"]["after_step"].get<int64_t>() + 1;
  } else {
    put_mutant_place(&draw, subject_of(body), body.contains("dtype"), &mutant, &expect);
  }
  // Ranks that call other sums are told so there at once.
  if (kind == "swap_launches" && mutant.contains("rank"))
    body["communicator"] = {{"kind", "local"}};
  Json document = {{"name", fmt::format("mutant-{}", seed)}, {"what", "Drawn: " + mutant.dump()}};
  document["seed"] = seed % (uint64_t{1} << 53);
  document.update(body);
  document["mutants"] = Json::array({mutant});
  document["expect"] = expect;
  return document;
}

Json clean_twin(Json document) {
  document["what"] = "The same without the defect";
  document.erase("mutants");
  document["expect"] = {{"verdict", "pass"}};
  return document;
}

}  // namespace lockstep
