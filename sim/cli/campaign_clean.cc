#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "sim/campaign/clean_draw.h"
#include "sim/campaign/clean_tally.h"
#include "sim/campaign/tally.h"
#include "sim/cli/campaign_runs.h"
#include "sim/cli/conclude.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"

namespace lockstep {
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
  for (int64_t i = 0; i < count; ++i) cases.push_back(clean_case(first + static_cast<uint64_t>(i)));
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
    table.row({lane.lane, grouped(lane.pass), grouped(lane.fail), grouped(lane.undecided),
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
  const Style style(wants_color(options.verify.color, STDOUT_FILENO));
  std::string last =
      colored_answer(clean_answer(tally, campaign.head.duration_ms, code), style) + "\n";
  if (options.verify.quiet) return last;
  std::string text = head_line(campaign.head.document) + "\n" + lanes_text(tally, style) +
                     statistic_text(tally.statistics);
  for (const CleanRun& run : campaign.runs) {
    if (run.verdict == "pass") continue;
    text +=
        fmt::format("\n{}: {}\n  {}\n  again: {}\n",
                    run.verdict == "fail" ? "accused" : "undecided", run.name, run.why, run.again);
  }
  return text + "\n" + last;
}

Json not_passed(const std::vector<CleanRun>& runs) {
  Json list = Json::array();
  for (const CleanRun& run : runs)
    if (run.verdict != "pass")
      list.push_back({{"name", run.name},
                      {"verdict", run.verdict},
                      {"failed", run.failed},
                      {"why", run.why},
                      {"again", run.again}});
  return list;
}

}  // namespace

int campaign_of_clean_runs(const CampaignOptions& options) {
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

}  // namespace lockstep
