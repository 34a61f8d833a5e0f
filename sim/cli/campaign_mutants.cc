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
  CampaignHead head;
  std::vector<MutantRun> runs;
};

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
  const Style style(wants_color(options.verify.color, STDOUT_FILENO));
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
