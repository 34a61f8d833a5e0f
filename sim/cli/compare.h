#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace lockstep {

// Two checkpoints, or two folders of them; or two recorded runs.
struct CompareOptions {
  std::string a, b;
  std::string key, a_key, b_key;  // --key: of both
  double rtol = 0, atol = 0;
  std::string json;
  std::string color = "auto";
  bool quiet = false, verbose = false;
};
// The exit code: 0 equal, 1 different, 2 bad input, 4 nothing to compare.
int compare(const CompareOptions& options);

void add_compare(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
