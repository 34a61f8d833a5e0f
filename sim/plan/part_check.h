#pragma once

#include <string>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What the checks of a scenario's parts share: a subject, and where errors go. `allowed` says what
// would be right.
class PartCheck {
 protected:
  PartCheck(const Scenario& scenario, InputErrors* errors) : s_(scenario), errors_(errors) {}

  void fail(std::string pointer, std::string message, std::string allowed) {
    errors_->push_back({"", 0, 0, std::move(pointer), std::move(message), std::move(allowed)});
  }
  void need(bool good, std::string pointer, std::string message, std::string allowed) {
    if (!good) fail(std::move(pointer), std::move(message), std::move(allowed));
  }

  const Scenario& s_;
  InputErrors* errors_;
};

}  // namespace lockstep
