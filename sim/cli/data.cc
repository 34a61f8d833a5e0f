#include <fmt/format.h>

#include "scenarios/image_files.h"
#include "sim/cli/verbs.h"

namespace lockstep {

int write_data(const DataOptions& options) {
  const auto files = write_images(options.kind, options.folder, options.samples, options.seed);
  if (!files) {
    InputErrors errors = files.errors();
    for (InputError& error : errors) error.pointer.clear();  // of a scenario: there is none here
    return bad_input(errors);
  }
  std::string text;
  for (const std::string& file : files.value()) text += file + "\n";
  return print_result(text, 0);
}

}  // namespace lockstep
