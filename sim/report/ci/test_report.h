#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/sweep_document.h"

namespace lockstep {

// A result as continuous integration reads it: cases that passed, failed, or neither. The source of
// --junit (ci/junit.h) and of annotations and job summaries (ci/github.h).

using Properties = std::vector<std::pair<std::string, std::string>>;

struct TestCase {
  // inconclusive: neither passed nor failed. skipped: not run to its end, or excused by a baseline.
  enum class Result { passed, failed, inconclusive, skipped };
  std::string group;  // the scenario
  std::string name;   // the combination: "world_size=3 reducer=bucketed"; the scenario's if it has
                      // no axes
  Result result = Result::passed;
  std::string kind;     // of what is wrong: "wrong_divisor", "hang", "bad input"
  std::string message;  // what is wrong, in one line
  std::string text;     // the same in full
  double time_s = 0;
  Properties properties;
  std::string file;              // as the user gave it; empty: none
  int64_t line = 0, column = 0;  // in it, from 1; 0: not known
};

struct TestReport {
  std::string name;  // "lockstep verify"
  Properties properties;
  double time_s = 0;
  std::vector<TestCase> cases;  // those of a group stand together
  std::string answer;           // the last line of the terminal's text, without its end
};

// One case a run, in the order of the runs, then those that were not run.
TestReport test_report(const std::string& verb, const ResultDocument& document);
// One case a combination, then one for each threshold and for the baseline.
TestReport test_report(const SweepDocument& document);
// Bad input: one case an error, none of them passed or failed.
TestReport test_report(const InputErrors& errors);

struct CaseCounts {
  int64_t all = 0, passed = 0, failed = 0, inconclusive = 0, skipped = 0;
};
CaseCounts counts_of(const std::vector<TestCase>& cases);

// Of a whole report: versions, machine, seed.
Properties properties_of(const Machine& machine, const Libraries& libraries, uint64_t seed);

// A report of which no case is undecided, though the verdict is inconclusive, gets one that says
// so.
void say_inconclusive(std::optional<Verdict> verdict, TestReport* report);

// "fail: 1 of 31 runs; exit 1\n" without its end of line.
std::string without_end(std::string text);

}  // namespace lockstep
