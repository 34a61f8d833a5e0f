#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// A machine file from runs that were kept.
struct CalibrateOptions {
  std::vector<std::string> folders;  // of runs, or of invocations
  std::string out;                   // the machine file; empty: standard output shows it
  int64_t cores = 0;                 // of the host that they shared; 0: of this one
  bool quiet = false;
};
int calibrate(const CalibrateOptions& options);
void add_calibrate(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
