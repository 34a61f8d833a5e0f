#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "golden/compare.h"
#include "golden/state.h"
#include "golden/stored.h"
#include "scenarios/base/hash.h"
#include "scenarios/scenario.h"
#include "sim/worker/libraries.h"
#include "sim/worker/observer.h"

namespace lockstep {

// What `runs[].golden` says, as JSON text: do run and one-device golden run print the same numbers
// as the stored golden, at its decimals; how many weights of the run differ from one device in
// their last bits; are the fingerprints the same. Empty if the scenario names no stored golden.
std::string compare_with_stored(const Scenario& scenario, const StateLayout& layout,
                                const std::byte* run, const std::byte* one_device);

namespace {

using Json = nlohmann::ordered_json;

// A path need not be UTF-8; JSON must.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string printed(double value, int64_t decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  return text.find_first_not_of("-0.") == std::string::npos ? text.substr(text[0] == '-') : text;
}

// The float32 values of parameter `name` in a state; none if there is no such parameter.
std::vector<float> stored_weights_of(const StateLayout& layout, const std::string& name,
                                     const std::byte* state) {
  std::vector<float> values;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::parameter || entry.name != name || entry.dtype != "float32")
      continue;
    values.resize(static_cast<size_t>(entry.numel));
    std::memcpy(values.data(), state + entry.offset, static_cast<size_t>(entry.bytes));
  }
  return values;
}

struct StoredAgreement {
  int64_t at_decimals = 0;
  int64_t in_bits = 0;
  int64_t total = 0;
};

StoredAgreement agreement(const StoredGolden& golden, const StateLayout& layout,
                          const std::byte* state) {
  StoredAgreement agreement;
  for (const StoredTensor& tensor : golden.parameters) {
    const std::vector<float> values = stored_weights_of(layout, tensor.name, state);
    agreement.total += static_cast<int64_t>(tensor.bits.size());
    if (values.size() != tensor.bits.size()) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto stored = std::bit_cast<float>(tensor.bits[i]);
      agreement.in_bits += std::bit_cast<uint32_t>(values[i]) == tensor.bits[i];
      agreement.at_decimals +=
          printed(values[i], golden.decimals) == printed(stored, golden.decimals);
    }
  }
  return agreement;
}

Json published_json(const PublishedValues& published, int64_t decimals, const StateLayout& layout,
                    const std::byte* state) {
  const std::vector<float> values = stored_weights_of(layout, published.tensor, state);
  int64_t equal = 0;
  for (size_t i = 0; i < std::min(values.size(), published.values.size()); ++i)
    equal += printed(values[i], decimals) == printed(published.values[i], decimals);
  return {{"of", published.of},
          {"tensor", published.tensor},
          {"equal", equal},
          {"total", published.values.size()}};
}

// How many elements of each weight differ in any bit from one device in the scenario's dtype.
Json differing_json(const StateLayout& layout, const std::byte* run, const std::byte* one_device) {
  Json tensors = Json::array();
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const StateEntry& entry = layout.entries[i];
    if (entry.kind != StateKind::parameter) continue;
    const auto difference = bit_difference(layout, static_cast<int64_t>(i), run, one_device);
    tensors.push_back({{"name", entry.name},
                       {"differing", difference ? difference->differing : 0},
                       {"total", entry.numel}});
  }
  return tensors;
}

void decide(const StoredGolden& golden, const Scenario& scenario, const StoredAgreement& run,
            const StoredAgreement& one_device, Json* json) {
  const bool same_settings = golden_settings(scenario) == golden.settings;
  const bool same_fingerprint = fingerprint() == golden.fingerprint;
  bool equal =
      run.total > 0 && run.at_decimals == run.total && one_device.at_decimals == one_device.total;
  for (const Json& published : (*json)["published"])
    equal = equal && published["equal"] == published["total"];
  if (same_fingerprint) equal = equal && one_device.in_bits == one_device.total;
  (*json)["verdict"] = !same_settings ? "not_applicable" : equal ? "pass" : "fail";
  if (!same_settings) (*json)["reason"] = "it was made with other settings than this run's";
  (*json)["bits_count"] = same_fingerprint;
  if (!same_fingerprint) (*json)["fingerprint"] = golden.fingerprint;
}

}  // namespace

