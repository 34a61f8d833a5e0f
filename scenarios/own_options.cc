#include "scenarios/own_options.h"

namespace lockstep {

Options own_options(const Options& options) {
  Options own;
  const std::string prefix = kOwnOptionPrefix;
  for (const auto& [key, value] : options.all())
    if (key.starts_with(prefix)) own.set(key.substr(prefix.size()), value);
  return own;
}

Options without_own_options(const Options& options) {
  Options others;
  for (const auto& [key, value] : options.all())
    if (!key.starts_with(kOwnOptionPrefix)) others.set(key, value);
  return others;
}

void set_own_options(const Options& own, Options* options) {
  for (const auto& [key, value] : own.all()) options->set(kOwnOptionPrefix + key, value);
}

}  // namespace lockstep
