#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/judge/judge.h"
#include "sim/report/document.h"
#include "sim/report/moving_line.h"
#include "sim/report/text_style.h"

namespace lockstep {

// What `verify` and `run` print on standard output.
struct TerminalOptions {
  bool quiet = false;    // only the last line
  bool verbose = false;  // one line a run, and every failure in full
  Style style{false};
  bool metrics = false;  // the table of every run that has metrics
  bool explain = false;  // every run in words (run_text()), instead of the failures alone
};

// Head line, table, stored goldens, failures, answer: the whole text, ending in a newline.
std::string terminal_text(const ResultDocument& document, const TerminalOptions& options);

// A row a scenario file.
Table results_table(const std::vector<RunResult>& runs);

// "pass: 255 runs, 1,004,311 tensors compared bit for bit, 0 differ; worst float64 distance
// 3.1e-16 (bound 1e-12)" or "fail: 1 of 31 runs; exit 1".
std::string answer_line(const ResultDocument& document);
// "pass: ..." with its first word, a verdict, in the verdict's color.
std::string colored_answer(const std::string& answer, const Style& style);

// One run that did not do what was expected, in full: what, where, why, how to see it again.
std::string failure_text(const RunResult& run, const Style& style);

// The command that has the run again; of a kept run, as a quotation, what it says of itself too.
std::string again_lines(const RunResult& run);

// "step 2, gradient of fc2.weight, bucket 1, element [17, 4], seen on ranks 0 1 2"
std::string divergence_place(const Divergence& divergence);

// "lockstep 0.1.0 (a1b2c3d)  LibTorch 1.13.1  Gloo 0.5.0  OpenBLAS 0.3.21 SkylakeX  2 cores  seed
// 123"
std::string head_line(const ResultDocument& document);

// Writes and flushes all of `text` on standard output: 0, or errno where there is no space or
// nobody who reads it.
int print(const std::string& text);

// `verify --markdown`: the table of scenarios, the kill matrix where there is one, and the answer.
std::string verify_markdown(const ResultDocument& document);

// Progress on standard error: on a terminal one line that moves, with what failed scrolling above
// it; elsewhere a plain line every five seconds at most, so that short runs say nothing.
class Progress {
 public:
  // What is to be run under one scenario name. cost: of a run, relative to others: processes take
  // some 30 times as long as ranks that are threads, and the time left must not jump by that.
  struct Group {
    int64_t runs = 0;
    int64_t cost = 1;
  };
  static constexpr int64_t kProcessCost = 30;

  // groups: by scenario name. `terminal`: standard error can_move(). Silent if quiet.
  Progress(std::map<std::string, Group> groups, bool terminal, bool quiet);

  void done(const RunResult& run);

  // "mlp_matrix 118/250  39 %  16 s left  0 failed", of the cost of all runs; public for tests.
  std::string line(const std::string& name, std::chrono::nanoseconds elapsed) const;

 private:
  std::map<std::string, Group> groups_;
  std::map<std::string, int64_t> done_;
  int64_t cost_ = 0, cost_done_ = 0, failed_ = 0;
  bool terminal_, quiet_;
  MovingLine moving_;
  Deadline start_, last_;
};

}  // namespace lockstep
