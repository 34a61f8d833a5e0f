#include "sim/des/machine_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Schema& machine_schema() {
  static const Schema schema(machine_schema_text());
  return schema;
}

int64_t ns_of_key(const Json& json, const char* key, double unit_ns) {
  return std::llround(json.value(key, 0.0) * unit_ns);
}

int64_t fs_of(const Json& json, const char* key, int64_t otherwise) {
  return json.contains(key) ? fs_per_byte_of(json[key].get<double>()) : otherwise;
}

LinkCost link_of(const Json& json, const LinkCost& otherwise) {
  if (json.is_null()) return otherwise;
  LinkCost link;
  link.alpha_ns = ns_of_key(json, "latency_us", 1e3);
  link.beta_fs_per_byte = fs_of(json, "bandwidth_mb_per_s", 0);
  link.gamma_fs_per_byte = fs_of(json, "add_mb_per_s", 0);
  return link;
}

double mb_per_s_of(int64_t fs_per_byte) { return 1e9 / static_cast<double>(fs_per_byte); }

Json json_of(const LinkCost& link) {
  Json json = {{"latency_us", static_cast<double>(link.alpha_ns) * 1e-3}};
  if (link.beta_fs_per_byte > 0) json["bandwidth_mb_per_s"] = mb_per_s_of(link.beta_fs_per_byte);
  if (link.gamma_fs_per_byte > 0) json["add_mb_per_s"] = mb_per_s_of(link.gamma_fs_per_byte);
  return json;
}

std::vector<CostModel::Mesh> mesh_of(const Json& json) {
  std::vector<CostModel::Mesh> mesh;
  for (const Json& row : json) mesh.push_back({row[0].get<int64_t>(), row[1].get<int64_t>()});
  return mesh;
}

std::vector<CostModel::Row> rows_of(const Json& json) {
  std::vector<CostModel::Row> rows;
  for (const Json& row : json)
    rows.push_back({std::llround(row[0].get<double>()), std::llround(row[1].get<double>() * 1e3)});
  return rows;
}

// The schema lets nothing else in.
Operation operation_of(const Json& table) {
  const std::string word = table.value("operation", "all_reduce");
  for (const Operation operation : kMeasuredOperations)
    if (word == to_word(operation)) return operation;
  return Operation::all_reduce;
}

std::vector<CostModel::Table> tables_of(const Json& json) {
  std::vector<CostModel::Table> tables;
  if (json.contains("table")) tables.push_back({0, rows_of(json["table"])});
  for (const Json& table : json.value("tables", Json::array()))
    tables.push_back({table["ranks"].get<int64_t>(), rows_of(table["rows"]), operation_of(table)});
  return tables;
}

Accuracy accuracy_of(const Json& json) {
  Accuracy accuracy{json["step_error"].get<double>(), std::nullopt, json.value("runs", int64_t{0}),
                    json.value("held_out", false)};
  if (json.contains("cap_error")) accuracy.cap_error = json["cap_error"].get<double>();
  accuracy.forward_ms = json.value("forward_ms", 0.0);
  accuracy.backward_ms = json.value("backward_ms", 0.0);
  return accuracy;
}

Json json_of(const Accuracy& accuracy) {
  Json json = {{"step_error", accuracy.step_error},
               {"runs", accuracy.runs},
               {"held_out", accuracy.held_out}};
  if (accuracy.cap_error) json["cap_error"] = *accuracy.cap_error;
  if (accuracy.forward_ms > 0) json["forward_ms"] = accuracy.forward_ms;
  if (accuracy.backward_ms > 0) json["backward_ms"] = accuracy.backward_ms;
  return json;
}

