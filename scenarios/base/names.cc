#include "scenarios/base/names.h"

#include <algorithm>

namespace lockstep {

bool is_named_in(const std::vector<std::string>& names, const std::string& tensor) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return tensor == name || tensor.starts_with(name + ".");
  });
}

}  // namespace lockstep
