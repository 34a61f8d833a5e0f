#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/campaign/mutant_draw.h"
#include "sim/campaign/mutant_tally.h"
#include "sim/cli/campaign_runs.h"
#include "sim/cli/conclude.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct MutantCampaign {
  ResultDocument head;  // machine, libraries, errors; no runs
  std::vector<MutantRun> runs;
  int64_t duration_ms = 0;
};

// Takes over what `batch` says beside its runs. False: it did not come to its end.
bool take_head(ResultDocument&& batch, MutantCampaign* campaign) {
  campaign->duration_ms += batch.duration_ms;
  const bool complete = batch.errors.empty() && batch.exit_code < 128;
  if (campaign->runs.empty() || !complete) {
    batch.runs.clear();
    campaign->head = std::move(batch);
  }
  return complete;
}

class Batch {
 public:
  Batch(const CampaignOptions& options, const CampaignPlace& place, uint64_t first, int64_t count)
      : options_(options),
        place_(place),
        folder_(fmt::format("{}/batch-{}", place.directory.path(), first)) {
    for (int64_t i = 0; i < count; ++i) {
      Json document = mutant_case(first + static_cast<uint64_t>(i));
      cases_.emplace(document["name"].get<std::string>(), std::move(document));
    }
  }

  bool run(MutantCampaign* campaign) {
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
      run.again =
          "lockstep campaign --mutants 1 --seed " + run.name.substr(run.name.rfind('-') + 1);
      ended_.push_back(
          end_of(run, cases_.at(run.name), twin == clean.runs.end() ? nullptr : &*twin));
    }
    bool complete = take_head(std::move(mutants), campaign);
    if (!twins.empty()) complete = complete && take_twins(std::move(clean), campaign);
    campaign->runs.insert(campaign->runs.end(), ended_.begin(), ended_.end());
    return complete;
  }

 private:
  static bool take_twins(ResultDocument&& clean, MutantCampaign* campaign) {
    campaign->duration_ms += clean.duration_ms;
    if (clean.errors.empty() && clean.exit_code < 128) return true;
    clean.runs.clear();
    campaign->head = std::move(clean);
    return false;
  }

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
  const char* verdict = code == kExitPass ? "pass" : code == kExitFail ? "fail" : "inconclusive";
  return fmt::format(
      "{}: of {} defects {} caught where they had to be, {} elsewhere, {} missed; {} changed "
      "nothing ({} of them had nothing to act on); {:.0f} s",
      verdict, grouped(all.runs), grouped(all.caught), grouped(all.elsewhere), grouped(all.missed),
      grouped(all.equivalent), grouped(all.idle), static_cast<double>(duration_ms) / 1000);
}

std::string text_of_mutants(const CampaignOptions& options, const MutantCampaign& campaign,
                            const std::vector<MutantTally>& tallies, int code) {
  const MutantTally all = sum_of(tallies);
  std::string last = mutants_answer(all, campaign.duration_ms, code) + "\n";
  if (options.verify.quiet) return last;
  Table table;
  table.column("defect");
  for (const char* header : {"runs", "caught", "elsewhere", "equivalent", "missed"})
    table.column(header, Table::Align::right);
  for (const MutantTally& one : tallies) table.row(row_of(one));
  table.row(row_of(all));
  std::string text = head_line(campaign.head) + "\n" +
                     table.text(Style(wants_color(options.verify.color, STDOUT_FILENO)));
  for (const MutantRun& run : campaign.runs) {
    if (run.unmet.empty()) continue;
    text += fmt::format("\n{}: {} ({})\n", to_word(run.end), run.name, run.kind);
    for (const std::string& unmet : run.unmet) text += fmt::format("  {}\n", unmet);
    text += fmt::format("  again: {}\n", run.again);
  }
  return text + "\n" + last;
}

int code_of(const MutantCampaign& campaign, const MutantTally& all) {
  for (const InputError& error : campaign.head.errors) fmt::print(stderr, "{}\n", to_text(error));
  if (campaign.head.exit_code >= 128) return campaign.head.exit_code;
  if (all.missed + all.elsewhere > 0) return kExitFail;
  return campaign.head.errors.empty() ? kExitPass : kExitInconclusive;
}

}  // namespace

int campaign_of_mutants(const CampaignOptions& options) {
  const auto place = campaign_place(options.verify);
  if (!place) return bad_input(place.errors(), options.verify.json);
  const BusyCores busy(options.busy);
  MutantCampaign campaign;
  in_batches(options.seed, options.mutants, [&](uint64_t first, int64_t count) {
    return Batch(options, place.value(), first, count).run(&campaign);
  });
  campaign.head.seed = options.seed;
  const std::vector<MutantTally> tallies = tally(campaign.runs);
  const int code = code_of(campaign, sum_of(tallies));
  Json json = {{"campaign", "mutants"},
               {"seed", options.seed},
               {"exit_code", code},
               {"duration_ms", campaign.duration_ms},
               {"machine", as_json(campaign.head.machine)},
               {"libraries", as_json(campaign.head.libraries)},
               {"kinds", as_json(tallies)},
               {"not_caught", not_caught_json(campaign.runs)}};
  return report_campaign(options.verify, json, text_of_mutants(options, campaign, tallies, code),
                         code);
}

}  // namespace lockstep
