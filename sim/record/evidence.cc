#include "sim/record/evidence.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "scenarios/base/error.h"
#include "scenarios/json/json_text.h"

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
  visit("not_finite", m.not_finite);
  visit("golden_not_finite", m.golden_not_finite);
  visit("gradients_total", m.gradients_total);
  visit("gradients_wrong", m.gradients_wrong);
  visit("elements_wrong", m.elements_wrong);
  visit("elements_total", m.elements_total);
  visit("buckets_wrong", m.buckets_wrong);
  visit("whole_buckets", m.whole_buckets);
  visit("one_ratio", m.one_ratio);
  visit("ratio", m.ratio);
  visit("own_contribution", m.own_contribution);
  visit("single_contributions", m.single_contributions);
  visit("own_undivided", m.own_undivided);
  visit("own_ratio", m.own_ratio);
  visit("step_before", m.step_before);
  visit("misplaced", m.misplaced);
  visit("own_misplaced", m.own_misplaced);
  visit("within_rounding", m.within_rounding);
  visit("own_norm", m.own_norm);
  visit("run_sketch", m.run_sketch);
  visit("own_sketch", m.own_sketch);
  visit("missing_rank", m.missing_rank);
  visit("local_known", m.local_known);
  visit("local_wrong", m.local_wrong);
  visit("local_of_rank", m.local_of_rank);
  visit("local_bits_flipped", m.local_bits_flipped);
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

constexpr ErrorKind kErrorKinds[] = {ErrorKind::timeout,    ErrorKind::peer_lost,
                                     ErrorKind::rejected,   ErrorKind::closed,
                                     ErrorKind::checkpoint, ErrorKind::exception};
constexpr Check kChecks[] = {Check::manifest,    Check::absent_gradients, Check::aliasing,
                             Check::checkpoint,  Check::samples,          Check::batch,
                             Check::accumulation};

template <class Items, class Fields>
Json array_of(const Items& items, Fields&& write) {
  Json array = Json::array();
  for (const auto& item : items) write(item, &array.emplace_back(Json::object()));
  return array;
}

// Calls `read` with every object of the array of this name.
template <class F>
void for_objects(const Json& document, const char* name, F&& read) {
  const auto found = document.find(name);
  if (found == document.end() || !found->is_array()) return;
  for (const Json& item : *found)
    if (item.is_object()) read(item);
}

struct Write {
  Json* to;
  void operator()(const char* name, double value) const { (*to)[name] = number_json(value); }
  void operator()(const char* name, ErrorKind value) const { (*to)[name] = to_word(value); }
  void operator()(const char* name, Check value) const { (*to)[name] = to_word(value); }
  void operator()(const char* name, Lane value) const { (*to)[name] = to_word(value); }
  void operator()(const char* name, std::optional<StateKind> value) const {
    (*to)[name] = value ? to_word(*value) : "";
  }
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
  // A word of a later version is an exception, as far as this one knows.
  void operator()(const char* name, ErrorKind& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_string() || *j == to_word(ErrorKind::none)) return;
    out = ErrorKind::exception;
    for (ErrorKind kind : kErrorKinds)
      if (*j == to_word(kind)) out = kind;
  }
  void operator()(const char* name, Lane& out) const {
    const Json* j = find(name);
    if (j != nullptr && j->is_string()) out = lane_from(j->get<std::string>()).value_or(out);
  }
  void operator()(const char* name, std::optional<StateKind>& out) const {
    const Json* j = find(name);
    if (j != nullptr && j->is_string()) out = state_kind_from(j->get<std::string>());
  }
  void operator()(const char* name, Check& out) const {
    const Json* j = find(name);
    for (Check check : kChecks)
      if (j != nullptr && *j == to_word(check)) out = check;
  }
  void operator()(const char* name, std::vector<int64_t>& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_array()) return;
    for (const Json& item : *j)
      if (item.is_number_integer()) out.push_back(item.get<int64_t>());
  }
  void operator()(const char* name, std::vector<double>& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_array()) return;
    for (const Json& item : *j)
      if (item.is_number()) out.push_back(item.get<double>());
  }
  void operator()(const char* name, std::vector<std::string>& out) const {
    const Json* j = find(name);
    if (j == nullptr || !j->is_array()) return;
    for (const Json& item : *j)
      if (item.is_string()) out.push_back(item.get<std::string>());
  }
};

template <class R, class Visit>
void fields_of_reason(R& reason, Visit&& visit) {
  visit("check", reason.check);
  visit("rank", reason.rank);
  visit("step", reason.step);
  visit("text", reason.text);
}

template <class E, class Visit>
void plain_fields_of(E& evidence, Visit&& visit) {
  visit("error_kind", evidence.error.kind);
  visit("error", evidence.error.text);
  visit("phase", evidence.error.phase);
  visit("error_rank", evidence.error.rank);
  visit("error_step", evidence.error.step);
  visit("peer", evidence.error.peer);
  visit("sequence", evidence.error.sequence);
  visit("bucket", evidence.error.bucket);
  visit("waited_ms", evidence.error.waited_ms);
  visit("deadline_ms", evidence.error.deadline_ms);
  visit("undeclared_draws", evidence.undeclared_draws);
  visit("random_layers", evidence.random_layers);
  visit("unrepeatable_forward", evidence.unrepeatable_forward);
  visit("final_hash", evidence.final_hash);
  visit("optimizer_bytes", evidence.optimizer_bytes);
  visit("reducer_data", evidence.reducer_data);
  visit("golden", evidence.golden);
}

}  // namespace

std::string to_json_text(const Evidence& evidence) {
  Json document = Json::object();
  plain_fields_of(evidence, Write{&document});
  document["check_reasons"] = array_of(evidence.check_reasons, [](const auto& reason, Json* item) {
    fields_of_reason(reason, Write{item});
  });
  document["mismatches"] = array_of(evidence.mismatches, [](const auto& mismatch, Json* item) {
    fields_of(mismatch, Write{item});
  });
  // A library's error text may hold any bytes.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Evidence> evidence_from_json_text(const std::string& text) {
  const Json document = json_or_discarded(text);
  if (!document.is_object()) return std::nullopt;
  Evidence evidence;
  plain_fields_of(evidence, Read{document});
  for_objects(document, "check_reasons", [&](const Json& item) {
    CheckReason reason{.check = {}};
    fields_of_reason(reason, Read{item});
    if (reason.check != Check{}) evidence.check_reasons.push_back(std::move(reason));
  });
  for_objects(document, "mismatches", [&](const Json& item) {
    MismatchEvidence mismatch;
    fields_of(mismatch, Read{item});
    if (mismatch.lane != Lane{}) evidence.mismatches.push_back(std::move(mismatch));
  });
  return evidence;
}

const char* to_word(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::none:
      return "";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::peer_lost:
      return "peer_lost";
    case ErrorKind::rejected:
      return "rejected";
    case ErrorKind::closed:
      return "closed";
    case ErrorKind::checkpoint:
      return "checkpoint";
    case ErrorKind::exception:
      return "exception";
  }
  LOCKSTEP_CHECK(false, "unknown ErrorKind");
}

std::string to_text(const CheckReason& reason) {
  return fmt::format("{}: {}", to_word(reason.check), reason.text);
}

std::string bits_text(uint64_t bits, int64_t element_bytes) {
  const int digits = static_cast<int>(element_bytes) * 2;
  return fmt::format("0x{:0{}x}", bits, digits);
}

}  // namespace lockstep
