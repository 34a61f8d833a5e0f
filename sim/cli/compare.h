#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "sim/report/compare_document.h"

namespace lockstep {

// Two checkpoints, or two folders of them; or two recorded runs.
struct CompareOptions {
  std::string a, b;
  std::string key, a_key, b_key;  // --key: of both
  std::optional<double> rtol, atol;
  std::string json;
  std::string color = "auto";
  bool quiet = false, verbose = false;

  // Bit for bit is one, if somebody asks for it: --rtol 0.
  bool has_tolerance() const { return rtol || atol; }
  Tolerance tolerance() const { return {rtol.value_or(0), atol.value_or(0)}; }
};
// The exit code: 0 equal, 1 different, 2 bad input, 3 not known, 4 nothing to compare.
int compare(const CompareOptions& options);

// Two checkpoints, of each what stands below its key; or one that has no partner.
Expected<CompareDocument::File> compare_files(const FilePair& pair, const std::string& a_key,
                                              const std::string& b_key, const Tolerance& tolerance);
// --json, the text, the exit code.
int report_comparison(const CompareOptions& options, const CompareDocument& document);

void add_compare(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
