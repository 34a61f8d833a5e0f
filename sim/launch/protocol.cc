#include "sim/launch/protocol.h"

#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"

namespace lockstep {

std::string encode(const WorkerTask& task) {
  nlohmann::ordered_json document;
  document["role"] = task.role;
  document["golden"] = task.golden;
  document["rank"] = task.rank;
  document["run_dir"] = task.run_dir;
  document["host_ranks"] = task.host_ranks;
  document["address"] = task.address;
  return document.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<WorkerTask> decode_task(const std::string& message) {
  const auto document = json_or_discarded(message);
  if (!document.is_object()) return std::nullopt;
  try {
    WorkerTask task;
    task.role = document.at("role").get<std::string>();
    task.golden = document.at("golden").get<std::string>();
    task.rank = document.at("rank").get<int64_t>();
    task.run_dir = document.at("run_dir").get<std::string>();
    task.host_ranks = document.at("host_ranks").get<std::vector<int64_t>>();
    task.address = document.at("address").get<std::string>();
    return task;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string process_label(const WorkerTask& task) {
  if (task.role == "rank" || task.role == "collective") return fmt::format("rank-{}", task.rank);
  if (task.role == "thread_host") return fmt::format("host-{}", task.rank);
  return fmt::format("golden-{}", task.golden);
}

std::string process_name(const WorkerTask& task) {
  if (task.role == "rank" || task.role == "collective")
    return fmt::format("lockstep-r{}", task.rank);
  if (task.role == "thread_host") return fmt::format("lockstep-h{}", task.rank);
  return fmt::format("lockstep-g-{}", task.golden).substr(0, 15);
}

std::string records_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.records", run_dir, rank);
}

std::string golden_records_path(const std::string& run_dir, const std::string& golden) {
  return fmt::format("{}/golden-{}.records", run_dir, golden);
}

std::string log_path(const std::string& run_dir, const std::string& who) {
  return fmt::format("{}/{}.log", run_dir, who);
}

std::string stream_path(const std::string& run_dir, const std::string& golden) {
  return fmt::format("{}/golden-{}.stream", run_dir, golden);
}

std::string evidence_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.evidence.json", run_dir, rank);
}

std::string stack_path(const std::string& run_dir, const std::string& who) {
  return fmt::format("{}/{}.stack", run_dir, who);
}

// Away from the first ones, which debuggers and sanitizers like.
int stack_signal() { return SIGRTMIN + 7; }

std::string plan_path(const std::string& run_dir) { return run_dir + "/plan.json"; }

}  // namespace lockstep
