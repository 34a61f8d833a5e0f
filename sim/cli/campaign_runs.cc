#include "sim/cli/campaign_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/execution.h"
#include "sim/cli/output_files.h"
#include "sim/launch/files.h"
#include "sim/launch/spawn.h"

namespace lockstep {
namespace {

constexpr int64_t kBatch = 1000;

void write_drawn_cases(const std::vector<nlohmann::ordered_json>& cases,
                       const std::string& folder) {
  std::filesystem::remove_all(folder);  // of an earlier campaign with the same --out
  std::filesystem::create_directories(folder);
  for (const auto& one : cases)
    write_file(fmt::format("{}/{}.json", folder, one["name"].get<std::string>()),
               one.dump(2) + "\n");
}

ResultDocument failed(const InputErrors& errors) {
  ResultDocument document;
  document.errors = errors;
  document.exit_code = kExitBadInput;
  return document;
}

}  // namespace

Expected<CampaignPlace> campaign_place(const VerifyOptions& verify) {
  InputErrors errors;
  check_output("--json", verify.json, &errors);
  if (!errors.empty()) return errors;
  auto worker = find_worker();
  if (!worker) return worker.errors();
  auto directory = verify.out.empty() ? RunDirectory::numbered() : RunDirectory::at(verify.out);
  if (!directory) return directory.errors();
  return CampaignPlace{worker.value(), std::move(directory.value())};
}

ResultDocument run_cases(const std::vector<nlohmann::ordered_json>& cases, VerifyOptions verify,
                         const std::string& worker, const std::string& folder) {
  const std::string scenarios = folder + "/campaign_cases";
  try {
    write_drawn_cases(cases, scenarios);
  } catch (const std::exception& error) {
    return failed({option_error(error.what())});
  }
  verify.selection.paths = {scenarios};
  const auto files = select(verify.selection);
  if (!files) return failed(files.errors());
  return execute_selected(verify, files.value(), worker, folder);
}

bool CampaignHead::take(ResultDocument&& batch) {
  duration_ms += batch.duration_ms;
  batch.runs.clear();
  document = std::move(batch);
  return document.errors.empty() && document.exit_code < 128;
}

int CampaignHead::exit_code(bool failed, bool undecided) const {
  for (const InputError& error : document.errors) print_error(fmt::format("{}\n", to_text(error)));
  if (document.exit_code >= 128) return document.exit_code;
  if (failed) return kExitFail;
  return document.errors.empty() && !undecided ? kExitPass : kExitInconclusive;
}

nlohmann::ordered_json CampaignHead::json(const char* campaign, uint64_t seed, int code) const {
  return {{"campaign", campaign},
          {"seed", seed},
          {"exit_code", code},
          {"duration_ms", duration_ms},
          {"machine", as_json(document.machine)},
          {"libraries", as_json(document.libraries)}};
}

std::string campaign_again(const char* option, const std::string& name) {
  return fmt::format("lockstep campaign {} 1 --seed {}", option, name.substr(name.rfind('-') + 1));
}

const char* verdict_of(int code) {
  return code == kExitPass ? "pass" : code == kExitFail ? "fail" : "inconclusive";
}

void in_batches(uint64_t first, int64_t count,
                const std::function<bool(uint64_t first, int64_t count)>& batch) {
  for (int64_t done = 0; done < count; done += kBatch)
    if (!batch(first + static_cast<uint64_t>(done), std::min(kBatch, count - done))) return;
}

struct BusyCores::Spinners {
  std::vector<Spawned> processes;
};

BusyCores::BusyCores(int64_t count) : spinners_(std::make_unique<Spinners>()) {
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "while :; do :; done"};
  options.log = "/dev/null";
  for (int64_t i = 0; i < count; ++i) spinners_->processes.push_back(spawn(options));
}

BusyCores::~BusyCores() {
  for (const Spawned& process : spinners_->processes) kill_and_reap(process);
}

int report_campaign(const VerifyOptions& verify, const nlohmann::ordered_json& json,
                    const std::string& text, int code) {
  return print_result(text,
                      write_output("--json", verify.json, code, [&] { return to_text(json); }));
}

}  // namespace lockstep
