#include "sim/cli/save_weights.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "scenarios/base/error.h"
#include "sim/cli/conclude.h"
#include "sim/report/document.h"
#include "sim/weights/export_folder.h"
#include "sim/weights/save.h"

namespace lockstep {

std::optional<InputError> save_weights_error(const std::string& path,
                                             const std::vector<SelectedFile>& files) {
  if (const std::string why = why_no_checkpoint_name(path); !why.empty())
    return option_error("--save-weights " + why);
  if (const auto why = why_not_writable(path)) return option_error("--save-weights " + *why);
  size_t runs = 0;
  for (const SelectedFile& file : files) runs += file.plans.size();
  if (runs == 1) return std::nullopt;
  return option_error(fmt::format("--save-weights {}: a file holds one run, not {}", path, runs),
                      "one run: pin axes with --set or choose with --filter");
}

const RunPlan& only_run(const std::vector<SelectedFile>& files) {
  for (const SelectedFile& file : files)
    if (!file.plans.empty()) return file.plans.front();
  LOCKSTEP_CHECK(false, "no run is selected");
}

std::optional<InputError> save_weights(const std::string& path, const std::string& export_dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(export_dir + "/manifest.json", ignored))
    return option_error(
        fmt::format("--save-weights {}: the run did not reach its end, and left no weights", path));
  const auto state = read_export(export_dir);
  if (!state) return state.errors().front();
  try {
    save_checkpoint(path, state.value().tensors);
  } catch (const std::exception& error) {
    return option_error(fmt::format("--save-weights {}", error.what()));
  }
  return std::nullopt;
}

}  // namespace lockstep
