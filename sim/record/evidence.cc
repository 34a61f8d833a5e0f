#include "sim/record/evidence.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "scenarios/base/json_values.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// One list of fields for both directions: `visit(name, field)` for each.
template <class M, class Visit>
void fields_of(M& m, Visit&& visit) {
  visit("lane", m.lane);
  visit("step", m.step);
  visit("state_kind", m.state_kind);
  visit("tensor", m.tensor);
  visit("bucket", m.bucket);
  visit("element", m.element);
  visit("run_value", m.run_value);
  visit("golden_value", m.golden_value);
  visit("run_bits", m.run_bits);
  visit("golden_bits", m.golden_bits);
  visit("ulp", m.ulp);
  visit("max_ulp", m.max_ulp);
  visit("differing", m.differing);
  visit("numel", m.numel);
  visit("ranks", m.ranks);
  visit("gradients_total", m.gradients_total);
  visit("gradients_wrong", m.gradients_wrong);
  visit("buckets_wrong", m.buckets_wrong);
  visit("one_ratio", m.one_ratio);
  visit("ratio", m.ratio);
  visit("own_contribution", m.own_contribution);
  visit("single_contributions", m.single_contributions);
  visit("own_undivided", m.own_undivided);
  visit("missing_rank", m.missing_rank);
  visit("local_known", m.local_known);
  visit("local_wrong", m.local_wrong);
  visit("local_of_rank", m.local_of_rank);
  visit("local_ratio", m.local_ratio);
  visit("present_in", m.present_in);
  visit("own_added", m.own_added);
  visit("significant_bits", m.significant_bits);
  visit("bits_flipped", m.bits_flipped);
  visit("clipping", m.clipping);
  visit("skipped_run", m.skipped_run);
  visit("skipped_golden", m.skipped_golden);
  visit("update_known", m.update_known);
  visit("update_ratio", m.update_ratio);
  visit("weights_kept", m.weights_kept);
  visit("weights_moved", m.weights_moved);
}

struct Write {
  Json* to;
  void operator()(const char* name, double value) const { (*to)[name] = number_json(value); }
  template <class T>
  void operator()(const char* name, const T& value) const {
    (*to)[name] = value;
  }
};

// A field that is absent or of another type keeps its default.
struct Read {
  const Json& from;
  const Json* find(const char* name) const {
    const auto it = from.find(name);
    return it == from.end() ? nullptr : &*it;
  }
  void operator()(const char* name, std::string& out) const {
    if (const Json* j = find(name); j && j->is_string()) out = j->get<std::string>();
  }
  void operator()(const char* name, bool& out) const {
    if (const Json* j = find(name); j && j->is_boolean()) out = j->get<bool>();
  }
  void operator()(const char* name, int64_t& out) const {
    if (const Json* j = find(name); j && j->is_number_integer()) out = j->get<int64_t>();
  }
  void operator()(const char* name, uint64_t& out) const {
    if (const Json* j = find(name); j && j->is_number_integer()) out = j->get<uint64_t>();
  }
  void operator()(const char* name, double& out) const {
    const Json* j = find(name);
    if (j == nullptr) return;
    if (j->is_number()) out = j->get<double>();
    if (*j == "NaN") out = std::numeric_limits<double>::quiet_NaN();
    if (*j == "Infinity") out = std::numeric_limits<double>::infinity();
    if (*j == "-Infinity") out = -std::numeric_limits<double>::infinity();
  }
  void operator()(const char* name, std::vector<int64_t>& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_array()) return;
    for (const Json& item : *j)
      if (item.is_number_integer()) out.push_back(item.get<int64_t>());
  }
  void operator()(const char* name, std::vector<std::string>& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_array()) return;
    for (const Json& item : *j)
      if (item.is_string()) out.push_back(item.get<std::string>());
  }
};

template <class E, class Visit>
void plain_fields_of(E& evidence, Visit&& visit) {
  visit("error_kind", evidence.error_kind);
  visit("error", evidence.error);
  visit("phase", evidence.phase);
  visit("check_reasons", evidence.check_reasons);
  visit("final_hash", evidence.final_hash);
  visit("optimizer_bytes", evidence.optimizer_bytes);
  visit("reducer_data", evidence.reducer_data);
  visit("golden", evidence.golden);
}

}  // namespace

std::string to_json_text(const Evidence& evidence) {
  Json document = Json::object();
  plain_fields_of(evidence, Write{&document});
  Json mismatches = Json::array();
  for (const MismatchEvidence& mismatch : evidence.mismatches) {
    Json item = Json::object();
    fields_of(mismatch, Write{&item});
    mismatches.push_back(std::move(item));
  }
  document["mismatches"] = std::move(mismatches);
  // A library's error text may hold any bytes.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Evidence> evidence_from_json_text(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  Evidence evidence;
  plain_fields_of(evidence, Read{document});
  const auto mismatches = document.find("mismatches");
  if (mismatches == document.end() || !mismatches->is_array()) return evidence;
  for (const Json& item : *mismatches) {
    if (!item.is_object()) continue;
    fields_of(evidence.mismatches.emplace_back(), Read{item});
  }
  return evidence;
}

std::string bits_text(uint64_t bits, int64_t element_bytes) {
  const int digits = static_cast<int>(element_bytes) * 2;
  return fmt::format("0x{:0{}x}", bits, digits);
}

}  // namespace lockstep
