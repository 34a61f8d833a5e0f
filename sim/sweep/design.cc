#include "sim/sweep/design.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "sim/plan/layout.h"

namespace lockstep {
namespace {

constexpr double kMostCapMib = 65536;
constexpr int64_t kMostRanks = 4096;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

InputError refused(const char* option, const std::string& word, const std::string& allowed) {
  return option_error(fmt::format("{}: \"{}\"", option, printable(word)), allowed);
}

// `read`: of one word, or nothing.
template <class T, class Read>
Expected<std::vector<T>> list_of(const char* option, const std::string& text,
                                 const std::string& allowed, Read read) {
  std::vector<T> values;
  InputErrors errors;
  for (const std::string& word : words_of(text)) {
    const std::optional<T> value = read(word);
    if (!value)
      errors.push_back(refused(option, word, allowed));
    else if (std::find(values.begin(), values.end(), *value) != values.end())
      errors.push_back(refused(option, word, "each value once"));
    else
      values.push_back(*value);
  }
  if (!errors.empty()) return errors;
  return values;
}

// " find_unused_parameters=true"
std::string varied_text(const Cell& cell) {
  std::string text;
  for (const auto& [pointer, value] : cell.varied)
    text += fmt::format(" {}={}", printable(pointer.substr(pointer.rfind('/') + 1)), value);
  return text;
}

const std::vector<std::string>& reducers() {
  static const std::vector<std::string> all = {
      "bucketed", "c10d", "flat", "per_parameter", "manual", "sharded", "data_parallel", "none"};
  return all;
}

}  // namespace

std::string label_of(const Cell& cell) {
  std::string text = fmt::format("world_size={} reducer={}", cell.world_size, cell.reducer);
  if (cell.cap_mb) text += fmt::format(" bucket_cap_mb={}", *cell.cap_mb);
  return text + varied_text(cell);
}

std::string group_of(const Cell& cell) {
  return fmt::format("world_size={} reducer={}", cell.world_size, cell.reducer) + varied_text(cell);
}

std::vector<Cell> merged_by_layout(std::vector<Cell> cells) {
  std::vector<Cell> merged;
  std::optional<BucketLayout> last;
  for (Cell& cell : cells) {
    const auto layout = cell.cap_mb ? settled_layout(cell.plan, bytes_of_mib(*cell.cap_mb))
                                    : std::optional<BucketLayout>();
    const bool same =
        !merged.empty() && layout && layout == last && group_of(merged.back()) == group_of(cell);
    if (same && cell.cap_mb == kDefaultCapMib) {
      cell.same_caps_mb = std::move(merged.back().same_caps_mb);
      cell.same_caps_mb.push_back(*merged.back().cap_mb);
      merged.back() = std::move(cell);
    } else if (same) {
      merged.back().same_caps_mb.push_back(*cell.cap_mb);
    } else {
      merged.push_back(std::move(cell));
    }
    last = layout;
  }
  return merged;
}

std::vector<size_t> order_of_round(size_t count, int64_t round, uint64_t seed) {
  const auto pair = static_cast<uint64_t>(round / 2);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t left = count; left > 1; --left)  // Fisher and Yates
    std::swap(order[left - 1],
              order[substream_seed(seed, "sweep_order", pair * count + left) % left]);
  if (round % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

Expected<std::vector<double>> parse_caps(const std::string& text) {
  return list_of<double>("--caps", text, "auto, or MiB > 0 and <= 65536 with commas between them",
                         [](const std::string& word) {
                           const auto value = number_in<double>(word);
                           const bool fits = value && *value > 0 && *value <= kMostCapMib &&
                                             bytes_of_mib(*value) > 0;
                           return fits ? value : std::nullopt;
                         });
}

Expected<std::vector<int64_t>> parse_worlds(const std::string& text) {
  return list_of<int64_t>("--worlds", text, "numbers of ranks, 1 to 4096, with commas between them",
                          [](const std::string& word) {
                            const auto value = number_in<int64_t>(word);
                            return value && *value >= 1 && *value <= kMostRanks ? value
                                                                                : std::nullopt;
                          });
}

Expected<std::vector<std::string>> parse_reducers(const std::string& text) {
  for (const std::string& word : words_of(text)) {
    if (std::find(reducers().begin(), reducers().end(), word) != reducers().end()) continue;
    const auto meant = closest_word(word, reducers());
    InputError error = refused("--reducers", word, quoted_list(reducers()));
    if (meant) error.message += fmt::format("; did you mean \"{}\"?", *meant);
    return error;
  }
  return list_of<std::string>("--reducers", text, "",
                              [](const std::string& word) { return std::optional(word); });
}

}  // namespace lockstep
