#include "sim/calibrate/row_doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "scenarios/base/text.h"
#include "sim/calibrate/alternatives.h"

namespace lockstep {
namespace {

// Either row may be off by as much.
constexpr double kNoise = 2 * kLeastError;

std::string line_of(const PublishedRow& row) {
  return row.place.line > 0 ? fmt::format(" in line {}", row.place.line) : "";
}

InputError doubt(const PublishedRow& row, const std::string& message) {
  InputError warning = row.place;
  warning.message = message;
  return warning;
}

class Doubts {
 public:
  explicit Doubts(const PublishedTable& table) {
    for (const PublishedRow& row : table.rows)
      if (row.ranks == 1) note_one_rank(row);
    for (const PublishedRow& row : table.rows) {
      compare_with_same(row);
      compare_with_one_rank(row);
    }
  }
  InputErrors take() { return std::move(warnings_); }

 private:
  using Passes = std::pair<std::optional<int64_t>, std::optional<double>>;  // and their samples
  using Configuration = std::tuple<int64_t, std::optional<double>, Passes, bool>;

  static Passes passes_of(const PublishedRow& row) { return {row.passes, row.samples}; }

  // The fastest of them, whatever its cap: it sends nothing.
  void note_one_rank(const PublishedRow& row) {
    const auto [known, is_new] = alone_.emplace(passes_of(row), &row);
    if (!is_new && row.ms < known->second->ms) known->second = &row;
  }

  void compare_with_same(const PublishedRow& row) {
    const Configuration same{row.ranks, row.cap_mb, passes_of(row), row.synchronized};
    const auto [known, is_new] = first_.emplace(same, &row);
    if (is_new || std::fabs(row.ms / known->second->ms - 1) <= kNoise) return;
    warnings_.push_back(doubt(
        row, fmt::format("a step of {} {} takes {:.6g} ms here and {:.6g} ms{}, which is the same "
                         "configuration",
                         row.ranks, plural(row.ranks, "rank"), row.ms, known->second->ms,
                         line_of(*known->second))));
  }

  void compare_with_one_rank(const PublishedRow& row) {
    const auto one = alone_.find(passes_of(row));
    if (row.ranks == 1 || one == alone_.end() || row.ms >= one->second->ms * (1 - kNoise)) return;
    warnings_.push_back(doubt(
        row, fmt::format("a step of {} ranks takes {:.6g} ms, less than one rank's {:.6g} ms{}, "
                         "which has as much to compute: are they of the same batch a rank?",
                         row.ranks, row.ms, one->second->ms, line_of(*one->second))));
  }

  std::map<Passes, const PublishedRow*> alone_;
  std::map<Configuration, const PublishedRow*> first_;
  InputErrors warnings_;
};

}  // namespace

InputErrors doubts_of(const PublishedTable& table) { return Doubts(table).take(); }

}  // namespace lockstep
