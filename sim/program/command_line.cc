#include "sim/program/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scenarios/base/text.h"
#include "sim/cli/outputs.h"
#include "sim/program/forms.h"
#include "sim/report/document.h"
#include "sim/report/trace/trace.h"

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

PathUse path_use(const CLI::Option& option) {
  const std::string& value = option.get_option_text();
  const bool file = value.find("FILE") != std::string::npos;
  const bool folder = value.find("FOLDER") != std::string::npos;
  const bool named = option.get_positional() && value.empty();
  if (!file && !folder && !named) return PathUse::none;
  if (option.get_group() != "Output" && !option.check_lname("out")) return PathUse::read;
  return file ? PathUse::written : PathUse::folder;
}

const CLI::App& innermost(const CLI::App& app) {
  for (const CLI::App* below : app.get_subcommands())
    if (!below->get_name().empty()) return innermost(*below);  // else a group of options
  return app;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = innermost(app);
  const bool has_verbs = !names_of(verb, false).empty();
  // Of the verb first: of `sweep --svg f -- python3 train.py` the command is left over above it.
  std::vector<std::string> extras = verb.remaining(false);
  if (extras.empty()) extras = app.remaining(true);
  // Behind another error all arguments from "--" on are left over, and none is to blame.
  if (!extras.empty() && extras.front() != "--") {
    const std::string word = printable(extras.front());
    if (word.starts_with('-')) {
      const std::string name = word.substr(0, word.find('='));
      return fmt::format("unknown option {}{}", name, suggestion(name, names_of(verb, true)));
    }
    if (has_verbs)
      return fmt::format("unknown verb \"{}\"{}", word, suggestion(word, names_of(verb, false)));
    return fmt::format("unexpected argument \"{}\"", word);
  }
  for (const CLI::Option* option : verb.get_options())
    if (option->get_expected_max() == 1 && option->count() > 1)
      return fmt::format("{}: given {} times; expected once", option->get_name(), option->count());
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

namespace {

struct Given {
  std::string name;  // "--json"; of a positional its one name
  std::vector<std::string> values;
  PathUse use = PathUse::none;
  bool positional = false;
};

// Groups of options are apps without a name.
void add_given(const CLI::App& app, std::vector<Given>* given) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames() == std::vector<std::string>{"help"}) continue;
    const bool positional = option->get_positional();
    const std::string name =
        positional ? option->get_single_name() : "--" + option->get_lnames().front();
    given->push_back({name, option->results(), path_use(*option), positional});
  }
  for (const CLI::App* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_given(*group, given);
}

std::string invocation(const Form& form) {
  return fmt::format("lockstep {}{}{}", form.verb, form.what.empty() ? "" : " ", form.what);
}

InputError refused(const Form& form, const std::string& option) {
  std::string allowed = fmt::format("{}", fmt::join(form.options, " "));
  std::vector<std::string> others;
  for (const Form* other : forms_with(form.verb, option)) others.push_back(invocation(*other));
  if (!others.empty()) allowed += fmt::format("; {} is for {}", option, fmt::join(others, ", or "));
  return option_error(fmt::format("{}: {} does not take it", option, invocation(form)), allowed);
}

InputErrors form_errors(const std::string& verb, const std::vector<Given>& given) {
  std::vector<std::string> names, paths;
  for (const Given& one : given) {
    if (one.positional)
      paths.insert(paths.end(), one.values.begin(), one.values.end());
    else
      names.push_back(one.name);
  }
  InputErrors errors;
  const Form* form = form_of(verb, names, reads_of(verb, paths));
  for (const std::string& name : names)
    if (form == nullptr)
      errors.push_back(option_error(fmt::format("{}: lockstep {} does not take it", name, verb)));
    else if (!form->takes(name))
      errors.push_back(refused(*form, name));
  return errors;
}

// Two options that write the same file, or one that another reads.
void add_clashes(const std::vector<Given>& given, InputErrors* errors) {
  struct Place {
    std::string name, path;
    bool written;
  };
  std::vector<Place> places;
  for (const Given& one : given)
    for (const std::string& path : one.values)
      if (one.use != PathUse::none && path != "/dev/null")
        places.push_back({one.name, path, one.use != PathUse::read});
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if ((places[i].written || places[j].written) && same_file(places[i].path, places[j].path))
        errors->push_back(option_error(fmt::format("{} and {} name the same path {}",
                                                   places[j].name, places[i].name, places[i].path),
                                       "a path of its own for each file that is written"));
}

void add_unwritable(const Given& one, InputErrors* errors) {
  for (const std::string& path : one.values) {
    if (one.use == PathUse::written && path == "-")
      errors->push_back(option_error(fmt::format("{} -: no name of a file", one.name),
                                     "/dev/stdout for standard output, or ./- for such a file"));
    else if (one.use == PathUse::written && !(one.name == "--trace" && is_trace_folder(path)))
      check_output(one.name.c_str(), path, errors);
  }
}

}  // namespace

InputErrors command_line_errors(const CLI::App& app) {
  std::vector<Given> given;
  add_given(innermost(app), &given);
  const std::string verb = verb_name(app);
  InputErrors errors = form_errors(verb, given);
  add_clashes(given, &errors);
  // Of several hosts and processes only that of rank 0 writes, and finds out itself.
  const bool elsewhere = verb == "worker" || std::any_of(given.begin(), given.end(), [](auto& one) {
                           return one.name == "--hosts";
                         });
  for (const Given& one : given)
    if (!elsewhere) add_unwritable(one, &errors);
  return errors;
}

}  // namespace lockstep