std::vector<Alternative> alternatives_of(const Json& list) {
  std::vector<Alternative> alternatives;
  for (const Json& json : list) {
    Alternative& one = alternatives.emplace_back();
    one.compute = json.value("compute", 1.0);
    one.link_slower = json.value("link_slower", 1.0);
    one.across_slower = json.value("across_slower", 1.0);
    one.latency = json.value("latency", 1.0);
    one.across_latency = json.value("across_latency", 1.0);
    one.cores_slower = json.value("cores_slower", 1.0);
    one.bucket_ns = ns_of_key(json, "bucket_us", 1e3);
    one.parameter_ns = ns_of_key(json, "parameter_us", 1e3);
    one.sync_ns = ns_of_key(json, "sync_ms", 1e6);
    one.rank_spread = json.value("rank_spread", 0.0);
    one.sync_ranks = json.value("sync_ranks", int64_t{0});
    one.of_hosts = json.value("of_hosts", false);
    if (json.contains("overlap_slowdown"))
      one.overlap_slowdown = json["overlap_slowdown"].get<double>();
    one.not_ranks = json.value("not_ranks", int64_t{0});
  }
  return alternatives;
}

Json json_of(const Alternative& one) {
  Json json = {{"compute", one.compute},
               {"link_slower", one.link_slower},
               {"across_slower", one.across_slower},
               {"latency", one.latency},
               {"across_latency", one.across_latency},
               {"cores_slower", one.cores_slower},
               {"bucket_us", static_cast<double>(one.bucket_ns) * 1e-3},
               {"parameter_us", static_cast<double>(one.parameter_ns) * 1e-3},
               {"sync_ms", static_cast<double>(one.sync_ns) * 1e-6},
               {"rank_spread", one.rank_spread}};
  if (one.sync_ranks > 0) json["sync_ranks"] = one.sync_ranks;
  if (one.of_hosts) json["of_hosts"] = true;
  if (one.overlap_slowdown) json["overlap_slowdown"] = *one.overlap_slowdown;
  if (one.not_ranks > 0) json["not_ranks"] = one.not_ranks;
  return json;
}

// What hosts share counts between hosts alone, and a rack only where something is above it.
InputErrors check_network(const Json& json, const CostModel& cost) {
  InputErrors errors;
  const auto refuse = [&](const char* key, const std::string& why, const std::string& allowed) {
    InputError error;
    error.pointer = std::string("/") + key;
    error.message = fmt::format("{} changes nothing: {}", key, why);
    error.allowed = allowed;
    errors.push_back(std::move(error));
  };
  const bool hosts = cost.ranks_per_host > 1 || cost.algorithm == Algorithm::hierarchical;
  for (const char* key :
       {"mesh_links", "nics_per_host", "hosts_per_rack", "oversubscription", "stripes", "rails"}) {
    if (!json.contains(key)) continue;
    if (!cost.tables.empty())
      refuse(key, "collectives take what was measured", "either this or tables");
    else if (!hosts)
      refuse(key, "hosts are not told apart", "ranks_per_host of at least 2 beside it");
    else if (std::string(key) == "rails" && cost.stripes)
      refuse(key, "stripes keep to their rails", "either this or stripes");
    else if ((std::string(key) == "rails" || std::string(key) == "stripes") &&
             json.value("nics_per_host", cost.ranks_per_host) < 2)
      refuse(key, "a host has one NIC", "nics_per_host of at least 2 beside it");
    else if (std::string(key) == "hosts_per_rack" && !json.contains("oversubscription"))
      refuse(key, "what is above a rack is not oversubscribed", "oversubscription beside it");
  }
  return errors;
}

// Switches share what they are said to move, and nothing else says how many of them there are.
InputErrors check_switches(const Json& json) {
  if (!json.contains("ranks_per_switch")) return {};
  InputError error;
  error.pointer = "/ranks_per_switch";
  if (json.value("cores_per_host", 0) > 0) {
    error.message = "ranks_per_switch and cores_per_host both say who shares core_mb_per_s";
    error.allowed = "one of them";
  } else if (!json.contains("core_mb_per_s")) {
    error.message = "ranks_per_switch changes nothing: nobody says what a switch moves";
    error.allowed = "core_mb_per_s beside it";
  } else if (json.value("ranks_per_host", int64_t{1}) < 2) {
    error.message = "ranks_per_switch changes nothing: hosts are not told apart";
    error.allowed = "ranks_per_host of at least 2 beside it";
  } else {
    return {};
  }
  return {error};
}

