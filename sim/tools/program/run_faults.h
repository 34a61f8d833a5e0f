#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/faults.h"
#include "scenarios/json/schema.h"

namespace lockstep {

// A fault of scenarios/faults.h that the agent acts out in a program: "kill rank=1 step=3". Two
// addresses are a program's alone: `collective`, a number from 1 or a name, and `at_ms`, counted
// from the rendezvous, for faults that need no place in the program.
struct ProgramFault {
  std::string text;  // as it was given
  Fault fault;
  std::optional<int64_t> sequence;  // of the collective, and what it is called
  std::string collective;
  std::optional<int64_t> at_ms;
};

// Kinds of the table that the agent can act out, in its order.
std::vector<FaultKind> program_fault_kinds();

// "KIND key=value ..." as JSON, or why it is none.
Expected<nlohmann::ordered_json> program_fault_words(const std::string& text);
// The words that say the same: {"kind": "kill", "rank": 1}.
std::string program_fault_text(const nlohmann::ordered_json& json);

// Of an object: nothing where there are problems, with pointers into it. `text`: as it was given.
std::optional<ProgramFault> program_fault_from(nlohmann::ordered_json json, const std::string& text,
                                               int64_t world, std::vector<SchemaProblem>* problems);

// Bad input: a kind that is not one of them (with the reason, where there is one), a key that the
// kind has not, a value out of its range, a rank that is none of `world`.
Expected<ProgramFault> parse_program_fault(const std::string& text, int64_t world);

// What the agent reads (python/lockstep/agent/run/faults.py).
nlohmann::ordered_json agent_json(const std::vector<ProgramFault>& faults);

}  // namespace lockstep
