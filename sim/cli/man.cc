#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/cli/option_tree.h"

namespace lockstep {
namespace {

// Backslashes, hyphens, and dots and quotes that begin a line mean something to roff.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string option_text(const OptionWords& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(option.positional ? "\\fI" + roff(name) + "\\fR"
                                      : "\\fB" + roff(name) + "\\fR");
  std::string text = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!option.value.empty() && !option.positional) text += " \\fI" + roff(option.value) + "\\fR";
  return text + "\n" + roff(option.what) + "\n";
}

std::string synopsis(const VerbWords& verb) {
  std::string text = "\\fBlockstep " + roff(verb.name) + "\\fR [\\fIoptions\\fR]";
  for (const OptionWords& option : verb.options)
    if (option.positional)
      text += " \\fI" + roff(option.value.empty() ? option.names.front() : option.value) + "\\fR";
  return text;
}

// The examples and exit codes stand as they are.
std::string footer_text(const std::string& footer) {
  return ".PP\n.nf\n" + roff(footer) + "\n.fi\n";
}

std::string verb_text(const VerbWords& verb) {
  std::string text = fmt::format(".SS \"{}\"\n{}\n.PP\n{}\n", roff("lockstep " + verb.name),
                                 roff(verb.what), synopsis(verb));
  for (const OptionWords& option : verb.options) text += option_text(option);
  return text + footer_text(verb.footer);
}

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
\fBXDG_STATE_HOME\fR
Evidence of runs lies in lockstep/runs below it (~/.local/state), and what failed last.
.TP
\fBGITHUB_ACTIONS\fR, \fBGITHUB_WORKSPACE\fR, \fBGITHUB_STEP_SUMMARY\fR
Where the first is true, annotations and a job summary are written.
.TP
\fBNO_COLOR\fR
No colour, unless it is asked for.
)";

}  // namespace

std::string man_page(const VerbWords& root, const std::string& version) {
  std::string text = fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\" \"User commands\"\n.SH NAME\nlockstep \\- {}\n"
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fIVERB\\fR [\\fIoptions\\fR]\n.SH OPTIONS\n",
      roff(version), roff(root.what));
  for (const OptionWords& option : root.options) text += option_text(option);
  text += ".SH VERBS\n";
  for (const VerbWords* verb : all_verbs(root))
    if (!verb->name.empty()) text += verb_text(*verb);
  return text + ".SH \"EXAMPLES AND EXIT CODES\"\n" + footer_text(root.footer) + kEnvironment;
}

}  // namespace lockstep
