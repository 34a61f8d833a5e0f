#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "sim/main/verify_apart.h"

// GoogleTest matchers for scenarios, which are paths of files or JSON text:
//
//   EXPECT_THAT("scenarios/mine.json", lockstep::IsEquivalentToOneDevice());
//
// and the main that a test program with them needs, since ranks and golden runs are processes of
// this same program:
//
//   int main(int argc, char** argv) { return lockstep::run_tests(argc, argv); }
//
// Needs GoogleMock, which the program links itself. Each use runs all runs of the scenario.

namespace lockstep {

// Neither a matcher nor its Not() may be satisfied by what was not judged (no such file, a rank
// that died): the test fails either way.
inline void expect_judged(const std::string& scenario, const ApartVerdict& result) {
  if (result.verdict != Verdict::inconclusive) return;
  std::string why;
  for (const std::string& finding : result.findings) why += "\n  " + finding;
  ADD_FAILURE() << scenario << " is inconclusive, neither equivalent to one device nor not:" << why;
}

inline std::string listed(const ApartVerdict& result) {
  std::string text = to_word(result.verdict);
  for (const std::string& finding : result.findings) text += "\n  " + finding;
  return text;
}

// Every run of the scenario ends with the weights of one device: its lanes pass, at least one of
// them compares with a golden run, and its control was detected. What the scenario expects does not
// matter. A failure names step, tensor, bucket, element, both values and the class of the cause.
// Scenarios that are inconclusive or missing fail the test under Not(), too.
MATCHER(IsEquivalentToOneDevice,
        std::string(negation ? "differs" : "is equivalent") + " to training on one device") {
  const ApartVerdict result = verify_apart(arg);
  expect_judged(arg, result);
  *result_listener << "which " << listed(result);
  if (result.verdict == Verdict::pass && !result.against_one_device)
    *result_listener << ", but of some run no lane that passed compares it with one device";
  return result.verdict == Verdict::pass && result.against_one_device;
}

// Some run of the scenario differs from one device, and the judge says why: a word of the closed
// list of causes ("wrong_divisor", "missing_bucket"; docs/verdicts.md).
MATCHER_P(DivergesBecauseOf, cause,
          std::string(negation ? "does not diverge" : "diverges") + " with cause " + cause) {
  const ApartVerdict result = verify_apart(arg);
  expect_judged(arg, result);
  *result_listener << "which " << listed(result);
  return std::count(result.causes.begin(), result.causes.end(), std::string(cause)) > 0;
}

// The main of a program of such tests.
inline int run_tests(int argc, char** argv) {
  serve_tests(argc, argv);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace lockstep
