#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/report/document.h"

namespace lockstep {

// What the kinds of campaigns share.

// Runs of many small scenarios with faults that are drawn, not written.
struct CampaignOptions {
  VerifyOptions verify;  // its output and execution; no selection
  int64_t seeds = 100;
  uint64_t seed = 1;
  bool stragglers = false;  // late ranks that cause no failure, under emulated compute
  bool enumerate = false;   // every fatal kind, rank and place instead of random ones
  int64_t draw = 0;         // of the enumeration only so many, drawn by the seed; 0: all
  int64_t mutants = 0;      // instead of faults: so many random defects, which must be caught
  int64_t clean = 0;        // instead of faults: so many correct runs, which must not be accused
  int64_t busy = 0;         // processes that keep the cores busy meanwhile
};

// Where a campaign runs. Bad input where there is no worker, or a path cannot be written.
struct CampaignPlace {
  std::string worker;
  RunDirectory directory;
};
Expected<CampaignPlace> campaign_place(const VerifyOptions& verify);

// Writes drawn documents as scenario files to `folder`, where they can be run again, and runs them
// there. Results are in alphabetical order of names. Errors of documents, which are our own bugs,
// and of the environment are in the document.
ResultDocument run_cases(const std::vector<nlohmann::ordered_json>& cases, VerifyOptions verify,
                         const std::string& worker, const std::string& folder);

// What the batches of a campaign say beside their runs.
struct CampaignHead {
  ResultDocument document;  // machine, libraries, errors; no runs
  int64_t duration_ms = 0;

  // Of a batch whose runs were taken out. False: it did not come to its end.
  bool take(ResultDocument&& batch);
  // Prints the errors. `failed`, `undecided`: what the runs say.
  int exit_code(bool failed, bool undecided) const;
  nlohmann::ordered_json json(const char* campaign, uint64_t seed, int code) const;
};
// "lockstep campaign --clean 1 --seed 7", for the case of that seed, which ends its name.
std::string campaign_again(const char* option, const std::string& name);

// Seeds first, first + 1, ... in batches of a size that memory is no question: `batch` is called
// with the first seed and the number of each, until it returns false.
void in_batches(uint64_t first, int64_t count,
                const std::function<bool(uint64_t first, int64_t count)>& batch);
// Of these seeds those of the machine's part (--shard); all where there are no parts.
std::vector<uint64_t> seeds_of_shard(const CampaignOptions& options, uint64_t first, int64_t count);
// Of a campaign of `count` runs, where the part has none; empty where it has.
InputErrors empty_shard(const CampaignOptions& options, int64_t count);
InputError fewer_runs(const Shard& shard);

// Keeps `count` processes busy for as long as it lives.
class BusyCores {
 public:
  explicit BusyCores(int64_t count);
  ~BusyCores();
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;

 private:
  struct Spinners;
  std::unique_ptr<Spinners> spinners_;
};

const char* verdict_of(int code);
// --json and --html, then `text` on standard output: the exit code.
int report_campaign(const VerifyOptions& verify, const nlohmann::ordered_json& json,
                    const std::string& text, int code);

int campaign_of_mutants(const CampaignOptions& options);
int campaign_of_clean_runs(const CampaignOptions& options);

}  // namespace lockstep
