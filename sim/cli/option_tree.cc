#include "sim/cli/option_tree.h"

#include <algorithm>

namespace lockstep {
namespace {

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  if (words.positional) words.names = {option.get_single_name()};
  words.value = option.get_option_text();
  words.what = option.get_description();
  words.group = option.get_group();
  return words;
}

// Groups of options are apps without a name; each brings a --help of its own.
void add_options(const CLI::App& app, std::vector<OptionWords>* options) {
  for (const CLI::Option* option : app.get_options())
    if (!app.get_name().empty() || app.get_parent() == nullptr || option != app.get_help_ptr())
      options->push_back(words_of(*option));
  for (const CLI::App* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_options(*group, options);
}

VerbWords verb_of(const CLI::App& app, const std::string& name) {
  VerbWords verb{name, app.get_description(), app.get_footer(), {}, {}};
  add_options(app, &verb.options);
  for (const CLI::App* below : app.get_subcommands({}))
    if (!below->get_name().empty())
      verb.verbs.push_back(
          verb_of(*below, name.empty() ? below->get_name() : name + " " + below->get_name()));
  return verb;
}

}  // namespace

std::vector<std::string> OptionWords::choices() const {
  if (value.find('|') == std::string::npos) return {};
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find('|', begin), value.size());
    words.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool plain = std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return !word.empty() &&
           word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  });
  return plain ? words : std::vector<std::string>();
}

bool OptionWords::takes_path() const {
  return value.find("FILE") != std::string::npos || value.find("DIR") != std::string::npos ||
         (positional && value.empty());
}

VerbWords words_of(const CLI::App& app) { return verb_of(app, ""); }

std::vector<const VerbWords*> all_verbs(const VerbWords& root) {
  std::vector<const VerbWords*> all = {&root};
  for (const VerbWords& verb : root.verbs)
    for (const VerbWords* below : all_verbs(verb)) all.push_back(below);
  return all;
}

}  // namespace lockstep
