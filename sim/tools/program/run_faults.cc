#include "sim/tools/program/run_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

#include "scenarios/base/text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/scenario.h"
#include "scenarios/scenario_schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Problems = std::vector<SchemaProblem>;

constexpr int64_t kMostSteps = 10'000'000;
constexpr int64_t kMostMs = 604'800'000;

constexpr const char* kHoldsRankBack =
    "in a program nothing stands between a rank and its connections, so that holding a collective "
    "back would hold the rank back: that is stall with collective=NAME";
constexpr const char* kJudgesNoNumbers =
    "it changes numbers, and run judges none: plant it in the script and ask lockstep verify";

struct ProgramKind {
  FaultKind kind;
  const char* refused = nullptr;  // why; null: the agent acts it out
};

constexpr ProgramKind kKinds[] = {
    {FaultKind::slow},
    {FaultKind::imbalance},
    {FaultKind::wandering},
    {FaultKind::stall},
    {FaultKind::periodic_pause},
    {FaultKind::slow_loader},
    {FaultKind::stop},
    {FaultKind::kill},
    {FaultKind::terminate},
    {FaultKind::interrupt},
    {FaultKind::segfault},
    {FaultKind::abort},
    {FaultKind::exception},
    {FaultKind::deadlock},
    {FaultKind::exit},
    {FaultKind::late_start},
    {FaultKind::slow_constructor},
    {FaultKind::mismatched_bucket_cap},
    {FaultKind::skip_backward},
    {FaultKind::fewer_batches},
    {FaultKind::slow_link, kHoldsRankBack},
    {FaultKind::latency, kHoldsRankBack},
    {FaultKind::jitter, kHoldsRankBack},
    {FaultKind::nan, kJudgesNoNumbers},
    {FaultKind::mismatched_seed, kJudgesNoNumbers},
    {FaultKind::unused_parameter, kJudgesNoNumbers},
};

const ProgramKind* known(FaultKind kind) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const ProgramKind& row) { return row.kind == kind; });
  return found == std::end(kKinds) ? nullptr : found;
}

InputError refused(const std::string& text, const std::string& what,
                   const std::string& allowed = "") {
  return option_error(fmt::format("--fault \"{}\": {}", shortened(text), what), allowed);
}

std::string known_kinds() {
  std::vector<const char*> words;
  for (const FaultKind kind : program_fault_kinds()) words.push_back(to_word(kind));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Numbers where they are some, else text: what the schema then looks at.
Json value_of(const std::string& text) {
  if (const auto integer = number_in<int64_t>(text)) return *integer;
  if (const auto number = number_in<double>(text)) return *number;
  return text;
}

// What is wrong with a key of it.
SchemaProblem about(const char* key, const std::string& what, const std::string& allowed) {
  return {pointer_join("", key), true, what, allowed};
}

// The addresses that scenarios do not have.
void take_own_keys(Json* json, ProgramFault* found, Problems* problems) {
  if (const auto at = json->find("collective"); at != json->end()) {
    if (at->is_number_integer() && at->get<int64_t>() >= 1)
      found->sequence = at->get<int64_t>();
    else if (at->is_string() && !at->get_ref<const std::string&>().empty())
      found->collective = at->get<std::string>();
    else
      problems->push_back(about("collective", "collective=" + value_text(*at),
                                "a number from 1, or a name as all_reduce"));
    json->erase("collective");
  }
  if (const auto at = json->find("at_ms"); at != json->end()) {
    if (at->is_number_integer() && at->get<int64_t>() >= 0 && at->get<int64_t>() <= kMostMs)
      found->at_ms = at->get<int64_t>();
    else
      problems->push_back(about("at_ms", "at_ms=" + value_text(*at),
                                fmt::format("an integer from 0 to {}", kMostMs)));
    json->erase("at_ms");
  }
}

bool needs_no_place(FaultKind kind) {
  return row_of(kind).of == FaultClass::process && row_of(kind).acts == FaultActs::once &&
         kind != FaultKind::exception && kind != FaultKind::deadlock;
}

bool has_moment(FaultKind kind) {
  const FaultRow& row = row_of(kind);
  return row.of == FaultClass::process || kind == FaultKind::stall ||
         kind == FaultKind::periodic_pause;
}

// What the schema of one fault cannot see.
void check_address(const ProgramFault& found, int64_t world, Problems* problems) {
  const Fault& fault = found.fault;
  const auto rank = rank_of(fault);
  if (rank && *rank >= world)
    problems->push_back(about("rank", fmt::format("there is no rank {}", *rank),
                              fmt::format("a rank from 0 to {}", world - 1)));
  const bool collective = found.sequence || !found.collective.empty();
  const int places = int{fault.options.has("phase")} + int{fault.options.has("bucket")} +
                     int{collective} + int{found.at_ms.has_value()};
  if (places > 1)
    problems->push_back(
        {"", false, "several places say where it acts", "one of phase, bucket, collective, at_ms"});
  if (found.at_ms && (!needs_no_place(fault.kind) || fault.options.has("step")))
    problems->push_back(about("at_ms", "at_ms is no address of it",
                              "stop, exit and signals, without step; others: step, phase"));
  if (collective && !has_moment(fault.kind))
    problems->push_back(about("collective", "collective is no address of it", "step"));
  if (fault.options.has("step") && fault.options.has("last_step") &&
      fault.options.integer("step") > fault.options.integer("last_step"))
    problems->push_back(about("last_step", "last_step is before step", "at least step"));
}

std::string plain_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json options_json(const Options& options) {
  Json json = Json::object();
  for (const auto& [key, value] : options.all())
    std::visit([&, &name = key](const auto& v) { json[name] = v; }, value);
  return json;
}

// Where the agent acts: nothing of it is said twice.
Json place_json(const ProgramFault& found) {
  const bool elsewhere = found.sequence || !found.collective.empty() || found.at_ms;
  const bool in_phase = !elsewhere && !bucket_of(found.fault) && has_moment(found.fault.kind);
  const auto phase = phase_of(found.fault).value_or(Phase::backward);
  const bool loads = found.fault.kind == FaultKind::slow_loader;
  return {{"phase", in_phase || loads ? Json(to_word(phase)) : Json()},
          {"bucket", bucket_of(found.fault) ? Json(*bucket_of(found.fault)) : Json()},
          {"collective", found.sequence             ? Json(*found.sequence)
                         : found.collective.empty() ? Json()
                                                    : Json(found.collective)},
          {"at_ms", found.at_ms ? Json(*found.at_ms) : Json()}};
}

}  // namespace

