#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reducer/reducer.h"
#include "scenarios/base/part.h"

namespace lockstep {

// Reducers of one's own: derive from Reducer (reducer.h says what each call owes; kinds/
// reducer_base.h does what all of ours do alike), say LOCKSTEP_REGISTER_REDUCER("my_reducer",
// MyReducer), and ask for it in a scenario:
//   "reducer": {"kind": "registered", "name": "my_reducer", "options": {"chunks": 4},
//               "same_bits_as": "per_parameter"}
// `same_bits_as` is its claim, which lane replay then judges: the shipped reducer that adds and
// divides alike. Without it that lane does not apply; replica, float64, rounding and exact do.

// What a reducer is made of. Communicator and probe outlive it; what it needs of the rest it
// copies.
struct ReducerParts {
  const NamedTensors& parameters;  // in registration order; frozen ones do not require a gradient
  const NamedTensors& buffers;
  Communicator& communicator;
  Probe& probe;                   // what is reported to it is what timelines and reports show
  const ReducerOptions& options;  // its own keys: options.own
};

using ReducerFactory = std::function<std::unique_ptr<Reducer>(const ReducerParts& parts)>;
// Returns true; a name that is taken aborts. Call before main(), or at least before any run.
bool register_reducer(const std::string& name, ReducerFactory factory);
// Throws std::runtime_error that says which there are, where none has the name.
void find_reducer(const std::string& name);

// A class with a constructor from `const lockstep::ReducerParts&`.
#define LOCKSTEP_REGISTER_REDUCER(name, Type)         \
  LOCKSTEP_REGISTERED = ::lockstep::register_reducer( \
      name, [](const ::lockstep::ReducerParts& parts) { return std::make_unique<Type>(parts); })

// Throws std::runtime_error for a name that nobody registered.
std::unique_ptr<Reducer> make_registered_reducer(const ReducerParts& parts);

}  // namespace lockstep
