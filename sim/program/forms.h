#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/cli/tool.h"

namespace lockstep {

// Which options an invocation honours. Each verb has one form or several, told apart by an option
// ("--list") or by what the verb reads (a recording); each form has the list of its options. What
// is not on that list is refused, so an option that is new is refused until some form names it.
// The parser, docs/options.md and the tests that walk all options have it from here.

struct Form {
  std::string_view verb;  // "scenario check"
  std::string_view what;  // after the verb's name: "with --list", "of a recording"; or empty
  std::string_view mode;  // the option that makes it this form, or empty
  Reads reads = Reads::anything;
  std::vector<std::string_view> options;  // by their long names, in alphabetical order
  bool takes(std::string_view option) const;
};

// Of a verb those with a mode come before those without.
const std::vector<Form>& all_forms();

// The first that fits, or null: a verb without options.
const Form* form_of(std::string_view verb, const std::vector<std::string>& given, Reads reads);

// Of a form that does not take an option, those of the same verb that do.
std::vector<const Form*> forms_with(std::string_view verb, std::string_view option);

Reads reads_of(std::string_view verb, const std::vector<std::string>& paths);

// Options that are honoured although no result shows it, with the reason.
struct SilentOption {
  std::string_view option, verb;  // empty verb: every one that has it
  std::string_view why;
};
const std::vector<SilentOption>& silent_options();

// docs/options.md, made from all this.
std::string forms_markdown();

}  // namespace lockstep