// What is not in the file stays as it is.
InputErrors take(const Json& json, MachineModel* machine) {
  CostModel& cost = machine->cost;
  if (json.contains("algorithm")) {
    machine->algorithm = algorithm_of(json["algorithm"].get<std::string>()).value();
    cost.algorithm = *machine->algorithm;
  }
  cost.link = link_of(json.value("link", Json()), cost.link);
  machine->says_across = json.contains("across");
  machine->says_link = json.contains("link");
  machine->says_cores = json.contains("core_mb_per_s") || json.value("cores_per_host", 0) > 0;
  cost.across =
      link_of(json.value("across", Json()), json.contains("link") ? cost.link : cost.across);
  cost.ranks_per_host = json.value("ranks_per_host", cost.ranks_per_host);
  if (json.contains("mesh_links")) cost.mesh = mesh_of(json["mesh_links"]);
  cost.nics_per_host = json.value("nics_per_host", cost.nics_per_host);
  cost.stripes = json.value("stripes", cost.stripes);
  cost.rails = json.value("rails", cost.rails);
  cost.hosts_per_rack = json.value("hosts_per_rack", cost.hosts_per_rack);
  cost.oversubscription_millis = std::llround(json.value("oversubscription", 1.0) * 1000);
  if (json.contains("overhead_us")) cost.overhead_ns = ns_of_key(json, "overhead_us", 1e3);
  cost.core_fs_per_byte = fs_of(json, "core_mb_per_s", cost.core_fs_per_byte);
  cost.cores_per_host = json.value("cores_per_host", cost.cores_per_host);
  cost.ranks_per_switch = json.value("ranks_per_switch", cost.ranks_per_switch);
  machine->flat_gathers = json.value("flat_gathers", machine->flat_gathers);
  cost.tables = tables_of(json);
  machine->channels = json.value("channels", machine->channels);
  machine->overlap_slowdown = json.value("overlap_slowdown", 0.0);
  machine->comm_slowdown = json.value("comm_slowdown", 0.0);
  machine->copy_fs_per_byte = fs_of(json, "copy_mb_per_s", machine->copy_fs_per_byte);
  if (json.contains("bucket_us")) machine->bucket_ns = ns_of_key(json, "bucket_us", 1e3);
  if (json.contains("parameter_us")) machine->parameter_ns = ns_of_key(json, "parameter_us", 1e3);
  if (json.contains("launch_us")) machine->launch_ns = ns_of_key(json, "launch_us", 1e3);
  if (json.contains("sync_ms")) machine->sync_ns = ns_of_key(json, "sync_ms", 1e6);
  machine->rank_spread = json.value("rank_spread", machine->rank_spread);
  machine->says_bucket |= json.contains("bucket_us");
  machine->says_sync |= json.contains("sync_ms");
  machine->says_spread |= json.contains("rank_spread");
  if (json.contains("load_ms")) machine->load_ns = ns_of_key(json, "load_ms", 1e6);
  if (json.contains("optimizer_ms")) machine->optimizer_ns = ns_of_key(json, "optimizer_ms", 1e6);
  if (json.contains("forward_ms")) machine->forward_ms = json["forward_ms"].get<double>();
  if (json.contains("backward_ms")) machine->backward_ms = json["backward_ms"].get<double>();
  if (json.contains("accuracy")) machine->accuracy = accuracy_of(json["accuracy"]);
  machine->alternatives = alternatives_of(json.value("alternatives", Json::array()));
  if (json.contains("fitted_on"))
    machine->fitted_on = json["fitted_on"].get<std::vector<std::string>>();
  if (InputErrors errors = check_network(json, cost); !errors.empty()) return errors;
  if (InputErrors errors = check_switches(json); !errors.empty()) return errors;
  if (!json.contains("noise")) return problems_of(cost);
  const auto noise = noise_of(json["noise"].get<std::string>());
  if (!noise) return noise.errors();
  machine->noise = noise.value();
  return problems_of(cost);
}

}  // namespace

MachineModel default_machine_model() {
  MachineModel machine;
  machine.cost.link = {60'000, fs_per_byte_of(1500), 0};
  machine.cost.across = {20'000, fs_per_byte_of(10'000), 0};
  return machine;
}

