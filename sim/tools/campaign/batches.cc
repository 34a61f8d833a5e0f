#include "sim/tools/campaign/batches.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "scenarios/base/text.h"
#include "sim/analysis/rate_bound.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/launch/run_files.h"
#include "sim/launch/workers.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"
#include "sim/tools/campaign/cases.h"
#include "sim/tools/campaign/tally.h"

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

ResultDocument refused_batch(const InputErrors& errors) {
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
    return refused_batch({option_error(error.what())});
  }
  verify.selection.paths = {scenarios};
  const auto files = select(verify.selection);
  if (!files) return refused_batch(files.errors());
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
  return to_word(code == kExitPass   ? Verdict::pass
                 : code == kExitFail ? Verdict::fail
                                     : Verdict::inconclusive);
}

void in_batches(uint64_t first, int64_t count,
                const std::function<bool(uint64_t first, int64_t count)>& batch) {
  for (int64_t done = 0; done < count; done += kBatch)
    if (!batch(first + static_cast<uint64_t>(done), std::min(kBatch, count - done))) return;
}

std::vector<uint64_t> seeds_of_shard(const CampaignOptions& options, uint64_t first,
                                     int64_t count) {
  const Shard shard = options.verify.shard.value_or(Shard());
  std::vector<uint64_t> seeds;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed)
    if ((seed - options.seed) % static_cast<uint64_t>(shard.count) ==
        static_cast<uint64_t>(shard.index - 1))
      seeds.push_back(seed);
  return seeds;
}

InputErrors empty_shard(const CampaignOptions& options, int64_t count) {
  const Shard shard = options.verify.shard.value_or(Shard());
  if (shard.index <= count) return {};
  return {fewer_runs(shard)};
}

InputError fewer_runs(const Shard& shard) {
  return option_error(fmt::format("--shard {}/{}: there are fewer runs", shard.index, shard.count));
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
  code = write_output("--json", verify.json, code, [&] { return to_text(json); });
  code = write_page(verify.html, code, [&] { return HtmlPage{"campaign", text, to_text(json)}; });
  return print_result(text, code);
}

namespace {

using Json = nlohmann::ordered_json;

struct CleanCampaign {
  CampaignHead head;
  std::vector<CleanRun> runs;
};

// False: the batch did not come to its end.
bool run_batch(const CampaignOptions& options, const CampaignPlace& place, uint64_t first,
               int64_t count, CleanCampaign* campaign) {
  std::vector<Json> cases;
  for (const uint64_t seed : seeds_of_shard(options, first, count))
    cases.push_back(clean_case(seed));
  if (cases.empty()) return true;
  ResultDocument batch = run_cases(cases, options.verify, place.worker,
                                   fmt::format("{}/batch-{}", place.directory.path(), first));
  for (RunResult& run : batch.runs) {
    run.again = campaign_again("--clean", run.name);
    campaign->runs.push_back(clean_run_of(run));
  }
  return campaign->head.take(std::move(batch));
}

std::string lanes_text(const CleanTally& tally, const Style& style) {
  Table table;
  table.column("lane");
  for (const char* header : {"passed", "failed", "undecided", "not applicable"})
    table.column(header, Table::Align::right);
  for (const LaneTally& lane : tally.lanes)
    table.row({to_word(lane.lane), grouped(lane.pass), grouped(lane.fail), grouped(lane.undecided),
               grouped(lane.not_applicable)});
  return table.text(style);
}

std::string statistic_text(const std::vector<double>& ascending) {
  if (ascending.empty()) return "";
  return fmt::format(
      "R of lane rounding in {} runs: median {:.2f}, 90 % {:.2f}, 99 % {:.2f}, "
      "largest {:.2f} (threshold 8)\n",
      grouped(static_cast<int64_t>(ascending.size())), percentile(ascending, 50),
      percentile(ascending, 90), percentile(ascending, 99), ascending.back());
}

std::string clean_answer(const CleanTally& tally, int64_t duration_ms, int code) {
  return fmt::format(
      "{}: of {} correct runs {} accused (rate below {:.2g} with 95 % confidence), {} undecided; "
      "{:.0f} s",
      verdict_of(code), grouped(tally.runs), grouped(tally.accused),
      rate_bound_95(tally.accused, tally.runs), grouped(tally.undecided),
      static_cast<double>(duration_ms) / 1000);
}

std::string text_of_clean(const CampaignOptions& options, const CleanCampaign& campaign,
                          const CleanTally& tally, int code) {
  const Style style = style_of(options.verify.color, STDOUT_FILENO);
  std::string last =
      colored_answer(clean_answer(tally, campaign.head.duration_ms, code), style) + "\n";
  if (options.verify.quiet) return last;
  std::string text = head_line(campaign.head.document) + "\n" + lanes_text(tally, style) +
                     statistic_text(tally.statistics);
  for (const CleanRun& run : campaign.runs) {
    if (run.verdict == Verdict::pass) continue;
    text += fmt::format("\n{}: {}\n  {}\n  again: {}\n",
                        run.verdict == Verdict::fail ? "accused" : "undecided", run.name, run.why,
                        run.again);
  }
  return text + "\n" + last;
}

Json not_passed(const std::vector<CleanRun>& runs) {
  Json list = Json::array();
  for (const CleanRun& run : runs)
    if (run.verdict != Verdict::pass)
      list.push_back({{"name", run.name},
                      {"verdict", run.verdict},
                      {"failed", run.failed},
                      {"why", run.why},
                      {"again", run.again}});
  return list;
}

}  // namespace