std::string compare_with_stored(const Scenario& scenario, const StateLayout& layout,
                                const std::byte* run, const std::byte* one_device) {
  if (!scenario.golden) return "";
  Json json = {{"path", *scenario.golden}};
  const auto loaded = load_stored_golden(*scenario.golden);
  if (!loaded) {
    json["verdict"] = "not_applicable";
    json["reason"] = to_text(loaded.errors().front());
    return text_of(json);
  }
  const StoredGolden& golden = loaded.value();
  const StoredAgreement by_run = agreement(golden, layout, run);
  const StoredAgreement by_device = agreement(golden, layout, one_device);
  json["decimals"] = golden.decimals;
  json["total"] = by_run.total;
  json["run_equal"] = by_run.at_decimals;
  json["one_device_equal"] = by_device.at_decimals;
  json["one_device_bits_equal"] = by_device.in_bits;
  json["published"] = Json::array();
  for (const PublishedValues& published : golden.published)
    json["published"].push_back(published_json(published, golden.decimals, layout,
                                               published.of == "run" ? run : one_device));
  json["differing_from_one_device"] = differing_json(layout, run, one_device);
  decide(golden, scenario, by_run, by_device, &json);
  return text_of(json);
}

// No lane: a correct run differs from one device in its last bits.
void Observer::compare_with_one_device(int64_t step, const std::byte* golden) {
  const Scenario& scenario = context_.plan.scenario;
  const bool last = step == scenario.steps;
  if (last && scenario.golden) last_one_device_.assign(golden, golden + layout_.bytes);
  if (!scenario.common_checks || context_.rank != 0 || step == 0) return;
  Recorder& recorder = context_.recorder;
  double loss = 0;
  std::memcpy(&loss, golden + layout_.bytes, sizeof loss);
  recorder.append(EventKind::golden_loss, -1, std::bit_cast<uint64_t>(loss));
  const double ratio = norm_of_kind(layout_, StateKind::gradient, state_) /
                       norm_of_kind(layout_, StateKind::gradient, golden);
  recorder.append(EventKind::norm_ratio, -1, std::bit_cast<uint64_t>(ratio));
  if (last)
    recorder.append(EventKind::close, -1,
                    all_close(layout_, StateKind::parameter, state_, golden) ? 1 : 0);
}

void Observer::compare_with_stored_golden() {
  if (last_one_device_.empty()) return;
  const auto count =
      count_differing(layout_, StateKind::parameter, state_, last_one_device_.data());
  context_.recorder.append(
      EventKind::differing, static_cast<int32_t>(Lane::one_device),
      (static_cast<uint64_t>(count.differing) << 32) | static_cast<uint64_t>(count.total));
  evidence_->golden =
      compare_with_stored(context_.plan.scenario, layout_, state_, last_one_device_.data());
}

void Observer::record_result() {
  Hash128 hash;
  for (const NamedTensors* group : {&training_.parameters, &training_.buffers})
    for (const NamedTensor& named : *group) {
      const at::Tensor tensor = named.tensor.detach().cpu().contiguous();
      hash.update(named.name);
      hash.update(c10::toString(tensor.scalar_type()));
      for (int64_t size : tensor.sizes()) hash.update(&size, sizeof size);
      hash.update(tensor.data_ptr(), static_cast<size_t>(tensor.nbytes()));
    }
  const auto digest = hash.digest();
  context_.recorder.append(EventKind::final_hash_low, -1, digest[0]);
  context_.recorder.append(EventKind::final_hash_high, -1, digest[1]);
  evidence_->final_hash = hex(digest);
  compare_with_stored_golden();
}

}  // namespace lockstep
