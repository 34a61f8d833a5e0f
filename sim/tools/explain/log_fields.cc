#include "sim/tools/explain/log_fields.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr size_t kTextMost = 240;

std::string lower_begin(std::string_view line) {
  std::string low(line.substr(0, 200));
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

}  // namespace

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<int64_t> leading_number(std::string_view text) {
  while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  size_t end = !text.empty() && text[0] == '-' ? 1 : 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  return number_in<int64_t>(text.substr(0, end));
}

std::string_view after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + key.size());
}

int64_t number_after(std::string_view line, std::string_view key, int64_t otherwise) {
  const std::string_view rest = after(line, key);
  return rest.data() == nullptr ? otherwise : leading_number(rest).value_or(otherwise);
}

bool holds_any(std::string_view line, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

std::optional<int64_t> rank_at(std::string_view text) {
  const auto number = leading_number(text);
  return number && *number >= 0 && *number < kLogRankMost ? number : std::nullopt;
}

std::string cut(std::string_view text) { return std::string(text.substr(0, kTextMost)); }

std::string_view after_progress(std::string_view text) {
  for (const std::string_view rate : {"it/s", "s/it"}) {
    const size_t at = text.find(rate);
    const size_t end = at == std::string_view::npos ? at : text.find(']', at);
    if (end != std::string_view::npos && end + 1 < text.size()) return text.substr(end + 1);
  }
  return text;
}

std::set<int64_t> ranks_in(std::string_view text) {
  std::set<int64_t> ranks;
  while (const auto first = rank_at(text)) {
    while (!text.empty() && (text[0] == ' ' || is_digit(text[0]))) text.remove_prefix(1);
    int64_t last = *first;
    if (text.size() > 1 && text[0] == '-' && is_digit(text[1])) {
      text.remove_prefix(1);
      last = rank_at(text).value_or(*first);
      while (!text.empty() && is_digit(text[0])) text.remove_prefix(1);
    }
    for (int64_t rank = *first; rank <= last; ++rank) ranks.insert(rank);
    if (text.empty() || text[0] != ',') break;
    text.remove_prefix(1);
  }
  return ranks;
}

bool counts_a_step(std::string_view line) {
  constexpr std::array<std::string_view, 5> kWords = {"step", "epoch", "iter", "iteration", "loss"};
  const std::string low = lower_begin(line);
  for (const std::string_view word : kWords)
    for (size_t at = low.find(word); at != std::string::npos; at = low.find(word, at + 1)) {
      if (at > 0 && std::isalnum(static_cast<unsigned char>(low[at - 1])) != 0) continue;
      const size_t number = low.find_first_not_of(" :=[#", at + word.size());
      if (number != std::string::npos && number > at + word.size() && is_digit(low[number]))
        return true;
    }
  return false;
}

bool tells_of_steps(std::string_view line) {
  constexpr std::array<std::string_view, 4> kWords = {"step", "epoch", "iter", "loss"};
  const std::string low = lower_begin(line);
  return holds_any(low, kWords) && low.find_first_of("0123456789") != std::string::npos;
}

}  // namespace lockstep
