#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/state_kind.h"
#include "sim/record/recorder.h"

namespace lockstep {

// What a worker writes beside its records when something is wrong: numbers and texts that do not
// fit into 32 bytes. The judge reads it; nothing in it is a verdict.

// The first difference of one lane as one rank saw it, with what is needed to name a cause.
struct MismatchEvidence {
  Lane lane{};
  int64_t step = 0;  // 0: before the first step
  std::optional<StateKind> state_kind;
  std::string tensor;
  int64_t bucket = -1;
  std::vector<int64_t> element;
  double run_value = 0;  // may be NaN
  double golden_value = 0;
  std::string run_bits, golden_bits;
  uint64_t ulp = 0, max_ulp = 0;
  int64_t differing = 0, numel = 0;
  std::vector<int64_t> ranks;  // lane replica: those that differ from rank 0

  int64_t not_finite = 0;         // elements of the state's kind; in the run
  int64_t golden_not_finite = 0;  // ... in the golden run

  // Over all gradients of that step (0 and false where they agree or are not known). In lane
  // float64 a gradient is wrong where it is beyond the bound.
  int64_t gradients_total = 0;
  int64_t gradients_wrong = 0;
  int64_t elements_wrong = 0, elements_total = 0;  // of the wrong gradients
  std::vector<int64_t> buckets_wrong;              // that hold all wrong gradients
  bool whole_buckets = false;  // every element of every gradient of these is wrong
  bool one_ratio = false;      // run = ratio x golden in all wrong elements
  double ratio = 0;
  bool own_contribution = false;      // wrong gradients are this rank's own, divided but not summed
  bool own_undivided = false;         // ... neither divided nor summed
  bool single_contributions = false;  // every element of a wrong gradient is one rank's, divided
  double own_ratio = 0;        // wrong gradients are so many times this rank's own; 0: they are not
  bool step_before = false;    // wrong elements are the run's of the step before
  bool misplaced = false;      // wrong elements are the golden run's from other places
  bool own_misplaced = false;  // ... are right but for this rank's own, added in other places
  bool within_rounding = false;  // wrong elements are no farther off than another order leads
  double own_norm = 0;           // L2 of all of this rank's own gradients
  // The wrong elements of the run and this rank's own, each as sums with random signs
  // (sim/worker/gradient_evidence.h); empty where not known.
  std::vector<double> run_sketch, own_sketch;
  int64_t missing_rank = -1;       // wrong gradients are the golden ones without that rank's part
  bool local_known = false;        // this rank's gradients before the reduction were compared
  bool local_wrong = false;        // ... and differ from the golden run's for this rank
  int64_t local_of_rank = -1;      // ... but equal the golden run's for that rank
  int64_t local_bits_flipped = 0;  // ... in so many bits, if few
  double local_ratio = 0;          // ... but are so many times the golden run's; 0: by no factor
  std::string present_in;          // run | golden: the one that alone has this tensor; else empty
  double own_added = 0;          // wrong gradients are golden + so many (or few) of this rank's own
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

// What ended a rank: a CommFailure, a checkpoint that could not be saved or loaded, any other
// exception (a user's hook among them).
enum class ErrorKind { none, timeout, peer_lost, rejected, closed, checkpoint, exception };
const char* to_word(ErrorKind kind);  // "" for none

// Everything that is decided by an error stands in these fields, -1 where it is not known. The text
// is for people: nothing reads it.
struct RankError {
  ErrorKind kind = ErrorKind::none;
  std::string text = {};   // one line
  std::string phase = {};  // when it was thrown
  int64_t rank = -1, step = -1;
  int64_t peer = -1;  // as in CommFacts, like all below
  int64_t sequence = -1, bucket = -1;
  int64_t waited_ms = -1, deadline_ms = -1;
};

// Something that a rank found wrong beside its numbers.
struct CheckReason {
  Check check = Check::manifest;
  int64_t rank = -1, step = -1;  // -1: of all, of none
  std::string text = {};         // for people: "rank 2: fc1.weight differs from rank 0's"
};
std::string to_text(const CheckReason& reason);  // "manifest: rank 2: ..."

struct Evidence {
  RankError error;
  std::vector<MismatchEvidence> mismatches;
  // A forward drew from LibTorch's default generator, which no golden run repeats; and the names of
  // modules that do so, as far as they are known.
  bool undeclared_draws = false;
  std::vector<std::string> random_layers;
  // Where a lane found a difference: the same forward twice, with the same weights, buffers and
  // samples, gave two results. It draws from a generator of its own, or counts its calls.
  bool unrepeatable_forward = false;
  std::vector<CheckReason> check_reasons;
  std::string final_hash;        // of the primary run
  int64_t optimizer_bytes = -1;  // of the state that this rank holds; -1: not known
  std::string reducer_data;      // JSON text of what rank 0's reducer says of itself, or empty
  std::string golden;            // JSON text of the comparison with the stored golden, or empty
};

std::string to_json_text(const Evidence& evidence);
std::optional<Evidence> evidence_from_json_text(const std::string& text);  // none: damaged

// "0x3c4a9d1f" for 4-byte elements, 16 digits for 8-byte ones.
std::string bits_text(uint64_t bits, int64_t element_bytes);

}  // namespace lockstep
