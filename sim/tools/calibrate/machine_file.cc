#include "sim/tools/calibrate/machine_file.h"

#include <fmt/format.h>

#include <exception>

#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"

namespace lockstep {

std::optional<InputError> write_machine(const std::string& path, const std::string& file) {
  if (path.empty()) return std::nullopt;
  try {
    write_atomically(path, file);
    return std::nullopt;
  } catch (const std::exception& error) {
    return option_error(fmt::format("--out {}", error.what()));
  }
}

int leave_machine(const std::string& path, const std::string& file, const std::string& told,
                  const std::string& answer) {
  if (path.empty()) return print_result(file, kExitPass);
  if (const auto error = write_machine(path, file)) return bad_input({*error});
  return print_result(fmt::format("{}{}; wrote {}\n", told, answer, path), kExitPass);
}

}  // namespace lockstep