int campaign_of_clean_runs(const CampaignOptions& options) {
  if (const auto errors = empty_shard(options, options.clean); !errors.empty())
    return bad_input(errors, options.verify.json);
  const auto place = campaign_place(options.verify);
  if (!place) return bad_input(place.errors(), options.verify.json);
  const BusyCores busy(options.busy);
  CleanCampaign campaign;
  in_batches(options.seed, options.clean, [&](uint64_t first, int64_t count) {
    return run_batch(options, place.value(), first, count, &campaign);
  });
  campaign.head.document.seed = options.seed;
  const CleanTally counted = tally(campaign.runs);
  const int code = campaign.head.exit_code(counted.accused > 0, counted.undecided > 0);
  Json json = campaign.head.json("clean", options.seed, code);
  json.update(as_json(counted));
  json["not_passed"] = not_passed(campaign.runs);
  return report_campaign(options.verify, json, text_of_clean(options, campaign, counted, code),
                         code);
}

namespace {

struct MutantCampaign {
  CampaignHead head;
  std::vector<MutantRun> runs;
};

class Batch {
 public:
  Batch(const CampaignOptions& options, const CampaignPlace& place, uint64_t first, int64_t count)
      : options_(options),
        place_(place),
        folder_(fmt::format("{}/batch-{}", place.directory.path(), first)) {
    for (const uint64_t seed : seeds_of_shard(options, first, count)) {
      Json document = mutant_case(seed);
      cases_.emplace(document["name"].get<std::string>(), std::move(document));
    }
  }

  bool run(MutantCampaign* campaign) {
    if (cases_.empty()) return true;
    std::vector<Json> documents;
    for (const auto& [name, document] : cases_) documents.push_back(document);
    ResultDocument mutants = run_cases(documents, options_.verify, place_.worker, folder_);
    std::vector<Json> twins;
    for (const RunResult& run : mutants.runs)
      if (needs_twin(run)) twins.push_back(clean_twin(cases_.at(run.name)));
    ResultDocument clean;
    if (!twins.empty() && mutants.errors.empty() && mutants.exit_code < 128)
      clean = run_cases(twins, options_.verify, place_.worker, folder_ + "-twins");
    for (RunResult& run : mutants.runs) {
      const auto twin = std::find_if(clean.runs.begin(), clean.runs.end(),
                                     [&](const RunResult& one) { return one.name == run.name; });
      run.again = campaign_again("--mutants", run.name);
      ended_.push_back(
          end_of(run, cases_.at(run.name), twin == clean.runs.end() ? nullptr : &*twin));
    }
    bool complete = campaign->head.take(std::move(mutants));
    if (complete && !twins.empty()) complete = campaign->head.take(std::move(clean));
    campaign->runs.insert(campaign->runs.end(), ended_.begin(), ended_.end());
    return complete;
  }

