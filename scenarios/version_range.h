#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Versions between bounds: "<2.4", ">=2.0 <2.4", "1.13" (that one and its 1.13.x). A plain value.
class VersionRange {
 public:
  // Comparisons <, <=, >, >= or = (also nothing) before numbers with dots, all of which must hold,
  // and words such as "+gloo" that the version must have behind its numbers; nothing where `text`
  // is not that.
  static std::optional<VersionRange> parse(const std::string& text);

  // Of `version` only the numbers at its start count: "2.14.1+debian" is 2.14.1. Numbers that a
  // bound leaves out match any: 2.4.1 is neither < 2.4 nor > 2.4.
  bool contains(const std::string& version) const;

 private:
  struct Bound {
    std::string comparison;
    std::vector<int> numbers;
  };
  std::vector<Bound> bounds_;
  std::vector<std::string> tags_;  // "+gloo"
};

}  // namespace lockstep
