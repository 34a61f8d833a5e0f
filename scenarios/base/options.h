#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

using OptionValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

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

}  // namespace lockstep
