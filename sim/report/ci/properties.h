#pragma once

#include <string>

#include "sim/report/ci/test_report.h"
#include "sim/report/machine.h"

namespace lockstep {

// Of a whole report: versions, machine, seed.
Properties properties_of(const Machine& machine, const Libraries& libraries, uint64_t seed);

// A report of which no case is undecided, though the verdict is inconclusive, gets one that says
// so.
void say_inconclusive(const std::string& verdict, TestReport* report);

// "fail: 1 of 31 runs; exit 1\n" without its end of line.
std::string without_end(std::string text);

}  // namespace lockstep
