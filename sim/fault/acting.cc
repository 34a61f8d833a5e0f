#include "sim/fault/acting.h"

namespace lockstep {

const MutantSpec* acting(const std::vector<MutantSpec>& mutants, std::string_view kind,
                         int64_t rank, Recorder& recorder, std::optional<int64_t> bucket) {
  for (size_t i = 0; i < mutants.size(); ++i) {
    const MutantSpec& mutant = mutants[i];
    if (mutant.kind != kind || mutant.rank.value_or(rank) != rank ||
        mutant.step.value_or(recorder.step()) != recorder.step() ||
        (bucket && mutant.bucket.value_or(*bucket) != *bucket))
      continue;
    recorder.append(EventKind::receipt, static_cast<int32_t>(i));
    return &mutant;
  }
  return nullptr;
}

}  // namespace lockstep
