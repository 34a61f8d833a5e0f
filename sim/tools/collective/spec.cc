#include "sim/tools/collective/spec.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBytesMax = int64_t{1} << 30;

const std::map<std::string, std::vector<std::string>>& algorithms_of_kinds() {
  static const std::map<std::string, std::vector<std::string>> kinds = {
      {"gloo", {"ring", "bcube", "halving_doubling", "ring_chunked"}},
      {"c10d", {"ring"}},
      {"hierarchical", {"ring", "bcube", "halving_doubling", "ring_chunked"}},
      {"shm", {"ring", "bcube", "halving_doubling", "ring_chunked", "rank_order"}}};
  return kinds;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts = {""};
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

InputError bad(const std::string& option, const std::string& word, const std::string& allowed,
               const std::vector<std::string>& words = {}) {
  InputError error;
  error.message = fmt::format("{}: \"{}\"", option, printable(word));
  if (const auto meant = closest_word(word, words))
    error.message += fmt::format("; did you mean \"{}\"?", *meant);
  error.allowed = allowed;
  return error;
}

// 1 to 64, else 0.
int64_t small_number(const std::string& text) {
  const int64_t number = number_in<int64_t>(text).value_or(0);
  return number >= 1 && number <= 64 ? number : 0;
}

Expected<CollectiveGroup> parse_group(const std::string& text) {
  const char* const option = "--communicators";
  const std::vector<std::string> parts = split(text, ':');
  std::vector<std::string> kinds;
  for (const auto& [kind, algorithms] : algorithms_of_kinds()) kinds.push_back(kind);
  const auto kind = algorithms_of_kinds().find(parts[0]);
  if (kind == algorithms_of_kinds().end())
    return bad(option, parts[0], quoted_list(kinds) + ", then a colon and an algorithm", kinds);
  const std::string algorithm = parts.size() > 1 ? parts[1] : "ring";
  const bool known =
      std::find(kind->second.begin(), kind->second.end(), algorithm) != kind->second.end();
  const bool hosts = parts[0] == "hierarchical";
  const int64_t ranks_per_host = hosts && parts.size() == 3 ? small_number(parts[2]) : 0;
  if (!known || parts.size() > (hosts ? 3 : 2) || (hosts && ranks_per_host == 0))
    return bad(option, text,
               fmt::format("{} with {}{}", parts[0], quoted_list(kind->second),
                           hosts ? ", then a colon and 1 to 64 ranks per host" : ""));
  return CollectiveGroup{parts[0], algorithm, ranks_per_host};
}

}  // namespace

std::string CollectiveGroup::label() const {
  if (algorithms_of_kinds().at(kind).size() == 1) return kind;
  const std::string label = kind + ":" + algorithm;
  return ranks_per_host > 0 ? fmt::format("{}:{}", label, ranks_per_host) : label;
}

std::string CollectiveGroup::order() const {
  return ranks_per_host > 0 ? fmt::format("{}/{}", algorithm, ranks_per_host) : algorithm;
}

std::vector<std::string> collective_operations() {
  return {"all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all"};
}

int64_t element_bytes(const std::string& dtype) {
  if (dtype == "float64") return 8;
  return dtype == "float32" ? 4 : 2;
}

Expected<std::vector<CollectiveGroup>> parse_groups(const std::string& text) {
  std::vector<CollectiveGroup> groups;
  InputErrors errors;
  for (const std::string& word : split(text, ',')) {
    const auto group = parse_group(word);
    if (!group) {
      errors.push_back(group.errors().front());
      continue;
    }
    const std::string label = group.value().label();
    if (std::any_of(groups.begin(), groups.end(),
                    [&](const CollectiveGroup& other) { return other.label() == label; }))
      errors.push_back(bad("--communicators", label, "each once"));
    groups.push_back(group.value());
  }
  if (!errors.empty()) return errors;
  return groups;
}

Expected<int64_t> parse_bytes(const std::string& option, const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  const int64_t scale = unit.empty()  ? 1
                        : unit == "K" ? int64_t{1} << 10
                        : unit == "M" ? int64_t{1} << 20
                        : unit == "G" ? int64_t{1} << 30
                                      : 0;
  const bool in_range = number >= 1 && scale > 0 && number <= kBytesMax / scale;
  if (error == std::errc() && in_range) return number * scale;
  return bad(option, text, "1 to 1G: bytes, or K, M, G for 2^10, 2^20, 2^30");
}

std::vector<int64_t> sizes_of(const CollectiveSpec& spec, int64_t bytes_min, int64_t bytes_max,
                              int64_t factor) {
  LOCKSTEP_CHECK(factor > 1 && bytes_min > 0, "sizes that do not grow");
  const int64_t step = spec.has_parts() ? spec.world_size : 1;
  std::vector<int64_t> all;
  for (int64_t bytes = bytes_min; bytes <= bytes_max; bytes *= factor) {
    const int64_t elements = bytes / element_bytes(spec.dtype) / step * step;
    if (elements > 0 && (all.empty() || all.back() != elements)) all.push_back(elements);
  }
  return all;
}

double bus_factor(const std::string& operation, int64_t world_size) {
  const auto n = static_cast<double>(world_size);
  if (operation == "all_reduce") return 2 * (n - 1) / n;
  return operation == "broadcast" ? 1 : (n - 1) / n;
}

// Every rank has input and output of each communicator, and all ranks share one copy of their
// inputs and of what must come out of each.
int64_t memory_bytes(const CollectiveSpec& spec) {
  const int64_t whole = spec.elements.back() * element_bytes(spec.dtype);
  const int64_t part = !spec.has_parts() ? 0 : spec.exchanges() ? whole : whole / spec.world_size;
  const auto groups = static_cast<int64_t>(spec.groups.size());
  const int64_t input = spec.operation == "all_gather" ? part : whole;
  return spec.world_size * (groups * (whole + part) + input) + groups * whole;
}

std::string to_text(const CollectiveSpec& spec) {
  Json groups = Json::array();
  for (const CollectiveGroup& group : spec.groups)
    groups.push_back({{"kind", group.kind},
                      {"algorithm", group.algorithm},
                      {"ranks_per_host", group.ranks_per_host}});
  const Json json = {{"operation", spec.operation},
                     {"communicators", std::move(groups)},
                     {"world_size", spec.world_size},
                     {"elements", spec.elements},
                     {"dtype", spec.dtype},
                     {"iterations", spec.iterations},
                     {"warmup", spec.warmup},
                     {"timeout_ms", spec.timeout_ms},
                     {"seed", spec.seed}};
  return json.dump(2) + "\n";
}

CollectiveSpec collective_spec_from(const std::string& json_text) {
  const Json json = json_or_discarded(json_text);
  CollectiveSpec spec;
  for (const Json& group : json.at("communicators"))
    spec.groups.push_back({group.at("kind"), group.at("algorithm"), group.at("ranks_per_host")});
  json.at("operation").get_to(spec.operation);
  json.at("world_size").get_to(spec.world_size);
  json.at("elements").get_to(spec.elements);
  json.at("dtype").get_to(spec.dtype);
  json.at("iterations").get_to(spec.iterations);
  json.at("warmup").get_to(spec.warmup);
  json.at("timeout_ms").get_to(spec.timeout_ms);
  json.at("seed").get_to(spec.seed);
  return spec;
}

std::string collective_spec_path(const std::string& run_dir) {
  return run_dir + "/collective.json";
}

}  // namespace lockstep