std::vector<FaultKind> program_fault_kinds() {
  std::vector<FaultKind> kinds;
  for (const ProgramKind& row : kKinds)
    if (row.refused == nullptr) kinds.push_back(row.kind);
  return kinds;
}

Expected<Json> program_fault_words(const std::string& text) {
  std::istringstream words(text);
  Json fault = Json::object();
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string key = fault.empty() ? "kind" : word.substr(0, equals);
    if (fault.empty() ? equals != std::string::npos : equals == std::string::npos || equals == 0)
      return refused(text, fmt::format("\"{}\"", shortened(word)), "KIND key=value ...");
    if (fault.contains(key)) return refused(text, fmt::format("{} stands there twice", key));
    fault[key] = key == "kind" ? Json(word) : value_of(word.substr(equals + 1));
  }
  if (fault.empty()) return refused(text, "no kind", known_kinds());
  return fault;
}

std::optional<ProgramFault> program_fault_from(Json json, const std::string& text, int64_t world,
                                               Problems* problems) {
  const auto at = json.find("kind");
  const std::string word =
      at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  const auto kind = fault_kind_from(word);
  const ProgramKind* row = kind ? known(*kind) : nullptr;
  if (row == nullptr || row->refused != nullptr) {
    std::string why = fmt::format("{} is no fault of a program",
                                  word.empty() ? "what has no kind" : shortened(word));
    if (row != nullptr) why += fmt::format(": {}", row->refused);
    problems->push_back(about("kind", why, known_kinds()));
    return std::nullopt;
  }
  const size_t before = problems->size();
  ProgramFault found{text, {}, {}, {}, {}};
  take_own_keys(&json, &found, problems);
  const SchemaNode& schema = *scenario_schema().root().key("faults")->items;
  for (SchemaProblem& problem : check_schema(schema, json)) problems->push_back(std::move(problem));
  if (problems->size() > before) return std::nullopt;
  // Where it acts is asked below: a default would look like a place that was given.
  const bool placed = json.contains("phase");
  fill_defaults(schema, &json);
  if (!placed) json.erase("phase");
  found.fault = fault_from(json);
  check_address(found, world, problems);
  if (problems->size() > before) return std::nullopt;
  return found;
}

std::string program_fault_text(const Json& json) {
  std::string text = json.contains("kind") ? plain_text(json["kind"]) : "";
  for (const auto& [key, value] : json.items())
    if (key != "kind") text += fmt::format(" {}={}", key, plain_text(value));
  return text;
}

Expected<ProgramFault> parse_program_fault(const std::string& text, int64_t world) {
  auto words = program_fault_words(text);
  if (!words) return words.errors();
  Problems problems;
  auto found = program_fault_from(std::move(words.value()), text, world, &problems);
  if (found) return std::move(*found);
  InputErrors errors;
  for (const SchemaProblem& problem : problems)
    errors.push_back(refused(text,
                             problem.pointer.size() > 1 && !problem.about_key
                                 ? problem.pointer.substr(1) + ": " + problem.message
                                 : problem.message,
                             problem.allowed));
  return errors;
}

Json agent_json(const std::vector<ProgramFault>& faults) {
  Json all = Json::array();
  for (size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i].fault;
    const FaultSteps steps = steps_of(fault, kMostSteps);
    Json json = options_json(fault.options);
    json.update(place_json(faults[i]));
    json["index"] = i;
    json["kind"] = to_word(fault.kind);
    json["once"] = acts_once(fault);
    // A fault at a collective acts in whichever step that is, unless one was asked for.
    const bool any = acts_once(fault) && !fault.options.has("step") &&
                     (faults[i].sequence || !faults[i].collective.empty());
    json["first"] = any ? 0 : steps.first;
    json["last"] = any || steps.last == 0 ? kMostSteps : steps.last;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace lockstep
