#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Pieces of a log's line.

// Ranks beyond are none: of no job, and no input may make more of them.
inline constexpr int64_t kLogRankMost = 100'000;

bool is_digit(char c);
// The number at the start of `text`, after spaces.
std::optional<int64_t> leading_number(std::string_view text);
// What stands behind `key`; without data where the key is not there.
std::string_view after(std::string_view line, std::string_view key);
bool holds_any(std::string_view line, std::span<const std::string_view> words);
int64_t number_after(std::string_view line, std::string_view key, int64_t otherwise = -1);
std::optional<int64_t> rank_at(std::string_view text);
// Cut short, as it stands.
std::string cut(std::string_view text);

// What stands behind a progress bar that no line's end was written after.
std::string_view after_progress(std::string_view text);
// "0-3,5", "4, 5, 6": as far as it is one.
std::set<int64_t> ranks_in(std::string_view text);

// "step 31", "Epoch: [3/10]", "loss=0.25": what no stack of calls holds.
bool counts_a_step(std::string_view line);
// "step 31 loss 0.25"
bool tells_of_steps(std::string_view line);

}  // namespace lockstep
