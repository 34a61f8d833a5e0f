#include "sim/cli/recorded_tensors.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using KeptStep = std::optional<int64_t>;  // nothing: the end

// That rank 0 hashed in both, and so kept.
std::vector<KeptStep> steps_in_both(const RecordedRank& a, const RecordedRank& b) {
  std::vector<KeptStep> steps;
  for (const HashedStep& step : a.hashed)
    if (std::any_of(b.hashed.begin(), b.hashed.end(),
                    [&](const HashedStep& other) { return other.step == step.step; }))
      steps.emplace_back(step.step);
  if (a.end && b.end && a.end->step == b.end->step) steps.emplace_back(std::nullopt);
  return steps;
}

}  // namespace

Expected<CompareDocument> compare_recorded_tensors(const CompareOptions& options,
                                                   const RecordedHashes& a,
                                                   const RecordedHashes& b) {
  CompareDocument document;
  document.a = options.a;
  document.b = options.b;
  document.tolerance = options.tolerance();
  CompareDocument::Recordings found{
      divergence_of_ranks(a),   divergence_of_ranks(b), divergence_of_buffers(a),
      divergence_of_buffers(b), gaps_of(a, b),          0};
  for (const KeptStep& step : steps_in_both(a.ranks.front(), b.ranks.front())) {
    const FilePair pair{std::filesystem::path(recorded_tensors_path("", step)).filename().string(),
                        recorded_tensors_path(a.folder, step),
                        recorded_tensors_path(b.folder, step)};
    bool both = true;
    for (const auto& [side, path] :
         {std::pair{RecordedSide::a, &pair.a}, {RecordedSide::b, &pair.b}}) {
      std::error_code error;
      if (std::filesystem::exists(*path, error)) continue;
      found.gaps.push_back({RecordedGap::Kind::no_tensors, side, 0, step.value_or(0), 0});
      both = false;
    }
    if (!both) continue;
    auto file = compare_files(pair, "", "", document.tolerance);
    if (!file) return file.errors();
    document.files.push_back(std::move(file.value()));
    found.last_step = step ? *step : a.ranks.front().end->step;
  }
  document.recordings = std::move(found);
  conclude(&document);
  return document;
}

}  // namespace lockstep
