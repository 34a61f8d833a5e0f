#include "sim/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/cli/forms.h"
#include "sim/cli/output_files.h"
#include "sim/cli/parse_error.h"
#include "sim/report/document.h"
#include "sim/report/trace.h"

namespace lockstep {
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
  const Form* form = form_of(verb, names, reads_of(paths));
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
    else if (one.use == PathUse::written && !is_trace_folder(path))
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