 private:
  const CampaignOptions& options_;
  const CampaignPlace& place_;
  const std::string folder_;
  std::map<std::string, Json> cases_;
  std::vector<MutantRun> ended_;
};

std::vector<std::string> row_of(const MutantTally& tally) {
  return {tally.kind,
          grouped(tally.runs),
          grouped(tally.caught),
          grouped(tally.elsewhere),
          grouped(tally.equivalent),
          grouped(tally.missed)};
}

std::string mutants_answer(const MutantTally& all, int64_t duration_ms, int code) {
  return fmt::format(
      "{}: of {} defects {} caught where they had to be, {} elsewhere, {} missed; {} changed "
      "nothing ({} of them had nothing to act on); {:.0f} s",
      verdict_of(code), grouped(all.runs), grouped(all.caught), grouped(all.elsewhere),
      grouped(all.missed), grouped(all.equivalent), grouped(all.idle),
      static_cast<double>(duration_ms) / 1000);
}

std::string text_of_mutants(const CampaignOptions& options, const MutantCampaign& campaign,
                            const std::vector<MutantTally>& tallies, int code) {
  const MutantTally all = sum_of(tallies);
  const Style style = style_of(options.verify.color, STDOUT_FILENO);
  std::string last =
      colored_answer(mutants_answer(all, campaign.head.duration_ms, code), style) + "\n";
  if (options.verify.quiet) return last;
  Table table;
  table.column("defect");
  for (const char* header : {"runs", "caught", "elsewhere", "equivalent", "missed"})
    table.column(header, Table::Align::right);
  for (const MutantTally& one : tallies) table.row(row_of(one));
  table.row(row_of(all));
  std::string text = head_line(campaign.head.document) + "\n" + table.text(style);
  for (const MutantRun& run : campaign.runs) {
    if (run.unmet.empty()) continue;
    text += fmt::format("\n{}: {} ({})\n", to_word(run.end), run.name, run.kind);
    for (const std::string& unmet : run.unmet) text += fmt::format("  {}\n", unmet);
    text += fmt::format("  again: {}\n", run.again);
  }
  return text + "\n" + last;
}

}  // namespace

int campaign_of_mutants(const CampaignOptions& options) {
  if (const auto errors = empty_shard(options, options.mutants); !errors.empty())
    return bad_input(errors, options.verify.json);
  const auto place = campaign_place(options.verify);
  if (!place) return bad_input(place.errors(), options.verify.json);
  const BusyCores busy(options.busy);
  MutantCampaign campaign;
  in_batches(options.seed, options.mutants, [&](uint64_t first, int64_t count) {
    return Batch(options, place.value(), first, count).run(&campaign);
  });
  campaign.head.document.seed = options.seed;
  const std::vector<MutantTally> tallies = tally(campaign.runs);
  const MutantTally all = sum_of(tallies);
  const int code = campaign.head.exit_code(all.missed + all.elsewhere > 0, false);
  Json json = campaign.head.json("mutants", options.seed, code);
  json["kinds"] = as_json(tallies);
  json["not_caught"] = not_caught_json(campaign.runs);
  return report_campaign(options.verify, json, text_of_mutants(options, campaign, tallies, code),
                         code);
}

}  // namespace lockstep
