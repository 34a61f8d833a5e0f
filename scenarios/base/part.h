#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

// The options that stand beside a `kind`. The parser has checked types and ranges against the
// schema and filled in its defaults, so a key that is missing here is our own bug: accessors abort.
// An integer is accepted where a number is asked for, not the other way round.
class Options {
 public:
  bool has(std::string_view key) const;
  bool flag(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  const std::vector<std::string>& texts(std::string_view key) const;

  void set(std::string key, OptionValue value);
  const std::map<std::string, OptionValue, std::less<>>& all() const { return values_; }
  bool operator==(const Options&) const = default;

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

// One replaceable part of a scenario: `{"kind": "linear", "in_features": 10}`.
struct Part {
  std::string kind;
  Options options;
  bool operator==(const Part&) const = default;
};

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

// Parts of kind "registered" are given what stands under "options" in the scenario. Between parser
// and factory those keys carry this prefix, so that none of them is taken for one of ours.
inline constexpr const char* kOwnOptionPrefix = "options.";

// Those keys alone, by the names that the scenario gave them; all others; and the way back.
Options own_options(const Options& options);
Options without_own_options(const Options& options);
void set_own_options(const Options& own, Options* options);

}  // namespace lockstep
