#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What a worker writes beside its records when something is wrong: numbers and texts that do not
// fit into 32 bytes. The judge reads it; nothing in it is a verdict.

// The first difference of one lane as one rank saw it, with what is needed to name a cause.
struct MismatchEvidence {
  std::string lane;        // replica | replay | float64 | exact
  int64_t step = 0;        // 0: before the first step
  std::string state_kind;  // gradient | buffer | parameter | optimizer_state
  std::string tensor;
  int64_t bucket = -1;
  std::vector<int64_t> element;
  double run_value = 0;  // may be NaN
  double golden_value = 0;
  std::string run_bits, golden_bits;
  uint64_t ulp = 0, max_ulp = 0;
  int64_t differing = 0, numel = 0;
  std::vector<int64_t> ranks;  // lane replica: those that differ from rank 0

  // Over all gradients of that step (0 and false where they agree or are not known).
  int64_t gradients_total = 0;
  int64_t gradients_wrong = 0;
  std::vector<int64_t> buckets_wrong;  // every gradient of these differs, none outside them
  bool one_ratio = false;              // run = ratio x golden in all wrong gradients
  double ratio = 0;
  bool own_contribution = false;      // wrong gradients are this rank's own, divided but not summed
  bool own_undivided = false;         // ... neither divided nor summed
  bool single_contributions = false;  // every element of a wrong gradient is one rank's, divided
  int64_t missing_rank = -1;     // wrong gradients are the golden ones without that rank's part
  bool local_known = false;      // this rank's gradients before the reduction were compared
  bool local_wrong = false;      // ... and differ from the golden run's for this rank
  int64_t local_of_rank = -1;    // ... but equal the golden run's for that rank
  double local_ratio = 0;        // ... but are so many times the golden run's; 0: by no factor
  std::string present_in;        // run | golden: the one that alone has this tensor; else empty
  double own_added = 0;          // wrong gradients are golden + so many times this rank's own
  int64_t significant_bits = 0;  // that all wrong gradients have, where that is fewer than their
                                 // dtype's and the golden ones'; else 0
  int64_t bits_flipped = 0;      // in all of the state's kind, if few: else 0

  // Between the averaged gradients and the new weights.
  std::string clipping;         // before_sum | absent: what explains the gradients; else empty
  int64_t skipped_run = -1;     // steps that loss scaling has skipped so far; -1: no loss scaling
  int64_t skipped_golden = -1;  // ... in the golden run
  bool update_known = false;    // only weights differ, and they changed by update_ratio x golden
  double update_ratio = 0;
  // Parameters of which every wrong element is still that of the step before; did any other move?
  std::vector<std::string> weights_kept;
  bool weights_moved = false;
};

struct Evidence {
  std::string error_kind;  // a CommFailure's word, "exception", or empty
  std::string error;       // one line
  std::string phase;       // when it was thrown
  std::vector<MismatchEvidence> mismatches;
  std::vector<std::string> check_reasons;  // "manifest: rank 2: fc1.weight differs from rank 0's"
  std::string final_hash;                  // of the primary run
  int64_t optimizer_bytes = -1;            // of the state that this rank holds; -1: not known
  std::string reducer_data;  // JSON text of what rank 0's reducer says of itself, or empty
  std::string golden;        // JSON text of the comparison with the stored golden, or empty
};

std::string to_json_text(const Evidence& evidence);
std::optional<Evidence> evidence_from_json_text(const std::string& text);  // none: damaged

// "0x3c4a9d1f" for 4-byte elements, 16 digits for 8-byte ones.
std::string bits_text(uint64_t bits, int64_t element_bytes);

}  // namespace lockstep
