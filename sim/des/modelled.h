#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What of a scenario virtual time answers for, in one table: it is what is let in, what is refused,
// and what docs/virtual_time.md says (tests/sim/des/modelled_test.cc). A key, or a word of one,
// that is not let in by a row is refused, so that nothing new is ignored in silence.

enum class Counts {
  time,      // it changes how long steps take, or how a run ends
  nothing,   // it changes what is computed, and no time: `why` says why
  left_out,  // it would take time, which is left out: the result says so
  refused
};
const char* to_word(Counts counts);

struct ModelledKey {
  // JSON pointer, "*" for an element of a list, "**" for everything below.
  const char* pointer;
  const char* subject;              // "fault", as errors call a value of it
  std::vector<const char*> values;  // as JSON without quotation marks; empty: any
  Counts counts;
  const char* why;
};
const std::vector<ModelledKey>& modelled_keys();

// The row that decides about this value of a scenario's document; null: none, so it is refused.
const ModelledKey* row_for(const std::string& pointer, const std::string& value);

// Everything in the scenario that virtual time has no answer for, with its pointer. `notes` gets a
// sentence for what is left out.
InputErrors not_modelled(const Scenario& scenario, std::vector<std::string>* notes);

std::string modelled_markdown();  // the table of docs/virtual_time.md

}  // namespace lockstep
