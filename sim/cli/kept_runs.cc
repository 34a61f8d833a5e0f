#include "sim/cli/kept_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/launch/stored_run.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string whole_path(const std::string& folder) {
  std::error_code ignored;
  return (fs::absolute(folder, ignored).lexically_normal() / "").parent_path().string();
}

std::vector<std::string> run_folders(const std::string& folder) {
  const std::string whole = whole_path(folder);
  std::vector<std::string> found;
  std::error_code error;
  if (!fs::exists(whole + "/plan.json", error))
    for (const auto& entry : fs::directory_iterator(whole, error))
      if (fs::exists(entry.path() / "plan.json", error)) found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found.empty() ? std::vector<std::string>{whole} : found;
}

InputError refused_folder(const std::string& folder, const std::string& why) {
  return option_error(fmt::format("{}: {}", folder, why),
                      "a folder that verify or run left, with --keep or of a run not as expected");
}

Expected<RunOutcome> read_run_folder(const std::string& folder) {
  std::string why;
  auto outcome = read_stored_run(folder, &why);
  if (!outcome) return refused_folder(folder, why);
  return std::move(*outcome);
}

}  // namespace lockstep
