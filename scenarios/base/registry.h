#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "scenarios/base/check.h"

namespace lockstep {

// What a program's own sources put up under names, before main() and in any order: models, data
// sets, reducers, comm hooks. Scenarios ask for them by kind "registered". Thread rule: add() on
// the thread that runs static initializers; get() on any thread after that.
template <class Factory>
class Registry {
 public:
  // `what`: "model", for messages.
  explicit Registry(std::string what) : what_(std::move(what)) {}

  // Returns true; a name that is taken aborts.
  bool add(const std::string& name, Factory factory) {
    const bool is_new = factories_.emplace(name, std::move(factory)).second;
    LOCKSTEP_CHECK(is_new, "a " + what_ + " \"" + name + "\" is registered already");
    return true;
  }

  // Throws std::runtime_error that says which names there are.
  const Factory& get(const std::string& name) const {
    const auto found = factories_.find(name);
    if (found != factories_.end()) return found->second;
    std::string known;
    for (const auto& [other, factory] : factories_) known += " " + other;
    throw std::runtime_error(
        "no " + what_ + " \"" + name +
        "\" is registered in this worker; there are:" + (known.empty() ? " none" : known));
  }

 private:
  const std::string what_;
  std::map<std::string, Factory> factories_;
};

// For LOCKSTEP_REGISTER_*: the name of a variable of which one source may have several.
#define LOCKSTEP_JOIN_NAMES(a, b) a##b
#define LOCKSTEP_NAME_OF_LINE(prefix, line) LOCKSTEP_JOIN_NAMES(prefix, line)
#define LOCKSTEP_REGISTERED \
  [[maybe_unused]] static const bool LOCKSTEP_NAME_OF_LINE(lockstep_registered_, __LINE__)

}  // namespace lockstep
