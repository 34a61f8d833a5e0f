#include "sim/cli/parse_error.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "scenarios/base/text.h"
#include "sim/cli/output_files.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of(const CLI::App& app, bool options) {
  std::vector<std::string> names;
  if (!options) {
    for (const CLI::App* verb : app.get_subcommands({}))
      if (!verb->get_name().empty()) names.push_back(verb->get_name());  // else a group of options
    return names;
  }
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& words) {
  const auto closest = closest_word(word, words);
  return closest ? fmt::format("; did you mean \"{}\"?", *closest) : "";
}

}  // namespace

const CLI::App& innermost(const CLI::App& app) {
  for (const CLI::App* below : app.get_subcommands())
    if (!below->get_name().empty()) return innermost(*below);  // else a group of options
  return app;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = innermost(app);
  const bool has_verbs = !names_of(verb, false).empty();
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty()) {
    const std::string word = printable(extras.front());
    if (word.starts_with('-')) {
      const std::string name = word.substr(0, word.find('='));
      return fmt::format("unknown option {}{}", name, suggestion(name, names_of(verb, true)));
    }
    if (has_verbs)
      return fmt::format("unknown verb \"{}\"{}", word, suggestion(word, names_of(verb, false)));
    return fmt::format("unexpected argument \"{}\"", word);
  }
  if (has_verbs)
    return fmt::format("a verb is missing; expected {}", quoted_list(names_of(verb, false)));
  return printable(error.what());
}

std::string verb_name(const CLI::App& app) {
  std::string name;
  for (const CLI::App* verb = &innermost(app); verb != &app; verb = verb->get_parent())
    name = verb->get_name() + (name.empty() ? "" : " ") + name;
  return name;
}

std::string full_name(const CLI::App& app) {
  const std::string name = verb_name(app);
  return name.empty() ? "lockstep" : "lockstep " + name;
}

std::string parent_name(const CLI::App& app) {
  const std::string name = full_name(app);
  const size_t last = name.rfind(' ');
  return last == std::string::npos ? "" : name.substr(0, last);
}

std::string argument(int argc, char** argv, const std::string& option) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == option && i + 1 < argc) return argv[i + 1];
    if (word.starts_with(option + "=")) return word.substr(option.size() + 1);
  }
  return "";
}

std::string answer_file(int argc, char** argv, const std::string& option) {
  const std::string path = argument(argc, argv, option);
  if (path.empty() || path == "-") return "";
  int named = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (same_file(equals == std::string::npos ? word : word.substr(equals + 1), path)) ++named;
  }
  return named == 1 ? path : "";
}

}  // namespace lockstep
