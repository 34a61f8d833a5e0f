#include "sim/cli/export_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

InputError refused(const std::string& path, const std::string& why) {
  return option_error(fmt::format("--export {}: {}", path, why),
                      "an empty folder, or a path where one can be made");
}

}  // namespace

std::optional<InputError> make_export_folders(const std::string& path,
                                              std::vector<SelectedFile>* files) {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).lexically_normal();
  fs::create_directories(folder, error);
  if (error) return refused(path, error.message());
  if (!fs::is_empty(folder, error)) return refused(path, "is not empty");
  if (error) return refused(path, error.message());
  int64_t number = 0;
  for (SelectedFile& file : *files)
    for (RunPlan& plan : file.plans) {
      plan.export_dir = (folder / fmt::format("{:04}", ++number)).string();
      fs::create_directory(plan.export_dir, error);
      if (error) return refused(path, error.message());
    }
  return std::nullopt;
}

}  // namespace lockstep
