#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/recorded_comparison.h"
#include "sim/report/text_style.h"

namespace lockstep {

// What `lockstep compare` says of two recordings: text and --json.

// "rank 1 of A has no end: its records stop after step 5", and without its numbers "no_end".
std::string to_text(const RecordedGap& gap);
const char* to_word(RecordedGap::Kind kind);
std::optional<Verdict> verdict_of(RecordedVerdict verdict);  // nothing: nothing to compare
int exit_code_of(RecordedVerdict verdict);

// "A's own ranks disagree ...", a line for each side in which they do.
std::string ranks_text(const RankDivergence& of_a, const RankDivergence& of_b);
// A note for each side in which ranks hold buffers of their own.
std::string buffers_text(const RankDivergence& of_a, const RankDivergence& of_b);
// A line for each gap.
std::string gaps_text(const std::vector<RecordedGap>& gaps);
// What the last line says after "inconclusive: ", without its exit code.
std::string inconclusive_text(const std::vector<RecordedGap>& gaps, int64_t last_step);

// Of hashes. Ends in a newline.
std::string recorded_comparison_text(const RecordedComparison& comparison, const std::string& a,
                                     const std::string& b, bool quiet, const Style& style);

nlohmann::ordered_json gaps_json(const std::vector<RecordedGap>& gaps);
nlohmann::ordered_json ranks_json(const RankDivergence& ranks);
// The whole document.
nlohmann::ordered_json as_json(const RecordedComparison& comparison, const std::string& a,
                               const std::string& b);

}  // namespace lockstep
