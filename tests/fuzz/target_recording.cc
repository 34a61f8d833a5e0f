#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "sim/analysis/recorded_comparison.h"
#include "sim/analysis/recording.h"
#include "sim/judge/judge.h"
#include "sim/report/analyze_document.h"
#include "sim/tools/compare/recorded_report.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept_run.h"

// What the Python recorder leaves: recording.json, then after a line "---" the hashes of rank 0.
// The records are those of a run that was recorded well.
namespace {

using namespace lockstep;  // NOLINT

void analyze_recorded(const std::string& dir) {
  const auto outcome = read_recorded_run(dir);
  if (!outcome) return fuzz::check_errors(outcome.errors());
  const RecordedEnd end = end_of_recording(outcome.value());
  const Timeline timeline = timeline_of(until_step(outcome.value(), end.last_whole_step));
  RunResult result;
  result.metrics = metrics_of(timeline);
  result.straggler = find_straggler(models_of(timeline));
  (void)as_json(RecordedAnalysis{dir, 2, 0, result, end, &timeline});
}

void compare_recorded(const std::string& dir) {
  const auto hashes = read_recorded_hashes(dir);
  if (!hashes) return fuzz::check_errors(hashes.errors());
  const auto same = compare_recordings(hashes.value(), hashes.value());
  fuzz::promised(!same.first.found(), "a recording agrees with itself");
  (void)recorded_comparison_text(same, dir, dir, false, Style(false));
  (void)as_json(same, dir, dir);
}

const std::string& recording() {
  static const std::string made = [] {
    for (const char* rank : {"0", "1"}) {
      const std::string records = std::string("/rank-") + rank + ".records";
      const std::string dir = fuzz::kept_run().dir;
      fuzz::leave(fuzz::folder() + records, read_foreign_file(dir + records).value_or(""));
    }
    fuzz::leave(fuzz::folder() + "/rank-1.hashes",
                "{\"step\": 1, \"gradient\": {\"a\": \"b\"}, \"buffer\": {}, \"parameter\": {}, "
                "\"optimizer_state\": {}}\n");
    return fuzz::folder();
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& dir = recording();
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), "\n---\n", 2);
  fuzz::leave(dir + "/recording.json", parts[0]);
  if (parts.size() > 1) fuzz::leave(dir + "/rank-0.hashes", parts[1]);
  analyze_recorded(dir);
  compare_recorded(dir);
  return 0;
}
