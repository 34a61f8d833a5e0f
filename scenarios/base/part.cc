#include "scenarios/base/part.h"

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

template <class T>
const T& get(const Options& options, std::string_view key) {
  auto found = options.all().find(key);
  LOCKSTEP_CHECK(found != options.all().end(), "no option " + std::string(key));
  const T* value = std::get_if<T>(&found->second);
  LOCKSTEP_CHECK(value != nullptr, "another type is stored for option " + std::string(key));
  return *value;
}

}  // namespace

bool Options::has(std::string_view key) const { return values_.find(key) != values_.end(); }
bool Options::flag(std::string_view key) const { return get<bool>(*this, key); }
int64_t Options::integer(std::string_view key) const { return get<int64_t>(*this, key); }
const std::string& Options::text(std::string_view key) const {
  return get<std::string>(*this, key);
}

double Options::number(std::string_view key) const {
  auto found = values_.find(key);
  if (found != values_.end() && std::holds_alternative<int64_t>(found->second))
    return static_cast<double>(std::get<int64_t>(found->second));
  return get<double>(*this, key);
}

std::vector<int64_t> Options::integers(std::string_view key) const {
  return get<std::vector<int64_t>>(*this, key);
}

const std::vector<std::string>& Options::texts(std::string_view key) const {
  return get<std::vector<std::string>>(*this, key);
}

void Options::set(std::string key, OptionValue value) {
  values_.insert_or_assign(std::move(key), std::move(value));
}

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