Expected<MachineModel> read_machine_model(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  const std::string file = printable(path);
  const auto read = read_json_of(machine_schema().root(), text.value(), file);
  if (!read) return read.errors();
  MachineModel machine = default_machine_model();
  InputErrors errors = take(read.value().document, &machine);
  for (InputError& error : errors) error.file = file;
  if (!errors.empty()) return errors;
  return machine;
}

std::string to_text(const MachineModel& machine, const nlohmann::ordered_json& fit) {
  const CostModel& cost = machine.cost;
  Json json = {{"format", "lockstep_machine"}, {"version", 1}};
  json["fitted_on"] = machine.fitted_on;
  if (machine.algorithm) json["algorithm"] = to_word(*machine.algorithm);
  const bool hosts = cost.ranks_per_host > 1 || machine.algorithm == Algorithm::hierarchical;
  json["link"] = json_of(cost.link);
  if (hosts) json["across"] = json_of(cost.across);
  json["ranks_per_host"] = cost.ranks_per_host;
  for (const CostModel::Mesh& row : cost.mesh) json["mesh_links"].push_back({row.ranks, row.links});
  if (cost.nics_per_host > 0) json["nics_per_host"] = cost.nics_per_host;
  if (cost.stripes) json["stripes"] = true;
  if (cost.rails) json["rails"] = true;
  if (machine.flat_gathers) json["flat_gathers"] = true;
  if (cost.hosts_per_rack > 1) json["hosts_per_rack"] = cost.hosts_per_rack;
  if (cost.oversubscription_millis > 1000)
    json["oversubscription"] = static_cast<double>(cost.oversubscription_millis) / 1000;
  json["overhead_us"] = static_cast<double>(cost.overhead_ns) * 1e-3;
  if (cost.core_fs_per_byte > 0) {
    json["core_mb_per_s"] = mb_per_s_of(cost.core_fs_per_byte);
    if (cost.ranks_per_switch > 0)
      json["ranks_per_switch"] = cost.ranks_per_switch;
    else
      json["cores_per_host"] = cost.cores_per_host;
  }
  json["channels"] = machine.channels;
  json["overlap_slowdown"] = machine.overlap_slowdown;
  json["comm_slowdown"] = machine.comm_slowdown;
  if (machine.copy_fs_per_byte > 0) json["copy_mb_per_s"] = mb_per_s_of(machine.copy_fs_per_byte);
  if (machine.bucket_ns > 0 || machine.says_bucket)
    json["bucket_us"] = static_cast<double>(machine.bucket_ns) * 1e-3;
  if (machine.parameter_ns > 0)
    json["parameter_us"] = static_cast<double>(machine.parameter_ns) * 1e-3;
  json["launch_us"] = static_cast<double>(machine.launch_ns) * 1e-3;
  if (machine.sync_ns > 0 || machine.says_sync)
    json["sync_ms"] = static_cast<double>(machine.sync_ns) * 1e-6;
  if (machine.rank_spread > 0 || machine.says_spread) json["rank_spread"] = machine.rank_spread;
  json["load_ms"] = static_cast<double>(machine.load_ns) * 1e-6;
  json["optimizer_ms"] = static_cast<double>(machine.optimizer_ns) * 1e-6;
  if (machine.forward_ms) json["forward_ms"] = *machine.forward_ms;
  if (machine.backward_ms) json["backward_ms"] = *machine.backward_ms;
  for (const CostModel::Table& table : cost.tables) {
    Json rows = Json::array();
    for (const CostModel::Row& row : table.rows)
      rows.push_back({row.bytes, static_cast<double>(row.ns) * 1e-3});
    if (table.ranks == 0)
      json["table"] = std::move(rows);
    else
      json["tables"].push_back({{"operation", to_word(table.operation)},
                                {"ranks", table.ranks},
                                {"rows", std::move(rows)}});
  }
  if (machine.accuracy) json["accuracy"] = json_of(*machine.accuracy);
  for (const Alternative& one : machine.alternatives) json["alternatives"].push_back(json_of(one));
  if (!fit.is_null()) json["fit"] = fit;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

constexpr double kSameCompute = 0.001;

// Latencies in us, bandwidths in MB/s of one direction. docs/simulation.md has the sources.
struct Preset {
  const char* word;
  double latency_us, bandwidth_mb_per_s;
  int64_t ranks_per_host = 1;
  double across_latency_us = 0, across_bandwidth_mb_per_s = 0;
  int64_t nics_per_host = 0;
};
constexpr std::array<Preset, 9> kPresets = {{{"loopback", 60, 1500},
                                             {"10gbe", 25, 1250},
                                             {"25gbe", 25, 3125},
                                             {"100gbe", 25, 12'500},
                                             {"ib_hdr", 2, 25'000},
                                             {"ib_ndr", 2, 50'000},
                                             {"dgx_v100", 2, 150'000, 8, 5, 12'500, 4},
                                             {"dgx_a100", 2, 300'000, 8, 5, 25'000},
                                             {"dgx_h100", 2, 450'000, 8, 5, 50'000}}};

LinkCost preset_link(double latency_us, double mb_per_s) {
  return {static_cast<int64_t>(latency_us * 1e3), fs_per_byte_of(mb_per_s), 0};
}

}  // namespace

std::vector<std::string> unused_keys(const MachineModel& machine, Algorithm algorithm) {
  const CostModel& cost = machine.cost;
  std::vector<std::string> unused;
  const auto add = [&](bool said, const char* key, const char* why) {
    if (said) unused.push_back(fmt::format("{} of the machine changes nothing: {}", key, why));
  };
  if (!cost.tables.empty()) {
    const char* measured = "collectives take what was measured (tables)";
    add(machine.says_link, "link", measured);
    add(machine.says_across, "across", measured);
    add(machine.says_cores, "core_mb_per_s or cores_per_host", measured);
    return unused;
  }
  add(machine.says_across && cost.ranks_per_host == 1 && algorithm != Algorithm::hierarchical,
      "across", "hosts are not told apart (ranks_per_host)");
  add(cost.cores_per_host > 0 && cost.core_fs_per_byte == 0, "cores_per_host",
      "nobody says what a core moves (core_mb_per_s)");
  return unused;
}

double slowest_of(int64_t ranks, double spread) {
  const auto count = static_cast<double>(ranks);
  return 1 + spread * std::max(0.0, normal_quantile((count - 0.375) / (count + 0.25)));
}

std::optional<Accuracy> accuracy_of(const MachineModel& machine, const Job& job) {
  if (!machine.accuracy) return std::nullopt;
  const double slowest = slowest_of(job.ranks, machine.rank_spread);
  const auto differs = [&](double ms, int64_t ns) {
    return ms > 0 && std::fabs(static_cast<double>(ns) * 1e-6 / slowest / ms - 1) > kSameCompute;
  };
  if (differs(machine.accuracy->forward_ms, job.forward_ns) ||
      differs(machine.accuracy->backward_ms, job.backward_ns))
    return std::nullopt;
  return machine.accuracy;
}

std::optional<MachineModel> machine_preset(const std::string& word) {
  for (const Preset& preset : kPresets) {
    if (word != preset.word) continue;
    MachineModel machine = default_machine_model();
    machine.cost.link = preset_link(preset.latency_us, preset.bandwidth_mb_per_s);
    machine.cost.across = machine.cost.link;
    machine.cost.ranks_per_host = preset.ranks_per_host;
    machine.cost.nics_per_host = preset.nics_per_host;
    if (preset.ranks_per_host == 1) return machine;
    machine.algorithm = Algorithm::hierarchical;
    machine.flat_gathers = true;
    machine.says_across = true;
    machine.cost.across = preset_link(preset.across_latency_us, preset.across_bandwidth_mb_per_s);
    return machine;
  }
  return std::nullopt;
}

std::string machine_preset_words() {
  std::string words;
  for (const Preset& preset : kPresets)
    words += fmt::format("{}{}", words.empty() ? "" : ", ", preset.word);
  return words;
}

}  // namespace lockstep
