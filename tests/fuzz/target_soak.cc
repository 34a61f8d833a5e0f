#include <nlohmann/json.hpp>

#include <string>

#include "sim/tools/soak/report.h"
#include "sim/tools/soak/soak.h"
#include "tests/fuzz/fuzz.h"

// The ledger of a soak, as another machine left it: what it adds up to, and where one goes on.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  fuzz::leave(ledger_path(fuzz::folder()), std::string(fuzz::text_of(data, size)));
  const auto ledger = read_ledger(fuzz::folder());
  if (!ledger) {
    fuzz::check_errors(ledger.errors());
    return 0;
  }
  for (const SoakWorkRow& row : soak_works()) {
    SoakOptions options;
    options.shard = {2, 3};
    const SoakSlice next = next_slice(options, ledger.value(), row.work);
    for (const SoakSlice& one : ledger.value())
      fuzz::promised(
          one.work != row.work || next.seed >= one.seed + static_cast<uint64_t>(one.seeds),
          "no seed is run twice");
  }
  SoakReport report;
  report.slices = report.judged = ledger.value();
  (void)soak_markdown(report);
  (void)as_json(report).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  fuzz::promised(!soak_text(report, Style(false)).empty(), "there is a table");
  return 0;
}
