#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/recorded_comparison.h"
#include "sim/report/text_style.h"
#include "sim/tools/compare/comparison.h"

namespace lockstep {

// What `lockstep compare` has to say of checkpoints: text and --json.
struct CompareDocument {
  struct File {
    FilePair pair;
    std::string a_format, b_format;   // empty: there is no such file
    CheckpointComparison comparison;  // empty where one is missing
    bool agrees() const { return !pair.a.empty() && !pair.b.empty() && comparison.agrees(); }
  };
  std::string a, b;  // as given
  std::string a_key, b_key;
  Tolerance tolerance;
  // Where the files are tensors that two recordings kept.
  struct Recordings {
    RankDivergence ranks_of_a, ranks_of_b;
    RankDivergence buffers_of_a, buffers_of_b;
    std::vector<RecordedGap> gaps;
    int64_t last_step = 0;  // that was compared
  };
  std::optional<Recordings> recordings;
  std::vector<File> files;
  std::optional<Verdict> verdict;  // nothing: nothing could be compared
  int exit_code = 0;
};

// Fills in verdict and exit code.
void conclude(CompareDocument* document);

nlohmann::ordered_json as_json(const CompareDocument& document);

struct CompareTextOptions {
  bool quiet = false;    // only the last line
  bool verbose = false;  // every tensor, every name, every file in full
};
// Ends in a newline.
std::string compare_text(const CompareDocument& document, const CompareTextOptions& options,
                         const Style& style);

// "equal", "close", "different", "other_shape", "other_dtype", "only_a", "only_b".
const char* to_word(TensorComparison::Outcome outcome);

}  // namespace lockstep
